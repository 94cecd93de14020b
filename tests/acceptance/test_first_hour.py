"""docs/first-hour.md, line by line, as its reader: with an empty home and another host; in a bare Debian without one.
Run with -s to see how long each step takes.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_root import enter, make
from follow_page import followed
from one_file import ROOT
from person import short_place
from sshd import running_sshd

from lakeshore._start import unsafe_above

PAGE = ROOT / "docs" / "first-hour.md"
TOTAL = re.compile(r" +\d+\.\d s  first-hour.md, a machine's time for all \d+ steps\Z")


@pytest.fixture
def place(private_cache: Path) -> Iterator[Path]:
    """A directory that only we can write, with a path that is short enough for a socket below it."""
    home = Path.home()
    if len(str(home)) > len(str(private_cache)) - 20 or unsafe_above(f"{home}/x"):
        yield private_cache
        return
    path = Path(tempfile.mkdtemp(prefix="hour-", dir=home))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_new_user_gets_from_nothing_to_results_on_another_host_with_an_empty_home(pyz: Path, place: Path) -> None:
    with short_place() as there, running_sshd(there) as sshd:
        box = sshd.host("my-box")
        said = followed(PAGE, pyz, place / "user", sshd.config)
        assert not box.launches
        assert not box.processes()
    print(f"\n{said}")
    assert TOTAL.search(said)
    assert list((place / "user" / "home" / ".cache" / "lakeshore").iterdir())  # its own, unpacked by the page


def test_a_new_user_gets_from_nothing_to_results_in_a_bare_debian(pyz: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root)
    script = "/srv/lakeshore/tests/acceptance/follow_page.py"
    page = f"/srv/lakeshore/{PAGE.relative_to(ROOT)}"
    follow = ["env", "PYTHONPATH=/srv/lakeshore", "python3", "-B", script, page]
    done = enter(root, pyz, *follow, "/srv/release/lakeshore", "/home/guest/user")
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"\n{done.stdout}")
    assert TOTAL.search(done.stdout.rstrip())
