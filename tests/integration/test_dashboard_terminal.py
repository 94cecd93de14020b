"""`lakeshore tui` on a terminal of its own: its flags, what it refuses before it draws, NO_COLOR, and leaving."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from whole_terminal import Terminal

COMMAND = [sys.executable, "-m", "lakeshore", "tui"]
NOBODY = "http://127.0.0.1:9"
FULL_SCREEN = b"\x1b[?1049h"
COLOURS = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7])[;m]")


def left(terminal: Terminal, keys: bytes = b"q") -> int:
    os.write(terminal.fd, keys)
    return terminal.end()


@pytest.mark.inventory("C-388")
def test_it_begins_with_the_tab_that_is_named_and_with_workers_otherwise() -> None:
    titles = {
        "": b"RUNNERS",
        "queues": b"ELASTICITY",
        "invocations": b"SUBMIT",
        "storage": b"TARGET",
    }
    opened = {
        tab: Terminal([*COMMAND, "--url", NOBODY, *(["--tab", tab] if tab else [])], LAKESHORE_URL="") for tab in titles
    }
    for tab, terminal in opened.items():
        terminal.until(b"connection refused")
        assert [title in terminal.screen for title in set(titles.values())] == [
            title == titles[tab] for title in set(titles.values())
        ]
        assert COLOURS.search(terminal.screen)
        assert left(terminal) == 0 and terminal.after == terminal.before


@pytest.mark.inventory("C-387", "C-389", "C-410")
@pytest.mark.inventory("C-884")
def test_an_unknown_tab_is_told_and_an_interval_below_a_second_is_one_and_no_colour_is_no_colour() -> None:
    asked = [*COMMAND, "--url", NOBODY, "--tab", "nodes", "--interval", "0.1"]
    terminal = Terminal(asked, NO_COLOR="1", COLUMNS="60")  # a shell's own word, which the command does not take
    terminal.until(b"asking again every 1s")
    assert b"warning: --tab nodes: there is no such tab" in terminal.screen.partition(FULL_SCREEN)[0]
    drawn = terminal.screen.partition(FULL_SCREEN)[2]
    assert b"there is no such tab, so this is workers" in drawn and b"RUNNERS" in drawn
    assert left(terminal, b"\x03") == 0
    assert COLOURS.findall(terminal.screen) == []


@pytest.mark.inventory("C-391")
@pytest.mark.inventory("C-884")
def test_without_a_server_it_exits_2_before_it_draws_and_says_how_to_name_one(tmp_path: Path) -> None:
    empty = {"LAKESHORE_URL": "", "HOME": str(tmp_path), "LAKESHORE_STATE_DIR": str(tmp_path / "state")}
    terminal = Terminal(COMMAND, **empty)
    assert terminal.end() == 2
    assert b"`lakeshore auth login --server <url>`" in terminal.screen and b"LAKESHORE_URL" in terminal.screen
    assert FULL_SCREEN not in terminal.screen
