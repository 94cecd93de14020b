"""click groups that know their commands by name only, and that say what was probably meant.

Reference: cli.md ("a usage mistake prints the help of the command you got wrong").
"""

from __future__ import annotations

from typing import Any

import click

from .exits import ExitCode
from .loading import load
from .nearest import meant, or_
from .table import COMMANDS, HIDDEN, NOT_BUILT, Entry, overview

UNCUT = 1000  # characters of a summary


DREAMRC = "lakeshore.dreamrc"
ASKED = "lakeshore.asked"
"""Where a context keeps the client of the server that its command asked last."""


def note_dreamrc(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    """`--dreamrc`, before a command and after it: the later wins."""
    if path is not None:
        ctx.meta[DREAMRC] = path


def dreamrc_of(ctx: click.Context) -> str | None:
    """The file that `--dreamrc` named."""
    found: str | None = ctx.meta.get(DREAMRC)
    return found


def _take_dreamrc(command: click.Command) -> None:
    """Let a command take `--dreamrc`, unless it takes all words as they are."""
    takes_all = command.context_settings.get("ignore_unknown_options", command.ignore_unknown_options)
    if not takes_all and not any("--dreamrc" in param.opts for param in command.params):
        command.params.append(
            click.Option(["--dreamrc"], expose_value=False, hidden=True, callback=note_dreamrc, metavar="<path>")
        )


class Group(click.Group):
    """A group whose unknown commands are answered with the nearest known one. `aliases` are accepted, not listed."""

    def __init__(self, *args: Any, aliases: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = aliases or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click's, but a long summary goes on in the next line where click would cut it."""
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(UNCUT)) for name, command in known if command and not command.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise click.UsageError(f"unknown command '{name}'{self._meant(ctx, name)}", ctx=ctx)
        said, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _take_dreamrc(command)
        return said, command, rest

    def _meant(self, ctx: click.Context, name: str) -> str:
        return meant(name, self.list_commands(ctx))


class LazyGroup(Group):
    """A group that imports a verb when it is called. `verbs`: name -> "module:attribute" of its click command;
    `missing` are documented verbs that this version does not have, `removed` those that no version has any more, and
    what is used instead.
    """

    def __init__(
        self,
        *args: Any,
        verbs: dict[str, str],
        missing: dict[str, Entry] | None = None,
        removed: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.verbs, self.missing, self.removed = verbs, missing or {}, removed or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.verbs})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = self.verbs.get(self.aliases.get(cmd_name, cmd_name))
        if where is None:
            return self._absent(cmd_name) or super().get_command(ctx, cmd_name)
        module, attribute = where.split(":")
        command: click.Command = getattr(load(module), attribute)
        return command

    def _absent(self, name: str) -> click.Command | None:
        if name in self.missing:
            return _not_built(name, self.missing[name])
        if name in self.removed:
            return _refused(name, f"there is no `{self.name} {name}` any more", self.removed[name])
        return None


class Program(Group):
    """The top level: commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *NOT_BUILT]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(self.aliases.get(cmd_name, cmd_name)) or HIDDEN.get(cmd_name)
        if entry is not None:
            command: click.Command = getattr(load(entry.module), entry.attribute)
            return command
        missing = NOT_BUILT.get(cmd_name)
        return None if missing is None else _not_built(cmd_name, missing)

    def get_help(self, ctx: click.Context) -> str:
        return overview()

    def _meant(self, ctx: click.Context, name: str) -> str:
        groups = ((command, self.get_command(ctx, command)) for command in COMMANDS)
        verbs = [
            f"{above} {name}"
            for above, group in groups
            if isinstance(group, click.Group) and name in group.list_commands(ctx)
        ]
        return or_(verbs) or meant(name, COMMANDS) or meant(name, NOT_BUILT, closeness=0.6)


class Refused(click.Command):
    """A command that is known and not there. `waits_for`: what it needs that is not built; none where it is gone."""

    waits_for: str | None = None


def _not_built(name: str, entry: Entry) -> Refused:
    """A documented command that this version does not have: whatever its arguments, it says so and exits 1."""
    command = _refused(name, f"not built yet: {entry.summary}", f"until then, {entry.nearest}")
    command.waits_for = entry.summary
    return command


def _refused(name: str, error: str, hint: str) -> Refused:
    @click.command(
        name,
        cls=Refused,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
        add_help_option=False,
    )
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def command(rest: tuple[str, ...]) -> int:
        click.echo(f"error: {error}", err=True)
        click.echo(f"hint: {hint}", err=True)
        return ExitCode.FAILED

    return command
