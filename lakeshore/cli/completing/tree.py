"""The commands as completion sees them, read from click: whoever adds a command, an option or an alias adds it here.

Not offered: what is hidden, what is not built, short options (they are understood).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from ..named import Named
from ..table import COMMANDS, NOT_BUILT


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What may stand in one place: `what` is `words` (those), `ask` (names of the kind `words[0]`), `files`, `folders`
    or `any` (free text: nothing is suggested).
    """

    what: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A long option. `flags` are all its spellings, short ones too; `values` is None when it takes none."""

    name: str
    flags: tuple[str, ...]
    summary: str
    values: Values | None
    repeatable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The program, a group or a command. `path` are the words after the program's name; `spellings` are those that lead
    here, aliases included; `places` are its arguments, `rest` one that takes all further words.
    """

    path: tuple[str, ...]
    spellings: tuple[tuple[str, ...], ...]
    commands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    places: tuple[Values, ...]
    rest: Values | None


def nodes(program: click.Group, name: str = "lakeshore") -> Iterator[Node]:
    """The whole tree, parents first."""
    yield from _nodes(program, click.Context(program, info_name=name, **program.context_settings), (), [()])


def _nodes(
    command: click.Command, ctx: click.Context, path: tuple[str, ...], spellings: list[tuple[str, ...]]
) -> Iterator[Node]:
    below: dict[str, click.Command] = {}
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            if not path and name in NOT_BUILT:
                continue
            found = command.get_command(ctx, name)
            if found is not None and not found.hidden:
                below[name] = found
    parameters = command.get_params(ctx)
    arguments = [parameter for parameter in parameters if isinstance(parameter, click.Argument)]
    yield Node(
        path=path,
        spellings=tuple(spellings),
        commands=tuple(
            (name, COMMANDS[name].summary if name in COMMANDS and not path else _line(found.get_short_help_str(72)))
            for name, found in below.items()
        ),
        options=tuple(
            _option(found, name)
            for found in parameters
            if isinstance(found, click.Option) and not found.hidden
            for name in (*found.opts, *found.secondary_opts)
            if name.startswith("--")
        ),
        places=tuple(_values(found.type) for found in arguments if found.nargs != -1),
        rest=next((_values(found.type) for found in arguments if found.nargs == -1), None),
    )
    aliases: dict[str, str] = getattr(command, "aliases", {})
    for name, found in below.items():
        names = [name, *(alias for alias, meant in aliases.items() if meant == name)]
        yield from _nodes(
            found, type(ctx)(found, parent=ctx, info_name=name), (*path, name), [(*path, n) for n in names]
        )


def _option(found: click.Option, name: str) -> Option:
    takes = not (found.is_flag or found.count)
    return Option(
        name=name,
        flags=(*found.opts, *found.secondary_opts),
        summary=_line(found.help or ""),
        values=_values(found.type) if takes else None,
        repeatable=found.multiple or found.count,
    )


def _values(kind: Any) -> Values:
    if isinstance(kind, click.Choice):
        return Values(what="words", words=tuple(str(choice) for choice in kind.choices))
    if isinstance(kind, Named):
        return Values(what="ask", words=(kind.kind,))
    if isinstance(kind, click.Path):
        return Values(what="files" if kind.file_okay else "folders")
    if isinstance(kind, click.File):
        return Values(what="files")
    return Values(what="any")


def _line(text: str) -> str:
    """A summary as one short line that no shell's table can trip over."""
    return " ".join(text.split()).split(". ")[0].removesuffix(".")
