"""How checks are run, and that the table of variables is whole."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

from lakeshore.cli.checks.finding import Asked, Finding, ok
from lakeshore.cli.checks.run import run
from lakeshore.config.variables import KNOWN, nearest

ROOT = Path(__file__).resolve().parents[2]


def test_a_check_that_hangs_costs_its_limit_and_keeps_what_it_saw() -> None:
    let_go = threading.Event()

    def hangs(_asked: Asked) -> Iterator[Finding]:
        yield ok("disk", "seen before it hung")
        let_go.wait(60)

    def well(_asked: Asked) -> Iterator[Finding]:
        yield ok("python", "there")

    found = list(run({"disk": hangs, "python": well}, Asked(environ={}, limit_s=0.3)))
    let_go.set()
    assert [(one.subject, one.status) for one in found] == [("disk", "ok"), ("disk", "failure"), ("python", "ok")]
    assert found[1].seen == "no answer within 0.3 s"


def test_a_check_that_fails_is_a_line_like_any_other() -> None:
    def breaks(_asked: Asked) -> Iterator[Finding]:
        yield ok("disk", "seen")
        raise RuntimeError("of all things")

    first, second = run({"disk": breaks}, Asked(environ={}))
    assert (first.status, second.status) == ("ok", "failure")
    assert "RuntimeError: of all things" in second.seen


def test_the_token_is_not_part_of_what_a_check_is_told_as_text() -> None:
    assert "tell-nobody" not in repr(Asked(environ={"LAKESHORE_TOKEN": "tell-nobody"}, token="tell-nobody"))


def test_every_variable_that_our_code_reads_is_in_the_table() -> None:
    read = set()
    for top in ("lakeshore", "dreamlake", "scripts"):
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".sh"):
                read |= set(re.findall(r"\bLAKESHORED?_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
    assert sorted(read - set(KNOWN)) == []


def test_what_was_probably_meant_is_found_for_small_slips_only() -> None:
    assert nearest("LAKESHORE_ULR") == "LAKESHORE_URL"
    assert nearest("LAKESHORE_CLIENTTOKEN") == "LAKESHORE_CLIENT_TOKEN"
    assert nearest("HOME") is None
    assert nearest("PATH") is None
