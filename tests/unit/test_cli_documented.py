"""Every documented command line and every documented flag is one of ours: parsed with the tree of commands, not run.

They are read from the contract's inventory beside the checkout. What is not built is named in WAITING, which may
only become shorter.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from lakeshore.cli.groups import Refused
from lakeshore.cli.main import main
from lakeshore.cli.program import program
from lakeshore.cli.table import COMMANDS, NOT_BUILT

ROOT = Path(__file__).resolve().parents[2]
INVENTORY = ROOT.parent / "shared" / "inventory" / "cli.md"
LINES, FLAGS = "Every documented command line", "Flag and positional table"

WAITING = {"dreamlake"}
"""Commands that are documented and not built, as `group.verb`; each says itself what it waits for."""
_ROW = re.compile(r"\| (C-\d+) \| (.*?) \| [^|]*\|$")
_SYNOPSIS = re.compile(r"\[([^\]]*)\]")


def section(title: str) -> list[tuple[str, str]]:
    """The rows below a heading: `(id, fact)`. None where the contract is not beside the checkout."""
    if not INVENTORY.exists():
        return []
    rows, inside = [], False
    for line in INVENTORY.read_text().splitlines():
        if line.startswith("## "):
            inside = line.startswith(f"## {title}")
        elif inside and (found := _ROW.match(line.replace("\\|", "\0"))):
            rows.append((found[1], found[2].replace("\0", "|")))
    return rows


def cases(title: str) -> list[Any]:
    rows = [pytest.param(row, fact, id=row, marks=pytest.mark.inventory(row)) for row, fact in section(title)]
    absent = pytest.mark.skip(reason="the contract's inventory (../shared/inventory/cli.md) is not here")
    return rows or [pytest.param("", "", id="none", marks=absent)]


# --- a line of a page, as the words after `lakeshore`


def words(fact: str) -> list[str]:
    """The words of the first command of ours in what a page prints; a placeholder stands for what it says."""
    code = fact[1 : fact.index("`", 1)] if fact.count("`") % 2 == 0 and "`gpu`" not in fact else fact.split("`")[1]
    if "(synopsis)" in fact:
        code = code.replace("--kind <kind>", "--kind nfs")
        code = _SYNOPSIS.sub(r"\1", code).replace(" ...", "")
    if "(multi-line on the page)" in fact:
        code = code.partition("--conf ")[0] + "--conf '[Interface]'"
    start = re.search(r"(?:^|[\s(;])(?:\./)?(lakeshore|nymph)(?=\s|$)", code)
    assert start, f"no command of ours: {code}"
    inner = code[start.start(1) :]
    if "$(" in code[: start.start(1)]:
        inner = inner[: _closing(inner)]
    inner = re.sub(r"<([^<>\s]*)>", lambda found: found[1].split("|")[0] or "x", inner)
    lexer = shlex.shlex(inner, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    found = []
    for word in lexer:
        if word and set(word) <= set("|&;>"):
            break
        found.append(word)
    return found[1:] if found[0] == "lakeshore" else found


def _closing(text: str) -> int:
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return at
    return len(text)


def parsed(arguments: list[str]) -> click.Context:
    """The context of the command that the words name, its arguments read. Usage errors as click has them."""
    context = program.make_context("lakeshore", list(arguments))
    while isinstance(context.command, click.Group) and (context._protected_args or context.args):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        if isinstance(command, Refused):
            pytest.skip(f"waits for {command.waits_for}")
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.fixture(autouse=True)
def any_file_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A path of a page is no file of this machine, and none of this machine's variables is the page's."""
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, _param, _ctx: value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith(("LAKESHORE_", "DREAMLAKE_"))]:
        monkeypatch.delenv(name)


def _elsewhere(fact: str) -> bool:
    """What is no command of `lakeshore`: a script of ours, a module of the SDK, a Tab that is pressed."""
    if "smoke-exec.sh" in fact:
        script = ROOT / "scripts" / "smoke-exec.sh"
        text = script.read_text()
        assert os.access(script, os.X_OK)
        assert all(name in text for name in re.findall(r"\b(LAKESHORE_\w+|LK)=", fact))
        return True
    if "python -m dreamlake.lakeshore.daemon" in fact:
        from lakeshore.sdk.entry.worker import read_settings

        said = shlex.split(fact.split("`")[1])[3:]
        settings = read_settings([".." if word == "/data" else word for word in said])
        assert settings.queue == said[said.index("--queue") + 1]
        assert settings.once == ("--once" in said)
        return True
    if "__suggest" in fact:
        return main(["completion", "__suggest", "queues"]) == 0
    if "TAB completion" in fact:
        said = words(fact)
        command = _command([word for word in said if not word.startswith("-")])
        assert {word for word in said if word.startswith("-")} <= _options(command)
        return True
    return False


@pytest.mark.parametrize(("row", "fact"), cases(LINES))
def test_a_documented_line_parses_as_it_is_printed(row: str, fact: str, capsys: pytest.CaptureFixture[str]) -> None:
    if _elsewhere(fact):
        return
    said = words(fact)
    if said in ([], ["--help"]):
        assert main(said) == 0
        assert "Usage: lakeshore" in capsys.readouterr().out
        return
    context = parsed(said)
    assert not isinstance(context.command, click.Group) or context.command.invoke_without_command
    given = {word.partition("=")[0] for word in said if word.startswith("--")}
    assert given <= _options(context.command) | _passed_on(context), "a flag was taken for something else"


def _options(command: click.Command) -> set[str]:
    return {spelt for param in command.params for spelt in (*param.opts, *param.secondary_opts)}


def _passed_on(context: click.Context) -> set[str]:
    """What goes to another program as it is."""
    return {str(word) for value in context.params.values() if isinstance(value, tuple) for word in value}


# --- a flag of a verb


def _command(path: list[str]) -> click.Command:
    command: click.Command = program
    context = click.Context(program, info_name="lakeshore")
    for name in path:
        assert isinstance(command, click.Group), f"{path}: no such verb"
        _, found, _ = command.resolve_command(context, [name])
        assert found is not None
        if isinstance(found, Refused):
            pytest.skip(f"waits for {found.waits_for}")
        command, context = found, click.Context(found, info_name=name, parent=context)
    return command


def _verbs(spelt: str) -> Iterator[list[str]]:
    """`worker start|once` and `aws|gcp discover`, one by one."""
    parts = [word.split("|") for word in spelt.split()]
    found: list[list[str]] = [[]]
    for choices in parts:
        found = [[*path, choice] for path in found for choice in choices]
    yield from found


@pytest.mark.parametrize(("row", "fact"), cases(FLAGS))
def test_a_documented_flag_is_taken_by_its_verb(row: str, fact: str) -> None:
    verbs, _, said = fact.partition("`: `")
    flag, _, rest = said.rpartition("`") if " — " not in said else said.partition("` — ")
    for path in _verbs(verbs.strip("`")):
        command = _command(path)
        by_name = {spelt: param for param in command.params for spelt in (*param.opts, *param.secondary_opts)}
        positional = [param for param in command.params if isinstance(param, click.Argument)]
        named = (
            []
            if "literal" in flag or "optional with" in flag or "any other" in flag
            else re.findall(r"--[a-z0-9][a-z0-9-]*", flag)
        )
        for name in named:
            assert name in by_name, f"lakeshore {' '.join(path)} does not take {name}"
        if "positional" in flag and " on show/remove" not in flag:
            assert len(positional) >= 1 + flag.count("> <"), f"lakeshore {' '.join(path)} takes no word"
            if isinstance(positional[0].type, click.Choice):
                assert set(flag.rpartition(": ")[2].split("|")) <= set(positional[0].type.choices)
        if "any other" in flag:
            assert parsed([*path, "a", "--kind", "s3", "--colour", "blue"]).command is command
        if not named:
            continue
        option = by_name[named[0]]
        if "repeatable" in flag:
            assert option.multiple
        if "(required)" in flag:
            assert option.required
        choices = re.search(r" ([A-Za-z0-9-]+(?:\|[A-Za-z0-9-]+)+)$", flag)
        if choices and isinstance(option.type, click.Choice):
            assert set(choices[1].split("|")) <= set(option.type.choices)
        default = re.search(r"default (-?\d+|fifo|all|process|workers|default)\b", rest)
        usual = option.get_default(click.Context(command))
        if default and isinstance(usual, int | float | str):
            assert str(usual).removesuffix(".0") == default[1]


def test_what_waits_to_be_built_becomes_less() -> None:
    context = click.Context(program)
    waiting = set(NOT_BUILT)
    for name, entry in COMMANDS.items():
        group = program.get_command(context, name)
        assert entry.module
        for verb in getattr(group, "missing", ()):
            waiting.add(f"{name}.{verb}")
    assert waiting <= WAITING
    assert not waiting & set(COMMANDS)
