"""`lakeshore daemon list|show`: what is registered, and all of one record.

Reference: cli/examples/daemons-and-exec.md; nymph/daemon-lifecycle.md, "Inspect". `list` prints the documented columns;
`--json` is the array of rows as the server has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from lakeshore.client.errors import ApiError
from lakeshore.client.workers import Workers

from ..listing import json_option
from ..named import Named
from ..output import age, ahead, indented, json_text, local_time, moment, plain, say, table_text
from ..server import connect, server_options
from ..watching import shown, watch_option
from .named import Row, find, freshest_first, label_of, machine_of

SAID_TWICE = ("versions", "name")
SETUP_LINES = 5
"""Of the output of a script that failed."""
GIVES = ("tags", "queues", "runners", "machine_id")
COLUMNS = ("label", "state", "runners", "queues", "tags", "version", "seen", "machine_id")


@click.command("list")
@json_option
@watch_option
@server_options
@click.pass_context
def list_(ctx: click.Context, as_json: bool, watch: float | None) -> None:
    """List the daemons of the namespace."""
    with connect(ctx) as server:
        workers = Workers(server)

        def look() -> str:
            rows = freshest_first(workers.all())
            if as_json:
                return json_text(rows)
            head = f"✓ {len(rows)} daemon{'' if len(rows) == 1 else 's'} in {server.namespace!r}:"
            if watch is None:
                say(head if rows else f"no daemons in {server.namespace!r}; `lakeshore daemon install <host>` adds one")
            table = _table(rows) if rows else ""
            return table if watch is None else f"{head}\n{table}"

        shown(look, watch, server, "workers")


@click.command()
@click.argument("id_", metavar="<id>", type=Named("daemons"))
@json_option
@watch_option
@server_options
@click.pass_context
def show(ctx: click.Context, id_: str, as_json: bool, watch: float | None) -> None:
    """Show one daemon: versions, tags, runners, queues, keys, setups, what it runs."""
    with connect(ctx) as server:
        workers = Workers(server)
        worker_id = find(workers, id_).id

        def look() -> str:
            row = workers.show(worker_id)
            if "keys" not in row:
                row = {**row, "keys": _keys(workers, worker_id)}
            return json_text(row) if as_json else "".join(f"{line}\n" for line in describe(row, datetime.now(UTC)))

        shown(look, watch, server, "workers")


def _table(rows: Sequence[Row]) -> str:
    now = datetime.now(UTC)
    cells = [
        (
            label_of(row),
            str(row.get("state") or "—"),
            _joined(row.get("runners")),
            _joined(row.get("queues")),
            _joined(row.get("tags")),
            str(row.get("version") or "—"),
            age(row.get("lastSeenAt"), now),
            machine_of(row) or "—",
        )
        for row in rows
    ]
    return table_text(COLUMNS, cells, right=("seen",), flexible=GIVES, capitals=False)


def _joined(names: Any) -> str:
    return ",".join(map(str, names)) if names else "—"


def _keys(workers: Workers, worker_id: str) -> list[dict[str, Any]]:
    """Its keys; none where this login may not see them."""
    try:
        return workers.keys(worker_id)
    except ApiError as error:
        if error.status in (401, 403):
            return []
        raise


def describe(row: Mapping[str, Any], now: datetime) -> list[str]:
    """The record as lines for a person: facts in a column, then what is nested; a key and a script are a line each."""
    facts, nested = [], []
    width = max((len(key) for key in row), default=0) + 2
    for key, value in row.items():
        if key in SAID_TWICE:
            continue
        if key in ("keys", "setups") and value:
            tell = _key if key == "keys" else _setup
            nested += [f"{key}:", *(f"  {line}" for one in value for line in tell(one, now))]
        elif isinstance(value, dict) or (isinstance(value, list) and any(isinstance(x, dict | list) for x in value)):
            if value:
                nested += [f"{key}:", *indented(value, 1)]
        elif isinstance(value, list):
            facts.append(f"{key:<{width}}{plain(', '.join(map(str, value)) or '—')}")
        elif key.endswith(("At", "Until")) and moment(value) is not None:
            facts.append(f"{key:<{width}}{local_time(value, now)}")
        elif isinstance(value, bool):
            facts.append(f"{key:<{width}}{'yes' if value else 'no'}")
        else:
            facts.append(f"{key:<{width}}{'—' if value in (None, '') else plain(value)}")
    return facts + nested


def _key(key: Mapping[str, Any], now: datetime) -> list[str]:
    return [f"{plain(key.get('keyId'))}  {plain(key.get('status'))}  expires {ahead(key.get('expiresAt'), now)}"]


def _setup(one: Mapping[str, Any], now: datetime) -> list[str]:
    """How a script ended, or that it waits; with the end of what it printed when it failed."""
    line = f"{plain(one.get('name') or one.get('id'))}  {plain(one.get('state'))}"
    if one.get("state") not in ("done", "failed"):
        return [f"{line}  {age(one.get('createdAt'), now)} ago"]
    line += f"  exit {plain(one.get('exitCode'))}  {age(one.get('finishedAt'), now)} ago"
    if one.get("state") == "done":
        return [line]
    why = str(one.get("error") or "").splitlines()
    printed = str(one.get("stderr") or one.get("stdout") or "").splitlines()[-SETUP_LINES:]
    return [line, *(f"  {plain(text)}" for text in (*why, *(text for text in printed if text not in why)) if text)]
