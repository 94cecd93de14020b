"""`lakeshore tui` of the one file in a terminal multiplexer: through the whole page, as a person goes."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dashboards import Told, made, state_of, submitted
from multiplexer import Session, needs_tmux
from ports import free_port
from served import JSON, Served, start
from starting import CLEAN, environment

pytestmark = needs_tmux
WIDE = (140, 40)
NARROW = (80, 24)
ASKS = "[y/n]"


@pytest.fixture
def session(tmp_path: Path, filled_cache: Path) -> Iterator[Session]:
    given = environment(filled_cache, LC_ALL="C.UTF-8", HOME=str(tmp_path))
    given.pop("NO_COLOR", None)
    opened = Session(tmp_path, given, size=WIDE)
    yield opened
    opened.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    served = start(tmp_path / "plane", "--port", str(free_port()))
    yield served
    served.process.kill()
    served.process.wait()


def stored(server: Served) -> None:
    body = {"name": "models", "kind": "s3", "config": {"bucket": "weights", "region": "eu-west-1"}}
    answer = server.post("/v1/namespaces/default/storages", body, encoding=JSON)
    assert answer.status == 201, answer.body


@pytest.mark.inventory("C-390", "C-391", "C-404")
@pytest.mark.inventory("C-411", "C-412", "C-414")
def test_a_person_goes_through_the_whole_dashboard(pyz: Path, session: Session, server: Served, tmp_path: Path) -> None:
    made(server, "default", "gpu")
    stored(server)
    worker = Told(server, "default", "box", lanes=["cpu"])
    calls = [submitted(server, "default", "gpu") for _ in range(3)]
    line = shlex.join([*CLEAN, str(pyz), "tui"])

    session.until("ready>")
    session.type(f"({line} --url {server.url}; echo en''ded $?) 2>&1 | cat")
    session.until("this needs a terminal", "lakeshore jobs list", "ended 2")
    session.type(f"clear; unset LAKESHORE_URL; {line}; echo en''ded $?")
    session.until("lakeshore auth login", "LAKESHORE_URL", "ended 2")

    before, after = tmp_path / "before", tmp_path / "after"
    session.type(f"clear; stty -a > {before}; {line} --url {server.url} --interval 1; echo en''ded $?")
    session.until("1 Workers 1", "2 Queues", "3 Invocations 3", "4 Storage 1", f"{server.url} (open)", "queued 3")
    session.until(" box ", "[k]ill [h]ibernate r[e]set", "↑/↓ select")

    session.press("?")
    session.until("Tab, Shift+Tab", "(asks first)")
    session.press("Escape")
    session.until("(asks first)", there=False)

    session.press("Tab")
    session.until("NAME", "ELASTICITY", "[d]rain", " gpu ")
    session.press("Home")
    session.press("d")
    session.until("✓", "draining")
    session.press("u")
    session.until("[d]rain", "✓")
    session.until("draining", there=False)

    session.press("3")
    session.until("SUBMIT", " 1/3 ", *calls)
    session.press("Down", "Down")
    session.until(f" 3/3  {calls[0]}")
    session.press(">")
    session.until("ID▲")
    session.press("S")
    session.until("ID▼")
    session.press("/")
    session.until("column:word")
    session.write(f"state:queued {calls[1][:12]}")
    session.press("Enter")
    session.until(f" 1/1 of 3, filter 'state:queued {calls[1][:12]}'")
    session.press("k")
    session.until(ASKS)
    session.press("q", "2", "Escape")
    session.until(ASKS, there=False)
    session.until(f"{calls[1]}  queued")
    session.press("k")
    session.until(ASKS)
    session.press("y")
    session.until("✓", "nothing of 3 matches")
    assert [state_of(server, "default", f"invocations/{one}") for one in calls] == ["queued", "killed", "queued"]
    session.press("Escape")
    session.until(f"{calls[1]}  killed", *calls)
    session.press("Enter")
    session.until("TIMELINE", "submitted")
    session.press("Escape")
    session.until("SUBMIT")

    session.press("4")
    session.until("default/models", "s3://weights")
    session.press("r")
    session.until(ASKS)
    session.press("y")
    session.until("✓", "4 Storage 0")

    session.press("C-p")
    session.until("Search for commands")
    session.until("show the workers", "every key")
    session.write("Workers")
    session.until("every key", there=False)
    session.until("show the workers")
    session.press("Enter")
    session.until("LABEL", " box ")

    server.stop(signal.SIGKILL)
    session.until(f"✗ {server.url}", "asking again", " box ")
    again = start(tmp_path / "plane", "--port", str(urlsplit(server.url).port))
    try:
        session.until("asking again", there=False)
        worker.server = again
        session.resize(*NARROW)
        session.until("1 Workers 1", " box ", "[k][h][e]", "? help")
        assert len(session.text().splitlines()) == NARROW[1]
        session.press("3")
        newest = submitted(again, "default", "gpu")
        session.until("3 Invocations 4", "/4  ", "ID▼", newest[-7:])
        session.press("q")
        session.until("ended 0")
        session.type(f"clear; stty -a > {after}; echo look''ed")
        session.until("looked")
    finally:
        again.process.kill()
        again.process.wait()
    sane = [text.replace("rows 24", "").replace("columns 80", "") for text in (before.read_text(), after.read_text())]
    assert sane[0].replace("rows 40", "").replace("columns 140", "") == sane[1]
