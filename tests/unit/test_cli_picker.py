"""Picking from a list: what keys do, what is drawn, and that a terminal is left as it was."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import termios
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakeshore.cli.exec.target import TAGS, _line, _more
from lakeshore.cli.picker import Picking

ROWS = [("box-1", "active", "gpu:h100"), ("box-2", "active", ""), ("login", "stale", "gpu:a100")]


def picked(*keys: str, several: bool = False) -> list[int] | None:
    picking = Picking("Run it on", ROWS, several=several)
    for key in keys:
        assert not picking.over
        picking.key(key)
    assert picking.over
    return picking.result


@pytest.mark.inventory("C-383")
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        (["enter"], [0]),
        (["down", "enter"], [1]),
        (["down", "down", "down", "down", "enter"], [2]),
        (["up", "enter"], [0]),
        (["last", "up", "enter"], [1]),
        (["page down", "first", "enter"], [0]),
        (["g", "p", "u", " ", "a", "1", "0", "enter"], [2]),
        (["down", "G", "P", "U", "enter"], [0]),
        (["x", "back", "down", "enter"], [1]),
        (["z", "z", "clear", "enter"], [0]),
        (["leave"], None),
    ],
    ids=lambda value: "-".join(value) if value and isinstance(value[0], str) else "",
)
def test_keys_move_filter_pick_and_leave(keys: list[str], wanted: list[int] | None) -> None:
    assert picked(*keys) == wanted


def test_nothing_is_picked_where_nothing_matches() -> None:
    picking = Picking("x", ROWS)
    for key in ("z", "z", "down", "enter"):
        picking.key(key)
    assert (picking.over, picking.lines(80, 24)[-1]) == (False, "  nothing matches")


def test_of_several_space_marks_and_enter_takes_the_marked_or_the_one_under_the_cursor() -> None:
    assert picked(" ", " ", "enter", several=True) == [0, 1]
    assert picked(" ", "up", " ", "down", "enter", several=True) == [2]
    assert picked("down", "enter", several=True) == [1]
    assert picked(" ", "leave", several=True) is None


def test_the_list_scrolls_within_its_room_and_no_line_is_wider_than_the_terminal() -> None:
    picking = Picking("Run it on", [(f"daemon-{n:03}", "x" * 100) for n in range(50)])
    for _ in range(30):
        picking.key("down")
    drawn = picking.lines(40, 8)
    assert len(drawn) == 8
    assert [line[:12] for line in drawn[1:-1]] == [f"{'>' if n == 30 else ' '} daemon-{n:03}" for n in range(25, 31)]
    assert max(map(len, drawn)) < 40
    for _ in range(30):
        picking.key("up")
    assert picking.lines(40, 8)[1].startswith("> daemon-000")


def test_what_others_chose_does_not_steer_the_terminal() -> None:
    drawn = "".join(Picking("x", [("a\x1b[2J\nb", "\x07")]).lines(80, 24))
    assert not {"\x1b", "\x07", "\n"} & set(drawn)


@pytest.mark.inventory("C-385")
def test_right_unfolds_what_else_is_known_of_a_row_and_every_other_key_folds_it() -> None:
    more = [["id: 1", "tags: a, b"], [], ["id: 3\x1b[2J", *(f"line {n}" for n in range(50))]]
    for key in ("left", "down", "x", "back"):
        picking = Picking("x", ROWS, more=more)
        folded = picking.lines(80, 24)
        picking.key("right")
        assert picking.lines(80, 24)[1:4] == [folded[1], "      id: 1", "      tags: a, b"]
        picking.key(key)
        assert "      id: 1" not in picking.lines(80, 24)
    picking.key("last")
    picking.key("right")
    for height in range(5, 30):
        drawn = picking.lines(30, height)
        assert len(drawn) <= height
        assert max(map(len, drawn)) < 30
        assert [line for line in drawn if line.startswith("> login")]
    assert "\x1b" not in "".join(drawn)
    picking.key("enter")
    assert picking.result == [2]
    plain = Picking("x", ROWS)
    plain.key("right")
    assert plain.lines(80, 24) == Picking("x", ROWS).lines(80, 24)


SGR = re.compile(r"\x1b\[(\d+)m(.*?)\x1b\[39m")


@pytest.mark.inventory("C-385")
@pytest.mark.parametrize("several", [False, True])
def test_a_tag_has_the_same_colour_in_every_list_and_no_more_than_a_colour(several: bool) -> None:
    lists = [
        Picking("x", [(name, "gpu:h100,zone:a", "end"), ("b", "zone:a", "")], tags=1, several=several)
        for name in ("a", "a much longer name")
    ]
    found = [SGR.findall("\n".join(picking.lines(80, 24, colours=True))) for picking in lists]
    assert found[0] == found[1]
    assert [tag for _, tag in found[0]] == ["gpu:h100", "zone:a", "zone:a"]
    assert found[0][1] == found[0][2]
    for width in range(1, 60):
        for picking in lists:
            drawn = picking.lines(width, 24, colours=True)
            assert [SGR.sub(r"\2", line) for line in drawn] == picking.lines(width, 24)
    tags = [Picking("x", [(f"tag-{n}",)], tags=0).lines(80, 24, colours=True)[1] for n in range(40)]
    assert len({SGR.findall(line)[0][0] for line in tags}) > 3


@pytest.mark.inventory("C-385")
@pytest.mark.parametrize("runner", ["slurm", "kube", "docker"])
def test_a_daemon_of_a_cluster_or_of_containers_stands_beside_the_others(runner: str) -> None:
    now = datetime.now(UTC)
    rows = [{"id": "1", "label": "cloud", "runners": ["process"]}, {"id": "2", "label": "x", "runners": [runner]}]
    lines = Picking("x", [_line(row, now) for row in rows], tags=TAGS, more=[_more(row) for row in rows]).lines(80, 24)
    assert ("cloud" in lines[1], runner in lines[2]) == (True, True)


PROGRAM = """
import sys
from lakeshore.cli.picker import pick
print("picked", pick("Run it on", [("one",), ("two",), ("drei \\u00fc",)], more=[["a"], ["b"], []]))
"""


def typed(*keys: bytes) -> tuple[str, bool]:
    """Start the program on a terminal and type, each time that it has drawn; what it printed, and whether the terminal
    is as it was.
    """
    here, there = pty.openpty()
    before = termios.tcgetattr(there)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "COLUMNS": "60", "LINES": "20"}
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (0, 2):
            os.dup2(there, fd)
        os.dup2(write, 1)
        os.execve(sys.executable, [sys.executable, "-c", PROGRAM], env)
    os.close(write)
    deadline = time.monotonic() + 30
    for key in keys:
        drawn = b""
        while not drawn.endswith((b"leaves", b"matches")):
            assert time.monotonic() < deadline, drawn
            if select.select([here], [], [], 1.0)[0]:
                drawn += os.read(here, 4096)
        os.write(here, key)
    while select.select([here, read], [], [], 30.0)[0] == [here]:  # what it draws last must not fill the terminal
        os.read(here, 4096)
    with open(read) as pipe:
        out = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    same = termios.tcgetattr(there) == before
    for fd in (here, there):
        os.close(fd)
    return out, same


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([b"\x1b[B", b"\r"], "picked 1\n"),
        ([b"\x1bOB", b"\x1bOB", b"\x1bOA", b"\r"], "picked 1\n"),
        (["drei ü".encode(), b"\r"], "picked 2\n"),
        ([b"\x1b[1;5C\r"], "picked 0\n"),
        ([b"\x1b[C", b"\x1b[D", b"\x1bOC", b"\r"], "picked 0\n"),
        ([b"\x1b"], "picked None\n"),
        ([b"\x03"], "picked None\n"),
    ],
    ids=repr,
)
def test_on_a_real_terminal_keys_are_understood_and_it_is_left_as_it_was(keys: list[bytes], wanted: str) -> None:
    assert typed(*keys) == (wanted, True)
