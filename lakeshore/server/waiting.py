"""Why a queued call waits, in words, from what the server knows now; what to tell of a call that nobody can run.

One reason is told, the first of: its instant has not come; its queue hands out nothing; nobody serves the queue; who
does cannot run it; the queue's rate is used up; all are busy. It costs a look at the queue, whatever its length.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import trio

from ..plane import queues
from ..wire.run_configs import BadAsk, lacking, needs, needs_of
from ..wire.values import value
from .app import App
from .render import iso
from .workers import capabilities_in

Reason = Literal["delayed", "paused", "archived", "no_worker", "away", "no_match", "no_runner", "rate", "busy", "next"]
Alike = tuple[str, str, str | None]
"""Namespace, queue, and what is asked of a worker: calls that wait for the same."""
MOUNTS = "mounts"
"""The capability of a daemon that activates what `run_config.mounts` names."""
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


def why(app: App, row: Mapping[str, Any], known: dict[Alike, Why] | None = None) -> Why | None:
    """Why a row (as `rows.get` has it) is queued; None for any other. `known` keeps what is the same for calls of a
    queue that ask the same.
    """
    if row["state"] != "queued":
        return None
    if row["delayed"]:
        return Why(reason="delayed", says=f"delayed until {iso(row['due'])}")
    ns, queue = row["ns"], row["queue"]
    key = (ns, queue, _needs(row["run_config"] or {}))
    if known is None:
        return _of_queue(app, *key)
    if key not in known:
        known[key] = _of_queue(app, *key)
    return known[key]


def _needs(config: Mapping[str, Any]) -> str | None:
    try:
        return needs_of(config)
    except BadAsk:  # from before it was checked: such a row asks for nothing
        return None


def _of_queue(app: App, ns: str, queue: str, asked: str | None) -> Why:
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
    if asked is not None:
        unable = tuple(one for id_ in able if (one := _lacks(app, ns, id_, asked)) is not None)
        if len(unable) == len(able):
            says = f"no worker of queue {queue!r} has {_what(asked)}: {_listed(unable)}"
            return Why(reason="no_match" if needs(asked).tags else "no_runner", says=says, workers=unable)
        able = [id_ for id_ in able if id_ not in {one["id"] for one in unable}]
    if kept is not None and kept.rate_limit is not None:
        now = time.time()
        if now < queues.opens_at(dispatcher.rows, ns, queue, now):
            says = f"the rate of queue {queue!r} is limited to {kept.rate_limit:g} calls a second"
            return Why(reason="rate", says=says)
    if not any(parked.session[1] in able for parked in dispatcher.parking.waiting_for(ns, queue)):
        many = f"all {len(able)} workers" if len(able) > 1 else "the one worker"
        fit = "" if asked is None else f" with {_what(asked)}"
        return Why(reason="busy", says=f"{many} of queue {queue!r}{fit} {'are' if len(able) > 1 else 'is'} busy")
    return Why(reason="next", says=f"a worker of queue {queue!r} is about to take it")


def warning(app: App, ns: str, queue: str, asked: str) -> str | None:
    """What to tell at submit of a call that asks this of a worker, when none that the server knows has it."""
    members = app.workers.members(ns, queue)
    ids = {row.id for row in members}
    serving = app.dispatcher.pollers.of(ns, queue, trio.current_time())
    if not members and not serving:
        return None  # nobody yet: whoever comes may have it
    unable = [_lacks(app, ns, id_, asked) for id_ in (*ids, *(id_ for id_ in serving if id_ not in ids))]
    if any(one is None for one in unable):
        return None
    return f"no known worker of queue {queue!r} has {_what(asked)}; it waits until one comes"


def mounts_warning(app: App, ns: str, queue: str, config: Mapping[str, Any]) -> str | None:
    """What to tell at submit of a call that names mounts, when no worker of its queue says that it mounts any."""
    if not config.get("mounts"):
        return None
    if any(capabilities_in(row.info).get(MOUNTS) for row in app.workers.members(ns, queue)):
        return None
    return f"run_config.mounts: no known worker of queue {queue!r} mounts anything; the call runs without its mounts"


def _lacks(app: App, ns: str, worker: str, asked: str) -> Mapping[str, str] | None:
    """What keeps a worker from such a call; None when nothing does."""
    told = lacking(app.workers.offer(ns, worker), asked)
    if told is None:
        return None
    row = app.records.worker(ns, worker)
    return {"id": worker, "label": "" if row is None else row.label, "why": told}


def _what(asked: str) -> str:
    """`the tags a, b and the runner docker`."""
    wanted = needs(asked)
    told = [
        f"the {name}{'s' if len(words) > 1 else ''} {', '.join(map(repr, words))}"
        for name, words in (("tag", wanted.tags), ("runner", wanted.runners))
        if words
    ]
    return " and ".join(told)


def _listed(each: tuple[Mapping[str, str], ...]) -> str:
    told = [f"{one['label'] or one['id'][:12]} ({one['why']})" for one in each[:_NAMED]]
    more = f" and {len(each) - _NAMED} more" if len(each) > _NAMED else ""
    return ", ".join(told) + more
