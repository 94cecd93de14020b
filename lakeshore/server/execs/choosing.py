"""Which daemon runs a command: the one that is named, or of a queue's members that serve it now the least busy one.

One that was silent for a minute is not picked; when it is named, the command waits for it. One that is gone or leaves
takes nothing.
Reference: nymph/daemon-lifecycle, "Run something on a daemon"; S-304, S-320, S-322.
"""

from __future__ import annotations

from typing import Final

from ...wire.messages import DEFAULT_QUEUE
from ..app import App
from ..http import HttpError
from ..records import WorkerRow

_LEFT: Final = frozenset({"gone", "draining"})


def pinned(app: App, ns: str, worker: str) -> str:
    """The worker that is named. HttpError 404, 409."""
    row = app.records.worker(ns, worker)
    if row is None:
        raise HttpError(
            404,
            f"no worker {worker!r:.80} in namespace {ns!r}",
            field="worker_id",
            hint="`lakeshore daemon list` shows the ids; one that was killed has none",
        )
    state = app.workers.shown_state(row)
    if state in _LEFT:
        raise HttpError(
            409,
            f"worker {row.label or row.id} is {state}: it takes no commands",
            field="worker_id",
            hint="start its daemon again, or pick another: `lakeshore daemon list`",
            state=state,
        )
    return row.id


def choose(app: App, ns: str, queue: str | None) -> tuple[str, str]:
    """A member of the queue, and the queue. HttpError 404 when it has none, 409 when none of them serves it now."""
    wanted = queue or DEFAULT_QUEUE
    members = app.workers.members(ns, wanted)
    if not members:
        raise HttpError(
            404,
            f"no daemon serves queue {wanted!r:.80}",
            field="queue",
            hint="`lakeshore daemon list` shows who serves what; `lakeshore daemon update <id> --add-queue` adds one",
        )
    there = [row for row in members if app.workers.serves(row)]
    if not there:
        states = ", ".join(f"{row.label or row.id} is {app.workers.shown_state(row)}" for row in members[:5])
        raise HttpError(
            409,
            f"no daemon of queue {wanted!r:.80} takes commands now",
            field="queue",
            hint=f"{states}{' …' if len(members) > 5 else ''}; start one, or name one to have it wait: worker_id",
        )
    return min(there, key=lambda row: (_busy(app, row), row.id)).id, wanted


def _busy(app: App, row: WorkerRow) -> int:
    """How much it has to do: commands that wait or run, and what it holds of queues."""
    return app.execs.open_of(row.ns, row.id) + app.dispatcher.leases.count_of(row.ns, row.id)
