"""`lakeshore daemon update`, `target-version`, `set-target-version`: which version daemons run, and their queues.

Rules: queues are changed on one named daemon, and nothing else then; a fan-out is confirmed on a terminal and refused
where there is none, unless `--yes`. `ota` is the old name of `update`: it needs `--version` and is not listed.
Reference: nymph/daemon-lifecycle.md, "Pause, unstick, upgrade"; cli/examples/daemons-and-exec.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.workers import Workers

from ..choice import choose
from ..confirming import confirmed
from ..exits import ExitCode
from ..listing import json_option
from ..named import Named
from ..output import plain, print_json, say
from ..server import client_of, connect, namespace_option, server_options
from .named import Found, find, freshest_first, label_of, labelled

F = TypeVar("F", bound=Callable[..., Any])

OF_VERSIONS = {"version": "version", "all": "every", "prefix": "prefix", "url": "file_url", "sha256": "sha256"}


def own_server_options(command: F) -> F:
    """The flags that name a server, where `--url` is a file's address."""
    for option in (
        click.option("--token", metavar="<token>", help="Bearer token (LAKESHORE_CLIENT_TOKEN)."),
        namespace_option,
        click.option("--server", metavar="<url>", help="Control plane (LAKESHORE_URL)."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("id_", metavar="[<id>]", required=False, type=Named("daemons"))
@click.option("--version", metavar="<v>", help="Default: the namespace's target.")
@click.option("--all", "every", is_flag=True, help="Every daemon.")
@click.option("--prefix", metavar="<t>", help="Every daemon whose label begins so.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--url", "file_url", metavar="<u>", help="Install the file behind this address.")
@click.option("--sha256", metavar="<h>", help="The file's checksum (default: what <u>.sha256 says).")
@click.option("--add-queue", multiple=True, metavar="<name>", type=Named("queues"), help="Join it; repeatable.")
@click.option("--remove-queue", multiple=True, metavar="<name>", type=Named("queues"), help="Leave it; repeatable.")
@json_option
@own_server_options
@click.pass_context
def update(ctx: click.Context, /, id_: str | None, **given: Any) -> int:
    """Let daemons install a version, or join and leave queues."""
    if given["add_queue"] or given["remove_queue"]:
        return _membership(ctx, id_, given)
    return _version(ctx, id_, given)


@click.command(hidden=True)
@click.argument("id_", metavar="[<id>]", required=False, type=Named("daemons"))
@click.option("--version", required=True, metavar="<v>")
@click.option("--all", "every", is_flag=True)
@click.option("--prefix", metavar="<t>")
@click.option("--yes", is_flag=True)
@click.option("--url", "file_url", metavar="<u>")
@click.option("--sha256", metavar="<h>")
@json_option
@own_server_options
@click.pass_context
def ota(ctx: click.Context, /, id_: str | None, **given: Any) -> int:
    """The old name of `update`."""
    return _version(ctx, id_, given)


@click.command("target-version")
@json_option
@server_options
@click.pass_context
def target_version(ctx: click.Context, as_json: bool) -> None:
    """Show the version that the namespace's daemons are to run."""
    with connect(ctx) as server:
        answer = Workers(server).target()
        where = server.namespace
    if as_json:
        print_json(answer)
    elif answer.get("version"):
        click.echo(plain(answer["version"]))
    else:
        say(f"no target version in {where!r}; `lakeshore daemon set-target-version <v>` sets one")


@click.command("set-target-version")
@click.argument("version", metavar="[<version>]", required=False)
@click.option("--clear", is_flag=True, help="No target any more.")
@json_option
@server_options
@click.pass_context
def set_target_version(ctx: click.Context, version: str | None, clear: bool, as_json: bool) -> None:
    """Set that version: daemons with `auto_update` converge on it."""
    if (version is None) != clear:
        raise click.UsageError("name a version, or --clear")
    with connect(ctx) as server:
        answer = Workers(server).set_target(version)
        where = server.namespace
    if as_json:
        print_json(answer)
    else:
        click.echo(f"no target version in {where!r} any more" if clear else f"target version in {where!r}: {version}")


def _server(ctx: click.Context, given: dict[str, Any]) -> ApiClient:
    """By the flags of `update`, whose `--url` is that of a file."""
    namespace = given["namespace"] or ctx.find_object(str)
    return client_of(choose(url=given["server"], namespace=namespace, token=given["token"]))


def _membership(ctx: click.Context, id_: str | None, given: dict[str, Any]) -> int:
    also = [f"--{name}" for name, key in OF_VERSIONS.items() if given[key]]
    if id_ is None or also:
        raise click.UsageError(
            f"--add-queue and --remove-queue do not go with {', '.join(also)}"
            if also
            else "--add-queue and --remove-queue are for one daemon: name it"
        )
    add, remove = given["add_queue"], given["remove_queue"]
    with _server(ctx, given) as server:
        workers = Workers(server)
        one = find(workers, id_)
        row = workers.queues(one.id, add=add, remove=remove)
    if given["as_json"]:
        print_json(row)
    else:
        queues = ", ".join(map(str, row.get("queues") or ())) or "— (the default queue)"
        click.echo(f"{plain(one.label)}: queues {plain(queues)}")
    return ExitCode.OK


def _version(ctx: click.Context, id_: str | None, given: dict[str, Any]) -> int:
    prefix: str | None = given["prefix"]
    if sum((id_ is not None, given["every"], prefix is not None)) != 1:
        raise click.UsageError("name one daemon, or several with --prefix, or --all")
    if prefix == "":
        raise click.BadParameter("an empty prefix is every daemon: say --all", param_hint="'--prefix'")
    if given["sha256"] and not given["file_url"]:
        raise click.UsageError("--sha256 is that of the file behind --url: give both")
    done, refused = [], 0
    with _server(ctx, given) as server:
        workers = Workers(server)
        if id_ is not None:
            named = [find(workers, id_)]
        else:
            rows = freshest_first(workers.all() if prefix is None else labelled(workers.all(), prefix))
            if not rows:
                say("no daemons" if prefix is None else f"no daemon's label begins with {prefix!r}")
            what = given["version"] or given["file_url"] or "the namespace's target version"
            names = ", ".join(label_of(row) for row in rows)
            question = f"update {len(rows)} daemon{'' if len(rows) == 1 else 's'} to {what} ({names})?"
            if rows and not confirmed(question, yes=given["yes"]):
                say("nothing was updated")
                return ExitCode.FAILED
            named = [Found(id=str(row["id"]), row=row) for row in rows]
        for one in named:
            try:
                answer = workers.update(one.id, version=given["version"], url=given["file_url"], sha256=given["sha256"])
            except ApiError as error:
                if id_ is not None or error.status in (401, 403):
                    raise
                say(f"error: {one.label}: {error}")
                refused += 1
                continue
            done.append({"id": one.id, **answer})
            if not given["as_json"]:
                version = answer.get("version") or given["version"]
                click.echo(f"queued for {plain(one.label)}: {plain(version or 'the file behind --url')}")
    if given["as_json"]:
        print_json(done)
    return ExitCode.FAILED if refused else ExitCode.OK
