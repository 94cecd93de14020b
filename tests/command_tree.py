"""The commands of `lakeshore`, walked, and what is typed to call each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from lakeshore.cli.program import program
from lakeshore.cli.table import COMMANDS

OWN_ARGUMENTS = {"__suggest"}
"""What is not typed by people."""


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command, **program.context_settings) as ctx:
            for name in command.list_commands(ctx):
                found = command.get_command(ctx, name)
                if found is not None and name not in OWN_ARGUMENTS and (path or name in COMMANDS):
                    yield from walk(found, (*path, name))


TREE = {" ".join(path): command for path, command in walk(program, ()) if path}
LEAVES = [name for name, command in TREE.items() if not isinstance(command, click.Group)]


ALONE = {
    "daemon status",
    "daemon stop",
    "daemon install",
    "daemon uninstall",
    "daemon tunnels",
    "nymph tui",
    "code push",
}
"""What asks no server, or another host first, or git."""
GROUPS = (
    *("jobs", "admin", "daemon", "exec", "run", "nymph", "modes"),
    *("queues", "secrets", "schedule"),
    *("tunnels", "mounts", "storage", "code"),
)
TALKS = [name for name in LEAVES if name.split()[0] in GROUPS and name not in ALONE]
WORDS = {
    **dict.fromkeys(
        (
            "NAME",
            "<id>",
            "<id>…",
            "<token-id>",
            "<key-id>",
            "<exec-id>",
            "<name>",
            "<key>",
            "<org>",
            "<daemon>",
            "<command>…",
            "<commit>",
        ),
        "x",
    ),
    **dict.fromkeys(("<script.py>", "<file>"), __file__),
    "<module:function>": "module:function",
    **dict.fromkeys(("<provider>", "<instance-id>"), "x"),
}
MORE = {
    "daemon kill": ["x"],
    "daemon launch": ["--provider", "x"],
    "daemon setup": ["--script", __file__],
    "daemon hibernate": ["--until", "+1h"],
    "daemon update": ["x", "--version", "1"],
    "daemon ota": ["x", "--version", "1"],
    "tunnels add": ["--conf", "[Interface]"],
    "mounts add": ["--kind", "nfs"],
    "mounts update": ["--kwarg", "path=null"],
    "storage add": ["--kind", "s3"],
    "storage update": ["--description", "d"],
    "queues patch": ["--description", "x"],
    "schedule add": ["--every", "5m"],
    "secrets add": ["--kind", "opaque", "--from-file", __file__],
    "secrets rotate": ["--from-file", __file__],
    "modes update": ["--field", "tags=null"],
    "daemon set-target-version": ["1"],
    "exec": ["--queue", "q"],
    "run": ["--queue", "q"],
}
"""What a verb needs besides its required arguments."""
SAYS_WHAT_IT_DOES = {"daemon launch": "launching a daemon through x …\n"}
"""Before it asks, for it may take minutes."""


def parsed(command: str, words: Iterable[str]) -> click.Context:
    """The context of a command whose words are read. With the settings of the program: click remembers what asks for
    help by the first context that ever reads for a command.
    """
    return TREE[command].make_context(command.rpartition(" ")[2], list(words), **program.context_settings)


def as_typed(command: str) -> list[str]:
    ctx = click.Context(TREE[command], **program.context_settings)
    needed = [WORDS[param.make_metavar(ctx)] for param in arguments(command) if param.required]
    yes = ["--yes"] if any("--yes" in param.opts for param in TREE[command].params) else []
    return [*command.split(), *MORE.get(command, []), *needed, *yes]


def arguments(command: str) -> list[click.Argument]:
    return [param for param in TREE[command].params if isinstance(param, click.Argument)]
