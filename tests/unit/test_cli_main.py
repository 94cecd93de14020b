"""The program's face: help, version, exit codes, what is not built yet, and what none of it may load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakeshore._version import __version__
from lakeshore.cli.exits import ExitCode
from lakeshore.cli.main import main
from lakeshore.cli.started import started_as
from lakeshore.cli.table import ALIASES, COMMANDS, NOT_BUILT

HEAVY = {"click", "rich", "httpx", "trio", "textual", "cattrs", "msgpack", "yaml", "h11", "dataclasses", "inspect"}
DOCUMENTED = """
    providers secrets modes tunnels mounts storage code queues daemon exec run worker jobs up down ps status
    logs ssh aws gcp slurm kube docker auth config admin nymph dreamlake tui dashboard top completion
"""


@pytest.fixture(autouse=True)
def no_saved_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def loaded_by(*arguments: str) -> set[str]:
    program = f"from lakeshore.cli.main import main\nmain({list(arguments)!r})\nimport sys\n"
    program += "print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--version",)])
def test_help_and_version_load_no_argument_parser_nor_anything_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments) & HEAVY == set()


@pytest.mark.inventory("C-008")
@pytest.mark.parametrize("arguments", [("jobs", "--help"), ("worker", "start", "--dry-run"), ("serve", "--help")])
def test_no_command_loads_at_import_what_only_another_needs(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments) & {"rich", "httpx", "trio", "textual", "cattrs", "msgpack", "lakeshore.sdk"} == set()


@pytest.mark.inventory("C-012")
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_answers_help_on_stdout(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert command in capsys.readouterr().out


@pytest.mark.inventory("C-1416", "C-006")
def test_an_installation_is_known_by_its_help_and_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lakeshore {__version__}\n"
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: lakeshore ")


def test_the_overview_is_the_same_with_and_without_click(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    fast = capsys.readouterr().out
    main(["--namespace", "x", "--help"])
    assert capsys.readouterr().out == fast


@pytest.mark.inventory("C-022", "C-013")
def test_an_unknown_command_says_what_was_meant_and_shows_the_help_of_its_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["jobs", "lst"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: unknown command 'lst' (did you mean 'list'?)\n")
    assert "Usage: lakeshore jobs" in said.err


@pytest.mark.parametrize(
    ("verb", "meant"),
    [
        ("kill", "'jobs kill' or 'daemon kill'?)\n"),
        ("list", "'nymph list' or 'jobs list' or 'daemon list' or "),
        ("login", "'auth login'?)\n"),
    ],
)
def test_a_verb_without_its_group_says_where_it_is(verb: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"error: unknown command '{verb}' (did you mean {meant}")


@pytest.mark.inventory("C-1447")
def test_a_name_given_as_an_option_is_told_that_it_stands_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", "add", "--name", "my-aws", "--type", "aws"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith(
        "error: no such option '--name'\nhint: <name> stands by itself: `lakeshore providers add <name>"
    )
    assert main(["providers", "add", "my-aws", "--launcher", "EC2", "--jsno"]) == ExitCode.USAGE
    assert "did you mean '--json'" in capsys.readouterr().err.lower()


@pytest.mark.inventory("C-014", "C-659")
@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "list", "--limit", "0"],
        ["jobs", "list", "--limit", "201"],
        ["jobs", "list", "--state", "done"],
        ["jobs", "show"],
        ["jobs", "retry"],
        ["jobs"],
        ["nonsense"],
        ["worker", "start", "--kill-timeout", "soon"],
        ["worker", "start", "--env", "novalue", "--dry-run"],
        ["--nonsense"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_2_with_talk_on_stderr_only(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err


@pytest.mark.inventory("C-048", "C-014")
def test_without_a_server_it_exits_2_with_the_documented_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list"]) == ExitCode.USAGE
    sentence = "server not configured — run `lakeshore auth login --server <url>` or set LAKESHORE_URL"
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://x", "http://user:hunter2@host", "http://"])
def test_a_malformed_url_is_bad_usage_and_no_password_is_repeated(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list", "--url", url]) == ExitCode.USAGE
    assert "hunter2" not in capsys.readouterr().err


def test_a_url_without_its_scheme_is_one_sentence_of_bad_usage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", "localhost:8080")
    for arguments in (["jobs", "list"], ["worker", "start"], ["worker", "once"]):
        assert main(arguments) == ExitCode.USAGE
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "try http://localhost:8080" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--port", "abc"], "'--port': abc is not a whole number from 0 to 65535\n"),
        (["serve", "--port", "65536"], "'--port': 65536 is not a whole number from 0 to 65535\n"),
        (["jobs", "list", "--offset", "-1"], "'--offset': -1 is not a whole number of 0 or more\n"),
        (["worker", "start", "--kill-timeout", "soon"], "'--kill-timeout': soon is not a number of seconds of 0 or "),
        (["jobs", "bulk-cancel", "--queue", "a/b"], "'--queue': 'a/b' is not allowed: a name is one word of a URL"),
        (["jobs", "bulk-cancel", "--queue", " q"], "'--queue': ' q' is not allowed: use printable characters"),
        (["jobs", "list", "--queue", "gpu-*"], "'--queue': 'gpu-*' is a prefix"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_value_that_cannot_be_is_refused_with_what_can(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"error: invalid value for {said}")


def test_an_unreachable_server_exits_1_and_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list", "--url", "http://127.0.0.1:1"]) == ExitCode.FAILED
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_every_documented_group_exists_or_says_that_it_is_not_built_yet() -> None:
    assert [name for name in DOCUMENTED.split() if name not in {*COMMANDS, *NOT_BUILT, *ALIASES}] == []


@pytest.mark.parametrize("command", sorted(NOT_BUILT))
def test_what_is_not_built_yet_says_so_and_names_what_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["add", "x", "--flag", "-v"]):
        assert main([command, *arguments]) == ExitCode.FAILED
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("error: not built yet: ")
        assert "hint: until then, " in said.err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m lakeshore --help | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_the_program_is_named_as_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(argv: str, *orig: str) -> str:
        monkeypatch.setattr(sys, "argv", [argv, "demo", "--keep"])
        monkeypatch.setattr(sys, "orig_argv", [*orig, "demo", "--keep"])
        return started_as()

    file = tmp_path / "dist" / "lakeshore"
    file.parent.mkdir()
    file.write_text("#!/usr/bin/env python3\n")
    file.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert named("./dist/lakeshore", "python3", "./dist/lakeshore") == "./dist/lakeshore"
    assert named("/x/lakeshore/__main__.py", "python3", "-m", "lakeshore") == "python3 -m lakeshore"
    monkeypatch.setenv("PATH", f"{file.parent}{os.pathsep}{os.environ['PATH']}")
    assert named(str(file), "python3", str(file)) == "lakeshore"
