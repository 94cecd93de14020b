"""Where `exec` and `run` run: the daemon that was named, or the one that is picked on the terminal, freshest first."""

from __future__ import annotations

from datetime import UTC, datetime

from lakeshore.client.workers import Workers

from ..confirming import somebody_is_there
from ..daemon.named import Row, find, freshest_first, label_of, machine_of
from ..exits import ExitCode
from ..failures import Failure
from ..output import age

AWAY = ("gone", "draining")
TAGS = 5
"""The column of tags in a line."""


def target_of(workers: Workers, named: str | None, *, instead: str) -> str:
    """The worker id. Failure when nothing is named and nobody can be asked; `instead` are the flags to use there."""
    if named is not None:
        return find(workers, named).id
    if not somebody_is_there():
        raise Failure("nobody can pick a daemon here", hint=f"name where it is to run: {instead}", code=ExitCode.USAGE)
    rows = [row for row in freshest_first(workers.all()) if row.get("state") not in AWAY]
    if not rows:
        raise Failure("no live daemon in this namespace", hint="`lakeshore daemon install <ssh-host>` adds one")
    from ..picker import pick  # wall: only who picks pays for it

    now = datetime.now(UTC)
    chosen = pick("Run it on", [_line(row, now) for row in rows], tags=TAGS, more=[_more(row) for row in rows])
    if chosen is None:
        raise Failure("nothing was picked", code=ExitCode.INTERRUPTED)
    return str(rows[chosen]["id"])


def _line(row: Row, now: datetime) -> tuple[str, ...]:
    named = (",".join(map(str, row.get(name) or ())) for name in ("runners", "queues", "tags"))
    return (
        label_of(row),
        str(row.get("state")),
        f"seen {age(row.get('lastSeenAt'), now)} ago",
        *named,
        str(row.get("version") or ""),
        machine_of(row),
    )


def _more(row: Row) -> list[str]:
    """What else is known of it, a line each."""
    known = {
        "id": row.get("id"),
        "machine": machine_of(row),
        "provider": row.get("providerName"),
        "tags": ", ".join(map(str, row.get("tags") or ())),
        "last seen": row.get("lastSeenAt"),
    }
    return [f"{name}: {value}" for name, value in known.items() if value]
