"""`nymph tui` of the one file in a terminal multiplexer, beside a real daemon that comes, goes and comes again."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import daemon
from multiplexer import Session, needs_tmux
from ports import free_port
from starting import CLEAN, environment, trees

from lakeshore.tui.nymph_app import LEGEND

pytestmark = needs_tmux


@pytest.fixture
def session(tmp_path: Path, filled_cache: Path) -> Iterator[Session]:
    opened = Session(tmp_path, environment(filled_cache, LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE=""))
    yield opened
    opened.close()


@pytest.mark.inventory("N-307", "N-308", "N-309")
@pytest.mark.inventory("C-434", "C-435")
def test_a_daemon_without_a_server_is_watched_from_the_one_file_through_its_death_and_its_return(
    pyz: Path, filled_cache: Path, session: Session, tmp_path: Path
) -> None:
    port = free_port()
    sections = {"introspect": {"enabled": True, "port": port}}
    with daemon("http://127.0.0.1:9", tmp_path / "host", sections) as one:
        before = tmp_path / "before"
        session.until("ready>")
        session.type(f"stty -a > {before}; echo begun")
        session.until("\nbegun")
        assert len(trees(filled_cache)) == 1  # nothing has paid for screens yet
        line = [*CLEAN, str(pyz), "nymph", "tui", "--config", str(one.config), "--interval", "0.2"]
        session.type(" ".join(map(shlex.quote, line)))
        session.until(f"✗ daemon unreachable at http://127.0.0.1:{port}", "(retrying every 0.2s)", LEGEND)
        one.start()
        session.until("● connected", "run-state starting", f"queue     {one.queue}", "WARN")
        session.press("t")
        session.until(" trace+ ")
        one.stop(signal.SIGKILL)
        session.until("✗ daemon unreachable", f"queue     {one.queue}", "WARN")
        one.start()
        session.until("● connected")
        session.press("Space")
        session.until("⏸ PAUSED")
        session.press("q")
        session.until("⏵follow", LEGEND, there=False)
        session.until("\nbegun")
        after = tmp_path / "after"
        session.type(f"stty -a > {after}; echo end''ed")
        session.until("ended\n")
        assert after.read_text() == before.read_text()
        assert one.process.poll() is None  # it was looked at, and nothing else
    program, screens = sorted(trees(filled_cache), key=lambda tree: len(tree.name))
    assert screens.name == f"{program.name}_screens"
    assert (screens / "lakeshore/_vendor/textual").is_dir()
    assert not (program / "lakeshore/_vendor/textual").exists()
    assert os.listdir(screens / "lakeshore/_vendor/textual/__pycache__")  # the next one starts faster
