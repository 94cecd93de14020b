"""The four tabs as data: their columns, what their rows fall back to, and their actions.

Pure: from a row of the API to texts. A field that is missing or of another kind is an empty one.
Reference: cli/tui.md, "The four panes"; C-396…C-403.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lakeshore.client.times import age, moment

from ..theme import drawable
from . import actions
from .actions import Action, call_state, worker_state
from .columns import NONE, Column, Row
from .items import Item

_SHORT: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """`ident` tells a row from the others, `label` is what people call it; `keeps` are the fields that are
    kept of a row (empty: all). `fullest` are the keys of a row that offers most. `empty`: what is said where there is
    none.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    actions: tuple[Action, ...]
    fullest: str
    ident: Callable[[Row], str]
    label: Callable[[Row], str]
    empty: str
    keeps: tuple[str, ...] = ()

    def item(self, row: Row, *, seq: int | None = None) -> Item:
        """That row, as the screen keeps it."""
        kept = {key: _kept(row[key]) for key in self.keeps if key in row} if self.keeps else dict(row)
        now = datetime.now(UTC)
        said = "\0".join(column.cell(kept, now) for column in self.columns if column.right is False)
        return Item(
            id=self.ident(kept),
            name=self.label(kept),
            row=kept,
            said=f"{self.ident(kept)}\0{said}".lower(),
            seq=seq,
        )

    @property
    def places(self) -> dict[str, int]:
        """By title in lower case: where a column stands in what is `said`. What changes by itself does not."""
        told = [column.title.lower() for column in self.columns if not column.right]
        return {title: at for at, title in enumerate(told, start=1)}

    def cells(self, item: Item, now: datetime) -> tuple[str, ...]:
        """What its columns show."""
        return tuple(column.cell(item.row, now) for column in self.columns)


def _kept(value: Any) -> Any:
    """States and names of queues come thousands of times: once in memory."""
    return sys.intern(value) if type(value) is str and len(value) < 64 else value


def text(value: Any) -> str:
    """On one line, and `—` for nothing."""
    return drawable(str(value)) if value not in (None, "", [], {}) else NONE


def joined(names: Any) -> str:
    """`a,b`"""
    return (
        text(",".join(map(str, names))) if isinstance(names, Sequence) and not isinstance(names, str) else text(names)
    )


def _inner(row: Row, *path: str) -> Any:
    value: Any = row
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _field(name: str) -> Callable[[Row, datetime], str]:
    return lambda row, _now: text(row.get(name))


def _words(name: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(name) or "").lower()


def _ago(name: str) -> Callable[[Row, datetime], str]:
    return lambda row, now: age(row.get(name), now)


def _since(name: str) -> Callable[[Row], float]:
    """The freshest first."""

    def by(row: Row) -> float:
        at = moment(row.get(name))
        return -at.timestamp() if at is not None else 0.0

    return by


def _number(name: str) -> Callable[[Row], float]:
    return lambda row: value if isinstance(value := row.get(name), int | float) else -1


def worker_label(row: Row) -> str:
    """Its label; else the beginning of its machine's id."""
    return text(row.get("label") or str(row.get("machineId") or row.get("id") or "")[:_SHORT])


def _full_name(row: Row) -> str:
    return text("/".join(str(row[part]) for part in ("namespace", "name") if row.get(part)))


def storage_target(row: Row) -> str:
    """`s3://bucket/prefix`, of whatever fields tell the bucket."""
    at = ("config",) if isinstance(row.get("config"), Mapping) else ()
    bucket, prefix = _inner(row, *at, "bucket"), _inner(row, *at, "prefix")
    if not bucket:
        return text(row.get("target"))
    return text(f"s3://{bucket}/{str(prefix or '').lstrip('/')}".rstrip("/"))


def _elasticity(row: Row) -> str:
    rule = row.get("elasticity")
    return text(rule.get("kind") if isinstance(rule, Mapping) else rule)


def _version(row: Row) -> str:
    return text(_inner(row, "capabilities", "versions", "daemon"))


WORKERS: Final = Tab(
    name="workers",
    title="Workers",
    columns=(
        Column(
            title="LABEL",
            cell=lambda row, _: worker_label(row),
            by=lambda r: worker_label(r).lower(),
            least=12,
            most=32,
        ),
        Column(
            title="STATE", cell=lambda row, _: text(worker_state(row)), by=worker_state, least=11, most=11, state=True
        ),
        Column(
            title="RUNNERS",
            cell=lambda row, _: joined(row.get("runners")),
            by=lambda r: joined(r.get("runners")),
            least=7,
            most=24,
        ),
        Column(
            title="QUEUES",
            cell=lambda row, _: joined(row.get("queues")),
            by=lambda r: joined(r.get("queues")),
            least=9,
            most=32,
        ),
        Column(title="VER", cell=lambda row, _: _version(row), by=_version, least=5, most=12),
        Column(title="SEEN", cell=_ago("lastSeenAt"), by=_since("lastSeenAt"), least=5, most=5, right=True),
    ),
    actions=actions.WORKERS,
    fullest="kthe",
    ident=lambda row: str(row.get("id")),
    label=worker_label,
    empty="no daemons: `lakeshore daemon install <host>` puts one onto a host, `lakeshore nymph` runs one here; "
    "the processes of `lakeshore worker start` are with their queues",
)

QUEUES: Final = Tab(
    name="queues",
    title="Queues",
    columns=(
        Column(title="NAME", cell=_field("name"), by=_words("name"), least=14, most=36),
        Column(title="KIND", cell=_field("kind"), by=_words("kind"), least=8, most=10),
        Column(title="STATE", cell=_field("state"), by=_words("state"), least=8, most=8, state=True),
        Column(
            title="MEMBERS",
            cell=lambda row, _: text(row.get("memberCount")),
            by=_number("memberCount"),
            least=7,
            most=7,
            right=True,
        ),
        Column(title="PROVIDER", cell=_field("providerRef"), by=_words("providerRef"), least=8, most=20),
        Column(title="ELASTICITY", cell=lambda row, _: _elasticity(row), by=_elasticity, least=10, most=20),
    ),
    actions=actions.QUEUES,
    fullest="aur",
    ident=_full_name,
    label=lambda row: text(row.get("name")),
    empty="no queues: the first submit to one makes it, and so does `lakeshore queues add <name>`",
)

INVOCATIONS: Final = Tab(
    name="invocations",
    title="Invocations",
    columns=(
        Column(title="ID", cell=_field("id"), by=_words("id"), least=14, most=26, end=True),
        Column(title="STATE", cell=lambda row, _: text(call_state(row)), by=call_state, least=10, most=10, state=True),
        Column(title="WORKER", cell=_field("worker"), by=_words("worker"), least=12, most=32, end=True),
        Column(title="QUEUE", cell=_field("queue"), by=_words("queue"), least=10, most=32),
        Column(title="ATT", cell=_field("attempt"), by=_number("attempt"), least=3, most=3, right=True),
        Column(title="SUBMIT", cell=_ago("submittedAt"), by=_since("submittedAt"), least=6, most=6, right=True),
    ),
    actions=actions.INVOCATIONS,
    fullest="kc",
    ident=lambda row: str(row.get("id")),
    label=lambda row: text(row.get("id")),
    empty="no invocations: the calls of this namespace are here once a program submits some",
    keeps=("id", "state", "cancelling", "worker", "workerId", "queue", "attempt", "submittedAt", "functionQualname"),
)

STORAGE: Final = Tab(
    name="storage",
    title="Storage",
    columns=(
        Column(
            title="NAME", cell=lambda row, _: _full_name(row), by=lambda r: _full_name(r).lower(), least=18, most=40
        ),
        Column(title="KIND", cell=_field("kind"), by=_words("kind"), least=9, most=9),
        Column(title="TARGET", cell=lambda row, _: storage_target(row), by=storage_target, least=24, most=60),
        Column(title="AGE", cell=_ago("createdAt"), by=_since("createdAt"), least=5, most=5, right=True),
    ),
    actions=actions.STORAGE,
    fullest="r",
    ident=_full_name,
    label=_full_name,
    empty="no storages",
)

TABS: Final = (WORKERS, QUEUES, INVOCATIONS, STORAGE)
NAMES: Final = tuple(tab.name for tab in TABS)
