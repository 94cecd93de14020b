"""What news of changes make of a list. Pure. Reference: docs/guides/dashboard.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .items import Item
from .tabs import INVOCATIONS, QUEUES, STORAGE, WORKERS, Tab

if TYPE_CHECKING:
    from lakeshore.client.watch import Change

KINDS: Final = {
    WORKERS.name: "workers",
    QUEUES.name: "queues",
    INVOCATIONS.name: "invocations",
    STORAGE.name: "storages",
}
"""What a tab's rows are called among changes."""


def applied(tab: Tab, items: Sequence[Item], changes: Sequence[Change]) -> list[Item] | None:
    """The list as it is after these changes of its kind; None where they do not tell, and it is to be read anew."""
    made = {item.id: item for item in items}
    new: dict[str, Item] = {}
    for change in changes:
        id_ = f"{change.namespace}/{change.id}" if tab in (QUEUES, STORAGE) else change.id
        if change.gone:
            made.pop(id_, None)
            new.pop(id_, None)
        elif change.row is None:
            return None
        elif id_ in made:
            made[id_] = tab.item(change.row, seq=made[id_].seq)
        else:
            new[id_] = tab.item(change.row)
    if tab is INVOCATIONS:
        return [*reversed(new.values()), *made.values()]
    return ordered(tab, [*made.values(), *new.values()])


def ordered(tab: Tab, items: Sequence[Item]) -> list[Item]:
    """By what people call them: the server's order of workers changes with every poll."""
    return sorted(items, key=lambda item: (item.name.lower() if tab is WORKERS else "", item.id))
