"""Which daemon runs a command: the one that is named, or of a queue's members that are alive the least busy one.

Which queues a daemon serves, and whether it is there, says `workers.py`. One that is not there is not picked; when it
is named, the command waits for it.
Reference: nymph/daemon-lifecycle, "Run something on a daemon"; S-304, S-320, S-322.
"""

from __future__ import annotations

from ...wire.messages import DEFAULT_QUEUE
from ..app import App
from ..http import HttpError
from ..records import WorkerRow


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
    return row.id


def choose(app: App, ns: str, queue: str | None) -> tuple[str, str]:
    """A member of the queue, and the queue. HttpError 404 when it has none, 409 when none of them is alive."""
    wanted = queue or DEFAULT_QUEUE
    members = app.workers.members(ns, wanted)
    if not members:
        raise HttpError(
            404,
            f"no daemon serves queue {wanted!r:.80}",
            field="queue",
            hint="`lakeshore daemon list` shows who serves what; `lakeshore daemon update <id> --add-queue` adds one",
        )
    alive = [row for row in members if app.workers.serves(row)]
    if not alive:
        raise HttpError(
            409,
            f"no daemon of queue {wanted!r:.80} is alive",
            field="queue",
            hint=f"{len(members)} serve it, and all have been silent for a minute; name one to have it wait: worker_id",
        )
    return min(alive, key=lambda row: (_busy(app, row), row.id)).id, wanted


def _busy(app: App, row: WorkerRow) -> int:
    """How much it has to do: commands that wait or run, and what it holds of queues."""
    return app.execs.open_of(row.ns, row.id) + app.dispatcher.leases.count_of(row.ns, row.id)
