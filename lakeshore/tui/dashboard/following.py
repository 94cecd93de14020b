"""What news of changes make of a list. Pure. Reference: docs/guides/dashboard.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from .items import Item
from .tabs import INVOCATIONS, QUEUES, STORAGE, WORKERS, Tab

if TYPE_CHECKING:
    from lakeshore.client.watch import Change

_ID: Final = attrgetter("id")
KINDS: Final = {
    WORKERS.name: "workers",
    QUEUES.name: "queues",
    INVOCATIONS.name: "invocations",
    STORAGE.name: "storages",
}
"""What a tab's rows are called among changes."""


def applied(tab: Tab, items: Sequence[Item], changes: Sequence[Change]) -> list[Item] | None:
    """The list as it is after these changes of its kind; None where they do not tell, and it is to be read anew."""
    told: dict[str, Change] = {}
    for change in changes:
        told[f"{change.namespace}/{change.id}" if tab in (QUEUES, STORAGE) else change.id] = change
    if any(change.row is None and not change.gone for change in told.values()):
        return None
    made = list(items)
    for at in reversed([*compress(count(), map(told.__contains__, map(_ID, items)))]):
        row = told.pop(made[at].id).row
        if row is None:
            del made[at]
        else:
            made[at] = tab.item(row, seq=made[at].seq)
    new = [tab.item(change.row) for change in told.values() if change.row is not None]
    if tab is INVOCATIONS:
        return [*reversed(new), *made]
    return ordered(tab, [*made, *new])


def ordered(tab: Tab, items: Sequence[Item]) -> list[Item]:
    """By what people call them: the server's order of workers changes with every poll."""
    return sorted(items, key=lambda item: (item.name.lower() if tab is WORKERS else "", item.id))
