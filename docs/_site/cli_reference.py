"""reference/cli.md: every command of `lakeshore`, from the tree that click itself runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click

from lakeshore.cli.exits import ExitCode
from lakeshore.cli.program import program
from lakeshore.cli.table import COMMANDS, NOT_BUILT, OPTIONS, Entry

HEAD = """<!-- about: Every command and option of lakeshore. -->

# Command line

Data goes to stdout, talk to stderr. `--json` is there wherever something is read.
`lakeshore <command> --help` prints what stands here.

| exit code | |
| ---: | --- |
{codes}

| for every command | |
| --- | --- |
{options}
"""
MEANINGS = {
    "OK": "done",
    "FAILED": "it did not work; stderr says why and what to do",
    "USAGE": "the command line or the configuration is wrong",
    "INTERRUPTED": "Ctrl-C",
}


def page() -> str:
    """The whole page."""
    codes = "\n".join(f"| {code.value} | {MEANINGS.get(code.name, code.name.lower())} |" for code in ExitCode)
    options = "\n".join(f"| `{name}` | {_cell(said)} |" for name, said in OPTIONS.items())
    lines = [HEAD.format(codes=codes, options=options)]
    for path, command in commands():
        lines += _command(path, command)
    if NOT_BUILT:
        lines.append("## Named, not built yet\n\nThese say so, name the nearest thing that works, and end with 1.\n")
        lines += ["| command | what it will be | until then |", "| --- | --- | --- |"]
        lines += [
            f"| `{name}` | {_cell(entry.summary)} | {_cell(entry.nearest)} |" for name, entry in NOT_BUILT.items()
        ]
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its words, groups before what is in them."""
    for name, entry in COMMANDS.items():
        yield from _below(f"lakeshore {name}", load(entry))


def load(entry: Entry) -> click.Command:
    """The click command that the table names."""
    found = getattr(importlib.import_module(entry.module), entry.attribute)
    assert isinstance(found, click.Command)
    return found


def _below(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if command.hidden:
        return
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command, info_name=path, **program.context_settings) as context:
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None:
                    yield from _below(f"{path} {name}", inner)


def _command(path: str, command: click.Command) -> list[str]:
    depth = "##" if path.count(" ") == 1 else "###"
    context = click.Context(command, info_name=path, **program.context_settings)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"{depth} {path}\n", f"```text\n{usage}\n```\n"]
    if command.help:
        lines.append(
            "\n\n".join(" ".join(part.split()) for part in command.help.replace("\b", "").split("\n\n")) + "\n"
        )
    records = [
        record
        for parameter in command.get_params(context)
        if parameter.name != "help" and (record := parameter.get_help_record(context)) is not None
    ]
    if records:
        lines += ["| option | |", "| --- | --- |"]
        lines += [f"| `{left.replace('|', chr(92) + '|')}` | {_cell(right)} |" for left, right in records]
        lines.append("")
    return lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
