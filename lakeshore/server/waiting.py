"""Why a queued call waits, in words, from what the server knows now.

One reason is told, the first of: its instant has not come; its queue hands out nothing; nobody serves the queue; who
does cannot run it; the queue's rate is used up; all are busy. It costs a look at the queue, whatever its length.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Literal

import trio

from ..plane import queues
from ..wire.values import value
from .app import App
from .render import iso

Reason = Literal["delayed", "paused", "archived", "no_worker", "away", "no_runner", "rate", "busy", "next"]
_NAMED = 5
"""So many workers are named one by one."""


@value
class Why:
    """`workers`: what keeps each of those that might run it, where they differ: `{id, label, why}`."""

    reason: Reason
    says: str
    workers: tuple[Mapping[str, str], ...] = ()

    def as_body(self) -> dict[str, Any]:
        """As JSON has it."""
        told: dict[str, Any] = {"reason": self.reason, "message": self.says}
        return {**told, "workers": [dict(one) for one in self.workers]} if self.workers else told


def why(app: App, row: Mapping[str, Any], known: dict[tuple[str, str], Why] | None = None) -> Why | None:
    """Why a row (as `rows.get` has it) is queued; None for any other. `known` keeps what is the same for a queue."""
    if row["state"] != "queued":
        return None
    if row["delayed"]:
        return Why(reason="delayed", says=f"delayed until {iso(row['due'])}")
    ns, queue = row["ns"], row["queue"]
    runner = (row["run_config"] or {}).get("runner")
    if runner is not None or known is None:
        return _of_queue(app, ns, queue, runner)
    if (ns, queue) not in known:
        known[ns, queue] = _of_queue(app, ns, queue, None)
    return known[ns, queue]


def _of_queue(app: App, ns: str, queue: str, runner: Any) -> Why:
    dispatcher = app.dispatcher
    kept = queues.get(dispatcher.rows, ns, queue)
    state = "active" if kept is None else kept.state
    if state == "paused":
        return Why(reason="paused", says=f"queue {queue!r} is paused; `lakeshore queues resume {queue}` lets it go on")
    if state == "archived":
        says = f"queue {queue!r} is archived; `lakeshore queues unarchive {queue}` lets it go on"
        return Why(reason="archived", says=says)
    serving = dispatcher.pollers.of(ns, queue, trio.current_time())
    members = {row.id: row for row in app.workers.members(ns, queue)}
    away = [row for id_, row in members.items() if id_ not in serving or not app.workers.serves(row)]
    able = [id_ for id_ in serving if id_ not in {row.id for row in away}]
    if not able:
        if not away:
            says = (
                f"no worker serves queue {queue!r}; `lakeshore worker start --queue {queue}` starts one here, "
                f"`lakeshore daemon update <daemon> --add-queue {queue}` lets a daemon serve it"
            )
            return Why(reason="no_worker", says=says)
        each = tuple({"id": row.id, "label": row.label, "why": app.workers.shown_state(row)} for row in away)
        return Why(reason="away", says=f"no worker serves queue {queue!r} now: {_listed(each)}", workers=each)
    if isinstance(runner, str):
        unable = tuple(one for id_ in able if (one := _lacks(app, ns, id_, runner)) is not None)
        if len(unable) == len(able):
            says = f"no worker of queue {queue!r} has the runner {runner!r}: {_listed(unable)}"
            return Why(reason="no_runner", says=says, workers=unable)
    if kept is not None and kept.rate_limit is not None:
        now = time.time()
        if now < queues.opens_at(dispatcher.rows, ns, queue, now):
            says = f"the rate of queue {queue!r} is limited to {kept.rate_limit:g} calls a second"
            return Why(reason="rate", says=says)
    if not dispatcher.parking.waiting_for(ns, queue):
        many = f"all {len(able)} workers" if len(able) > 1 else "the one worker"
        return Why(reason="busy", says=f"{many} of queue {queue!r} {'are' if len(able) > 1 else 'is'} busy")
    return Why(reason="next", says=f"a worker of queue {queue!r} is about to take it")


def warning(app: App, ns: str, queue: str, run_config: Mapping[str, Any]) -> str | None:
    """What to tell at submit of a call that no worker that the server knows can ever run."""
    runner = run_config.get("runner")
    if not isinstance(runner, str):
        return None
    members = app.workers.members(ns, queue)
    serving = app.dispatcher.pollers.of(ns, queue, trio.current_time())
    if not members or not all(id_ in {row.id for row in members} for id_ in serving):
        return None  # nobody, or a worker of which it is not known what it can
    unable = tuple(_lacks(app, ns, row.id, runner) for row in members)
    if any(one is None for one in unable):
        return None
    return f"no known worker of queue {queue!r} has the runner {runner!r}; it waits until one comes"


def _lacks(app: App, ns: str, worker: str, runner: str) -> Mapping[str, str] | None:
    """What keeps a worker from a runner; None when it has it, or does not say what it has."""
    row = app.records.worker(ns, worker)
    if row is None:
        return None
    runners = (json.loads(row.info).get("capabilities") or {}).get("runners")
    if not isinstance(runners, list) or not runners or runner in runners:
        return None
    return {"id": row.id, "label": row.label, "why": f"has {', '.join(map(str, runners))}"}


def _listed(each: tuple[Mapping[str, str], ...]) -> str:
    told = [f"{one['label'] or one['id'][:12]} ({one['why']})" for one in each[:_NAMED]]
    more = f" and {len(each) - _NAMED} more" if len(each) > _NAMED else ""
    return ", ".join(told) + more
