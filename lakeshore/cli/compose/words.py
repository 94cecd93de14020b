"""How plans and what came of them are told to people.

Reference: admin/happy-paths/12-compose-cluster.md; C-354…C-358.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..output import plain
from .plan import GroupPlan, Member, Plan, QueuePlan


def plan_lines(plan: Plan) -> Iterator[str]:
    """What `up` would do, and what it would leave as it is."""
    yield f"Plan for project '{plan.compose.project}':"
    for queue in plan.queues:
        yield f"  queue {queue.queue.name}  ({'already present' if queue.exists else 'would create'})"
    for group in plan.groups:
        yield _group_line(group)
    yield from drift_lines(plan)


def unchanged_lines(plan: Plan) -> Iterator[str]:
    """Of what was asked for, that which was there already."""
    for queue in plan.queues:
        if queue.exists:
            yield f"  queue {queue.queue.name}  (already present)"
    for group in plan.groups:
        if group.is_done:
            yield _group_line(group)


def drift_lines(plan: Plan) -> Iterator[str]:
    """What is otherwise than the file says, and is a person's to decide."""
    for queue in plan.queues:
        for name, (said, there) in queue.differs.items():
            yield f"  ~ queue {queue.queue.name}  {name} is {_json(there)}, the file says {_json(said)}"
    for group in plan.groups:
        for one in group.stays:
            fields = group.changed.get(one.label, ())
            if "queues" in fields:
                serves = listed(map(str, one.row.get("queues") or ())) or "none by name"
                yield f"  ~ daemon {one.label}  serves {serves}, the file says {listed(group.group.queues)}"
            if others := [name for name in fields if name != "queues"]:
                yield f"  ~ daemon {one.label}  was launched with another {', '.join(others)}"
    for one in plan.orphans:
        yield f"  ? daemon {plain(one.label)}  is of this project, and of no group of the file"


def advice(plan: Plan) -> Iterator[str]:
    """What to type about that."""
    if changed := [label for group in plan.groups for label in group.changed]:
        yield f"a daemon stays as it was launched; for a new one: `lakeshore daemon kill {changed[0]}`, `lakeshore up`"
    if differs := [queue for queue in plan.queues if queue.differs]:
        yield f"a queue stays as it is; `lakeshore queues patch {differs[0].queue.name}` changes it"
    if plan.orphans:
        yield f"`lakeshore daemon kill {plain(plan.orphans[0].label)}` ends one of no group; `lakeshore down` all"


def who(one: Member) -> str:
    """A daemon that is told of."""
    return f"{plain(one.label)} ({one.id})"


def failure_line(what: str, why: Exception) -> str:
    """What was not done, why, and what to do about it."""
    hint = getattr(why, "hint", None)
    return f"  ! {plain(what)}: {plain(why)}{f'; {plain(hint)}' if hint else ''}"


def listed(names: Iterable[str]) -> str:
    """Names in a line."""
    return ", ".join(plain(name) for name in names)


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan for programs."""
    return {
        "project": plan.compose.project,
        "inSync": plan.in_sync,
        "queues": [queue_json(queue) for queue in plan.queues],
        "groups": [group_json(group) for group in plan.groups],
        "orphans": [member_json(one) for one in plan.orphans],
    }


def queue_json(queue: QueuePlan) -> dict[str, Any]:
    """A declared queue for programs."""
    differs = {name: {"declared": said, "actual": there} for name, (said, there) in queue.differs.items()}
    return {"name": queue.queue.name, "state": "present" if queue.exists else "missing", "differs": differs}


def group_json(group: GroupPlan) -> dict[str, Any]:
    """A declared group for programs."""
    return {
        "name": group.group.name,
        "desired": group.group.count,
        "actual": group.before,
        "daemons": members_json(group.stays),
        "missing": list(group.launch),
        "surplus": members_json(group.surplus),
        "gone": members_json(group.gone),
        "changed": {label: list(fields) for label, fields in group.changed.items()},
    }


def members_json(found: Iterable[Member]) -> list[dict[str, Any]]:
    """Some daemons for programs."""
    return [member_json(one) for one in found]


def member_json(one: Member) -> dict[str, Any]:
    """A daemon for programs; all of its row is what `ps --json` has."""
    return {"label": one.label, "id": one.id, "state": one.state}


def _group_line(group: GroupPlan) -> str:
    steps = []
    if group.launch:
        steps.append(f"would launch: {listed(group.launch)}")
    if group.gone:
        steps.append(f"gone: {listed(one.label for one in group.gone)}")
    if group.surplus:
        steps.append(f"would remove: {listed(one.label for one in group.surplus)}")
    count = group.group.count
    return f"  daemons {group.group.name}  {group.before} → {count}  ({'; '.join(steps) or 'no change'})"


def _json(value: Any) -> str:
    return plain(json.dumps(value, ensure_ascii=False))


def counted(counts: Sequence[tuple[int, str]], *, always: int = 0) -> str:
    """`2 daemon(s) launched, 1 queue(s) created`: the first `always` of them also when they are none."""
    return ", ".join(f"{count} {what}" for at, (count, what) in enumerate(counts) if count or at < always)
