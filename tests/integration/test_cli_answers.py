"""What every command says to an answer that is none of a control plane's: walked over the tree of commands."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest
from command_tree import TALKS, as_typed
from lying_server import LyingServer, answered_names, http, lying, told

from lakeshore.cli.exits import ExitCode
from lakeshore.cli.main import main

Run = Callable[..., tuple[int, str, str]]
PAGE = b"<!doctype html><title>Sign in</title>"
NOT_OURS = {
    "a page": http(PAGE, kind="text/html"),
    "a proxy's refusal": http(PAGE, "502 Bad Gateway", "text/html"),
    "half of a document": http(b'{"queues": [{"na'),
    "half of an answer": http(b'{"queues": [', short=99, more="connection: close\r\n"),
    "an elsewhere": http(b"", "302 Found", more="location: http://127.0.0.1:1/v1\r\n"),
    "nothing to say": b"HTTP/1.1 204 No Content\r\n\r\n",
    "a bottomless document": http(b"[" * 100_000),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\nconnection: close\r\n\r\n",
    "a list": told([{"id": "x"}]),
    "a number": told(7),
}
VALUES = (None, 7, -1e999, "x", [], {}, ["x"])
NAMES, LISTS, MAPS = answered_names()


def lies() -> Iterator[tuple[str, bytes]]:
    """Answers with all names of ours, and what of each is wrong: of the answer itself, and of the rows in it."""
    yield "nothing in it", told({})
    for value in VALUES:
        every = dict.fromkeys(NAMES, value)
        yield f"each is {value}", told(every)
        yield f"each in a row is {value}", told(every | {name: [every] for name in LISTS} | dict.fromkeys(MAPS, every))


LIES = dict(lies())
SHOWN = LIES["each in a row is x"]
"""Of this most commands print something."""
FOLLOWS = {"daemon follow": ["--wait", "0.2"], "exec": ["--wait", "0.2"], "run": ["--wait", "0.2"]}
"""What a server that never tells the end would have waiting."""


@pytest.fixture(scope="module")
def liar() -> Iterator[LyingServer]:
    with lying() as server:
        yield server


@pytest.fixture(autouse=True)
def _configured(liar: LyingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("HOME", tmp_path),
        ("XDG_CONFIG_HOME", tmp_path / "config"),
        ("LAKESHORE_STATE_DIR", tmp_path / "state"),
        ("LAKESHORE_URL", liar.url),
        ("LAKESHORE_ADMIN_TOKEN", "an-admin-token"),
    ):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr("lakeshore.client.api.INSIST_S", 0.05)
    monkeypatch.chdir(tmp_path)


def typed(command: str) -> list[str]:
    return [*command.split(), *FOLLOWS.get(command, []), *as_typed(command)[len(command.split()) :]]


@pytest.mark.parametrize("command", TALKS)
def test_an_answer_of_somebody_else_is_one_sentence_and_no_data(command: str, liar: LyingServer, run: Run) -> None:
    for what, answer in NOT_OURS.items():
        liar.says = answer
        code, out, err = run(*typed(command))
        assert (code, out) == (ExitCode.FAILED, ""), (what, code, out, err)
        assert sum(line.startswith("error: ") for line in err.splitlines()) == 1, (what, err)
        assert "Traceback" not in err, (what, err)


@pytest.mark.parametrize("command", TALKS)
def test_an_answer_with_other_things_in_it_than_ours_is_no_traceback(command: str, liar: LyingServer, run: Run) -> None:
    for what, answer in LIES.items():
        liar.says = answer
        try:
            code, _out, err = run(*typed(command))
        except Exception as error:
            raise AssertionError(what) from error
        errors = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(errors) <= 1, (what, err)
        assert code == 0 or errors, (what, code, err)
        assert "Traceback" not in err, (what, err)


def full() -> TextIO:
    return open("/dev/full", "w", encoding="utf-8")


def nobody_reads() -> TextIO:
    read, write = os.pipe()
    os.close(read)
    return open(write, "w", encoding="utf-8")


def run_into(stdout: TextIO | None, words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """(exit code, stderr) of a command whose stdout is that file; None: it was closed before the start."""
    err = io.StringIO()
    with monkeypatch.context() as streams:
        streams.setattr("sys.stdout", stdout)
        streams.setattr("sys.stderr", err)
        code = main(words)
        opened = sys.stdout
    opened.close()  # as at exit: it must not complain
    return code, err.getvalue()


@pytest.mark.parametrize("command", TALKS)
def test_a_stdout_that_takes_nothing_is_told_or_swallows_and_is_no_traceback(
    command: str, liar: LyingServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar.says = SHOWN
    words = typed(command)
    usual, out, said = run(*words)
    code, err = run_into(full(), words, monkeypatch)
    if out:
        assert code == ExitCode.FAILED, err
        assert err.splitlines()[-1] == "error: cannot write the output: No space left on device"
    else:
        assert (code, err) == (usual, said)
    code, err = run_into(nobody_reads(), words, monkeypatch)
    assert (code == 0 and "\nerror: " not in f"\n{err}") if out else (code, err) == (usual, said)
    assert run_into(None, words, monkeypatch) == (usual, said)
