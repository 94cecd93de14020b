"""What is to be done so that a project has what its file declares: a pure function of the file and of what is there.

Rules: a group's daemons are those of its project that are labelled `<group>-<number>`. Of two with one label the one
that lives, then the elder, is meant. One that is gone leaves its place to a new one. Numbers from `count` on are too
many, the highest go first. What was launched otherwise than the file says now is told, and stays. Daemons of the
project in no group of the file are orphans: told, and left alone by `up`.
Reference: get-started/compose.md; admin/happy-paths/12-compose-cluster.md; C-335…C-341, C-353, C-356.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lakeshore.config.compose import Compose, Group, Queue, place_of

from .stamp import changed_since

Row = Mapping[str, Any]
SERVES: Final = frozenset({"active", "hibernating"})
"""States of a daemon that has come up."""
SILENT: Final = frozenset({"gone", "stale", "pending"})
"""States of one that runs nothing that it could be waited for, as far as anybody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A daemon of the project, and its row."""

    id: str
    label: str
    state: str
    row: Row

    @property
    def group(self) -> str | None:
        """The group that its label names; None for a label of another form."""
        place = place_of(self.label)
        return None if place is None else place[0]

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it will come back: it left, or its machine is no more."""
        return self.state == "gone" or (self.row.get("hostStatus") == "terminated" and self.state in SILENT)

    @property
    def held(self) -> int:
        """Jobs that it has in hand."""
        held = self.row.get("inFlight")
        return held if isinstance(held, int) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """A declared queue. `differs`: what the file says otherwise than the queue has, as (declared, there)."""

    queue: Queue
    exists: bool
    differs: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A declared group: who stays, which labels are launched, in whose place (`gone`), who is too many, and what of
    those who stay is not as the file says, by their labels.
    """

    group: Group
    stays: Sequence[Member]
    launch: Sequence[str]
    gone: Sequence[Member]
    surplus: Sequence[Member]
    changed: Mapping[str, Sequence[str]]

    @property
    def before(self) -> int:
        """How many there are now."""
        return len(self.stays) + sum(not one.is_gone for one in self.surplus)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do."""
        return not self.launch and not self.surplus and not self.gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """For the groups that were asked for; `orphans` are of the whole project."""

    compose: Compose
    queues: Sequence[QueuePlan]
    groups: Sequence[GroupPlan]
    orphans: Sequence[Member]

    @property
    def is_done(self) -> bool:
        """Whether all that is declared is there, and nothing else of its groups."""
        return all(one.exists for one in self.queues) and all(one.is_done for one in self.groups)

    @property
    def in_sync(self) -> bool:
        """Whether there is also no difference that only a person can decide about."""
        differs = any(one.differs for one in self.queues) or any(one.changed for one in self.groups)
        return self.is_done and not differs and not self.orphans


def planned(compose: Compose, queues: Iterable[Row], workers: Iterable[Row], *, only: str | None = None) -> Plan:
    """The plan, of all groups or of one. `queues` are rows of the namespace, `workers` those of the project.

    With `only`, the queues are those that its daemons serve. KeyError for a group that is not declared.
    """
    named = {str(row["name"]): row for row in queues}
    groups = {group.name: group for group in compose.groups}
    asked = list(groups.values()) if only is None else [groups[only]]
    found = members(workers)
    wanted = {name for group in asked for name in group.queues}
    return Plan(
        compose=compose,
        queues=[
            _queue(queue, named.get(queue.name)) for queue in compose.queues if only is None or queue.name in wanted
        ],
        groups=[_group(group, [one for one in found if one.group == group.name]) for group in asked],
        orphans=[one for one in found if one.group not in groups],
    )


def members(rows: Iterable[Row]) -> list[Member]:
    """Rows of a project as its members, by group and number."""
    made = [
        Member(id=str(row["id"]), label=str(row.get("label") or row["id"]), state=str(row.get("state")), row=row)
        for row in rows
    ]
    return sorted(made, key=order)


def order(one: Member) -> tuple[str, int, str]:
    """By group and number."""
    name, number = place_of(one.label) or (one.label, -1)
    return name, number, one.id


def _group(group: Group, found: Sequence[Member]) -> GroupPlan:
    stays: dict[str, Member] = {}
    gone, surplus = [], []
    for one in sorted(found, key=lambda one: (one.is_gone, str(one.row.get("createdAt")), one.id)):
        if _number(one) >= group.count or one.label in stays:
            surplus.append(one)
        elif one.is_gone:
            gone.append(one)
        else:
            stays[one.label] = one
    return GroupPlan(
        group=group,
        stays=sorted(stays.values(), key=order),
        launch=[label for label in group.labels if label not in stays],
        gone=gone,
        surplus=sorted(surplus, key=order, reverse=True),
        changed={label: changed for label, one in stays.items() if (changed := _changed(one, group))},
    )


def _changed(one: Member, group: Group) -> list[str]:
    serves = one.row.get("queues")
    moved = ["queues"] if isinstance(serves, list) and set(serves) != set(group.queues) else []
    return moved + changed_since(one.row.get("tags") or (), group)


def _queue(queue: Queue, row: Row | None) -> QueuePlan:
    if row is None:
        return QueuePlan(queue=queue, exists=False)
    pairs = ((name, said, row.get(name)) for name, said in queue.settings.items())
    return QueuePlan(queue=queue, exists=True, differs={n: (said, there) for n, said, there in pairs if said != there})


def _number(one: Member) -> int:
    place = place_of(one.label)
    return -1 if place is None else place[1]
