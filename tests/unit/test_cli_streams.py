"""Standard streams that are closed, full or of another encoding: no traceback, and the exit code of the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ODD = "ä€ — 数据 🎉 \ud800"
PRINTS = f"""
import sys
from lakeshore.cli import main as m
from lakeshore.cli.output import print_json, print_table, say
def run(arguments):
    if arguments == ["json"]:
        print_json({{"odd": {ODD!a}}})
    elif arguments == ["table"]:
        print_table(("id", "name"), [("1", {ODD!a})], flexible="name")
        say({ODD!a})
    else:
        print_json(list(range(10**6)))
    return 0
m._run = run
sys.exit(m.main(sys.argv[1:]))
"""


def lakeshore(*arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return started([sys.executable, "-m", "lakeshore", *arguments], env)


def started(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    home = {"XDG_CONFIG_HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, check=False, capture_output=True, env={**os.environ, **home, **env}, cwd=ROOT)


def shell(script: str) -> subprocess.CompletedProcess[bytes]:
    return started(["bash", "-c", f'lakeshore() {{ "{sys.executable}" -m lakeshore "$@"; }}; {script}'], {})


LOCALES = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "ascii, strict": {"PYTHONIOENCODING": "ascii:strict"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "the C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "UTF-8": {"PYTHONIOENCODING": "utf-8"},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_whatever_the_terminal_can_show_commands_answer(locale: str) -> None:
    for arguments, code in ((["--help"], 0), (["jobs", "list", "--help"], 0), (["jobs", "list"], 2), (["up"], 2)):
        done = lakeshore(*arguments, **LOCALES[locale])
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
    assert b"Usage: lakeshore [options] <command>" in lakeshore("--help", **LOCALES[locale]).stdout


@pytest.mark.parametrize("locale", LOCALES)
def test_json_is_the_same_in_every_encoding(locale: str) -> None:
    done = started([sys.executable, "-c", PRINTS, "json"], LOCALES[locale])
    assert (done.returncode, done.stderr) == (0, b"")
    encoding = "utf-8" if locale == "UTF-8" else "ascii"
    assert json.loads(done.stdout.decode(encoding)) == {"odd": ODD}


@pytest.mark.parametrize("locale", LOCALES)
def test_text_of_others_is_shown_as_near_as_can_be(locale: str) -> None:
    done = started([sys.executable, "-c", PRINTS, "table"], LOCALES[locale])
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    if locale == "latin-1":
        assert done.stdout.decode("latin-1").split("\n")[1] == r"1   ä\u20ac - \u6570\u636e \U0001f389 \ud800"


def test_a_full_disk_under_the_output_is_an_error_that_says_so() -> None:
    for command in ("--help", "jobs --help", "--version"):
        done = shell(f"lakeshore {command} > /dev/full")
        assert (done.returncode, done.stderr) == (1, b"error: cannot write the output: No space left on device\n")


def test_closed_streams_are_no_error() -> None:
    assert (shell("lakeshore --help >&-").returncode, shell("lakeshore jobs --help >&-").stderr) == (0, b"")
    done = shell("lakeshore jobs list 2>&-")
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_reader_that_has_seen_enough_of_much_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(PRINTS)
    script = f"{sys.executable} {tmp_path}/prints.py much | head -n 2; exit ${{PIPESTATUS[0]}}"
    done = started(["bash", "-c", script], {})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[\n  0,\n", b"")
