"""What every command says to a token that is wrong, to a namespace that is another's, and to a narrow terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_tree import LEAVES, SAYS_WHAT_IT_DOES, TALKS, as_typed
from served import Served, new_id

from lakeshore.cli.cells import cells
from lakeshore.cli.exits import ExitCode
from lakeshore.cli.main import main

Run = Callable[..., tuple[int, str, str]]
LISTS = [name for name in LEAVES if name.split()[-1] in ("list", "ls", "execs") and name in TALKS]
WAITS_FOR_IT = {"daemon follow"}


@pytest.fixture
def secured(secured_server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server that asks for a token, and a home without any."""
    for name, value in (
        ("HOME", tmp_path),
        ("XDG_CONFIG_HOME", tmp_path / "config"),
        ("LAKESHORE_STATE_DIR", tmp_path / "state"),
        ("LAKESHORE_URL", secured_server.url),
    ):
        monkeypatch.setenv(name, str(value))
    return secured_server


@pytest.mark.parametrize("command", sorted(set(TALKS) - WAITS_FOR_IT))
def test_a_wrong_token_is_one_sentence_and_no_data(
    command: str, secured: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAKESHORE_CLIENT_TOKEN", "LAKESHORE_ADMIN_TOKEN"):
        monkeypatch.setenv(name, "dlk_wrong")
    code, out, err = run(*as_typed(command))
    assert (code, out) == (ExitCode.FAILED, "")
    err = err.removeprefix(SAYS_WHAT_IT_DOES.get(command, ""))
    assert err.startswith("error: "), err
    assert "token" in err.partition("\n")[0]
    assert "dlk_wrong" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [name for name in LISTS if name.split()[0] not in ("admin", "nymph")])
def test_a_token_of_another_namespace_sees_nothing_and_is_told_so(
    command: str, secured: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = f"ns-{new_id()}"
    secured.post("/v1/admin/namespaces", {"name": mine})
    minted = secured.post(f"/v1/namespaces/{mine}/tokens", {"name": "mine"}).body
    monkeypatch.setenv("LAKESHORE_CLIENT_TOKEN", minted["plaintext"])
    words = [*as_typed(command)]
    code, out, err = run(*words, "--namespace", "default")
    assert (code, out) == (ExitCode.FAILED, "")
    assert err.startswith("error: ")
    assert "namespace" in err


class Terminal(io.StringIO):
    """A terminal; how wide it is, COLUMNS says."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("colour", ["", "1"])
@pytest.mark.parametrize("columns", [40, 60])
def test_every_list_fits_a_narrow_terminal_and_has_no_colour_where_none_is_wanted(
    columns: int, colour: str, server: Served, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = f"ns-{new_id()}"
    for name, value in (
        ("XDG_CONFIG_HOME", tmp_path / "config"),
        ("LAKESHORE_STATE_DIR", server.state_dir),
        ("LAKESHORE_URL", server.url),
        ("LAKESHORE_NAMESPACE", ns),
        ("COLUMNS", columns),
        ("NO_COLOR", colour),
        ("TERM", "xterm"),
    ):
        monkeypatch.setenv(name, str(value))
    long = "a-long-name-" * 3 + "x"
    (tmp_path / "value").write_text("secret")
    for words in (
        ("admin", "namespace", "create", ns),
        ("queues", "add", long, "--description", "what it is for, at length, " * 3),
        ("modes", "add", long, "--field", "image=" + "registry/" * 9, "--field", "resources.gpu=1"),
        (
            "secrets",
            "add",
            long,
            "--kind",
            "opaque",
            "--from-file",
            str(tmp_path / "value"),
            "--description",
            "d " * 40,
        ),
        ("schedule", "add", "nightly", "module.of.some.depth:function_of_a_long_name", "--cron", "0 0 * * *"),
        ("admin", "tokens", "create", "a-label"),
    ):
        code, _, err = run(*words)
        assert code == 0, err
    several = 0
    for command in LISTS:
        terminal = Terminal()
        with monkeypatch.context() as shown:
            shown.setattr("sys.stdout", terminal)
            code = main(as_typed(command))
        if command == "daemon keys list":  # of a daemon, and there is none
            continue
        assert code == 0, command
        text = terminal.getvalue()
        lines = re.sub(r"\x1b\[\d+m", "", text).splitlines()
        several += len(lines) > 1
        assert ("\x1b[1m" in text) == (bool(lines) and not colour), command
        for line in lines:
            first = line.split("  ")[0]
            assert cells(line) <= max(columns, cells(first)), (command, line)
    assert several >= 5
