"""What every command does on poor terminals and before mistakes, walked over the tree of commands."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path

import click
import pytest
from command_tree import LEAVES, SAYS_WHAT_IT_DOES, TALKS, TREE, as_typed

from lakeshore.cli.exits import ExitCode
from lakeshore.cli.main import main
from lakeshore.cli.waiting import counted

ASKS = [name for name in LEAVES if any("--yes" in param.opts for param in TREE[name].params)]
NEEDS_NO_ANSWER = {"admin namespace delete"}
"""Scripts call it without `--yes`, as the pages print it: it asks on a terminal only."""


@pytest.fixture(autouse=True)
def nothing_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{tmp_path}/config")
    monkeypatch.setenv("LAKESHORE_STATE_DIR", f"{tmp_path}/state")


def misspelt(word: str) -> str:
    """A word with its second and third letters changed about, or doubled where they are the same."""
    turned = word[0] + word[2:3] + word[1] + word[3:] if len(word) > 2 else word + word[-1]
    return turned if turned != word else word + word[-1]


@pytest.mark.parametrize("command", TREE)
def test_a_misspelt_command_or_verb_is_answered_with_the_one_that_was_meant(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *above, name = command.split()
    assert main([*above, misspelt(name)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: unknown command '{misspelt(name)}' (did you mean ")
    assert f"'{name}'" in said.err.partition("\n")[0]


def long_options(command: str) -> list[str]:
    return [
        spelt
        for param in TREE[command].params
        if isinstance(param, click.Option) and not param.hidden
        for spelt in param.opts
        if len(spelt) > 4 and spelt.startswith("--")
    ]


@pytest.mark.parametrize("command", [name for name in LEAVES if long_options(name)])
def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in long_options(command):
        typed = "--" + misspelt(option[2:])
        assert main([*command.split(), typed]) == ExitCode.USAGE
        first = capsys.readouterr().err.partition("\n")[0]
        assert first.startswith(f"error: no such option '{typed}'")
        assert f"'{option}'" in first


@pytest.mark.parametrize("command", sorted(set(ASKS) - NEEDS_NO_ANSWER))
def test_what_would_ask_says_without_a_terminal_which_flag_answers(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    words = [word for word in as_typed(command) if word != "--yes"]
    code = main(words)
    said = capsys.readouterr()
    assert said.out == ""
    assert code == ExitCode.USAGE or "127.0.0.1:1" in said.err, said.err
    if code == ExitCode.USAGE:
        assert re.search(r"--\w", said.err.partition("\n\n")[0])


WAITS_FOR_IT = {"daemon follow"}
"""A server that restarts comes back: who follows asks it again, for as long as `--wait` says."""


@pytest.mark.parametrize("command", sorted(set(TALKS) - WAITS_FOR_IT))
def test_a_server_that_is_not_there_is_one_sentence_with_its_address(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", "an-admin-token")
    assert main(as_typed(command)) == ExitCode.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.removeprefix(SAYS_WHAT_IT_DOES.get(command, "")).startswith("error: ")
    assert "http://127.0.0.1:1" in said.err
    assert "cannot connect" in said.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_all_help_can_be_written_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in TREE:
        raw = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding, errors="strict"))
        assert main([*command.split(), "--help"]) == 0
        assert raw.getvalue().decode(encoding).startswith(f"Usage: lakeshore {command} ")


class Terminal(io.StringIO):
    """A terminal that tells when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        size = super().write(text)
        self.written.set()
        return size


def test_what_takes_more_than_a_second_is_counted_on_a_terminal_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with counted("waiting for http://here", terminal):
        assert terminal.written.wait(20)
    assert "waiting for http://here 1s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    quick = Terminal()
    with counted("waiting", quick):
        pass
    script = io.StringIO()
    with counted("waiting", script):
        pass
    assert quick.getvalue() == script.getvalue() == ""
