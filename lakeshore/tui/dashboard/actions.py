"""What may be done to a row: the one table that the hints, the keys, the help and the palette come from.

Rules: an action is offered where the server may take it, and a key of no offered action does nothing. What destroys
asks first. `run` is called in a thread of its own and answers with the sentence that is told; what it raises is told
instead. Reference: cli/tui.md, "Inline actions"; C-411…C-429.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from .columns import Row
from .items import Item

if TYPE_CHECKING:
    from lakeshore.client.api import ApiClient
    from lakeshore.client.queues import Queues
    from lakeshore.client.workers import Workers

REST: Final = timedelta(minutes=30)
DEFAULT_QUEUE: Final = "default"
ENDED_WORKERS: Final = ("gone", "terminated")
LIVE_CALLS: Final = ("queued", "running", "cancelling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`offered(row, namespace)`; `question` of the item, where it destroys. `everywhere`: it is the tab's, not a row's,
    and `run` gets no item.
    """

    key: str
    name: str
    what: str
    offered: Callable[[Row, str], bool]
    run: Callable[[ApiClient, Any], str]
    question: Callable[[Item | None], str] | None = None
    everywhere: bool = False

    @property
    def hint(self) -> str:
        """`[k]ill`, `r[e]set`."""
        before, _, after = self.name.partition(self.key)
        return f"{before}[{self.key}]{after}"


def offered(actions: Sequence[Action], item: Item | None, namespace: str) -> list[Action]:
    """Those that may be done now, in the table's order."""
    return [
        one
        for one in actions
        if (one.everywhere and one.offered({}, namespace))
        or (not one.everywhere and item is not None and one.offered(item.row, namespace))
    ]


def hints(actions: Sequence[Action]) -> str:
    """All of their hints in a row."""
    return " ".join(one.hint for one in actions)


def keys_only(actions: Sequence[Action]) -> str:
    """The same where there is no room: `[k][t]`."""
    return "".join(f"[{one.key}]" for one in actions)


def _workers(api: ApiClient) -> Workers:
    from lakeshore.client.workers import Workers  # wall: after the first picture

    return Workers(api)


def _queues(api: ApiClient) -> Queues:
    from lakeshore.client.queues import Queues  # wall: after the first picture

    return Queues(api)


# --- workers


def worker_state(row: Row) -> str:
    """As it is shown: an instance that its provider has ended is `terminated`, whatever the daemon last said."""
    if row.get("hostStatus") == "terminated":
        return "terminated"
    return str(row.get("state") or "unknown")


def _lives(row: Row, _ns: str) -> bool:
    return worker_state(row) not in ENDED_WORKERS


def _has_ended(row: Row, ns: str) -> bool:
    return not _lives(row, ns)


def _is_backed(row: Row, ns: str) -> bool:
    return _lives(row, ns) and bool(row.get("providerName"))


def _drop(api: ApiClient, item: Item, *, keep: bool) -> bool:
    """Whether its instance went, too."""
    return bool(_workers(api).kill(item.id, keep_instance=keep).get("terminated"))


def _kill_worker(api: ApiClient, item: Item) -> str:
    _drop(api, item, keep=True)
    return f"killed {item.name}: its daemon drains and exits"


def _terminate(api: ApiClient, item: Item) -> str:
    went = _drop(api, item, keep=False)
    return f"terminated {item.name}" + (
        " and its instance" if went else ": the row is gone; no instance was terminated"
    )


def _remove_worker(api: ApiClient, item: Item) -> str:
    _drop(api, item, keep=True)
    return f"removed {item.name}"


def _hibernate(api: ApiClient, item: Item) -> str:
    _workers(api).hibernate(item.id, (datetime.now(UTC) + REST).isoformat())
    return f"{item.name} rests for 30 minutes from its next poll on"


def _reset(api: ApiClient, item: Item) -> str:
    _workers(api).reset(item.id)
    return f"{item.name} polls as usual from its next poll on"


def _ask(text: str) -> Callable[[Item | None], str]:
    return lambda item: text.format(name="" if item is None else item.name)


WORKERS: Final = (
    Action(
        key="k",
        name="kill",
        what="drop the row; its daemon drains and exits, the cloud instance stays up",
        offered=_lives,
        run=_kill_worker,
        question=_ask("kill worker {name}? its instance, if any, stays up"),
    ),
    Action(
        key="t",
        name="terminate",
        what="drop the row and terminate the cloud instance",
        offered=_is_backed,
        run=_terminate,
        question=_ask("terminate worker {name} and its cloud instance?"),
    ),
    Action(key="h", name="hibernate", what="let it rest for 30 minutes", offered=_lives, run=_hibernate),
    Action(key="e", name="reset", what="end its back-off", offered=_lives, run=_reset),
    Action(
        key="r",
        name="remove",
        what="drop the row of a worker that is gone",
        offered=_has_ended,
        run=_remove_worker,
        question=_ask("remove worker {name}?"),
    ),
)


# --- queues: one of a sibling namespace is shown, and is not ours to change


def _is_ours(row: Row, ns: str) -> bool:
    return bool(row.get("namespace", ns) == ns)


def _may_go(row: Row, ns: str) -> bool:
    return _is_ours(row, ns) and row.get("name") != DEFAULT_QUEUE


def _moved(verb: str, told: str) -> Callable[[ApiClient, Item], str]:
    def run(api: ApiClient, item: Item) -> str:
        _queues(api).move(item.row["name"], verb)
        return told.format(name=item.name)

    return run


def _remove_queue(api: ApiClient, item: Item) -> str:
    _queues(api).remove(item.row["name"], force=True)
    return f"removed queue {item.name}"


def _about_to_go(item: Item | None) -> str:
    if item is None:
        return ""
    members, queued = item.row.get("memberCount") or 0, item.row.get("queued") or 0
    more = [f"{members} member{'s leave' if members > 1 else ' leaves'} it"] if members else []
    more += [f"{queued:,} queued call{'s are' if queued > 1 else ' is'} killed"] if queued else []
    return f"remove queue {item.name}?" + (f" {', '.join(more)}" if more else "")


QUEUES: Final = (
    Action(
        key="d",
        name="drain",
        what="take nothing new, hand out what there is",
        offered=lambda row, ns: _is_ours(row, ns) and row.get("state") == "active",
        run=_moved("drain", "{name} drains"),
    ),
    Action(
        key="a",
        name="archive",
        what="take nothing and hand out nothing",
        offered=lambda row, ns: _may_go(row, ns) and row.get("state") != "archived",
        run=_moved("archive", "archived {name}"),
        question=_ask("archive queue {name}? it takes no more work"),
    ),
    Action(
        key="u",
        name="unarchive",
        what="make it active again",
        offered=lambda row, ns: _is_ours(row, ns) and row.get("state") in ("archived", "draining"),
        run=_moved("unarchive", "{name} is active"),
    ),
    Action(
        key="r",
        name="remove",
        what="delete it; its members leave it, what is queued is killed",
        offered=_may_go,
        run=_remove_queue,
        question=_about_to_go,
    ),
)


# --- invocations


def call_state(row: Row) -> str:
    """As it is shown: one that was asked to stop is `cancelling`."""
    return "cancelling" if row.get("cancelling") else str(row.get("state") or "unknown")


def _kill_call(api: ApiClient, item: Item) -> str:
    row = api.kill(item.id)
    if row.get("state") == "cancelling":
        return f"{item.name} was asked to stop"
    return f"killed {item.name}"


def _cancel_all(api: ApiClient, _item: None) -> str:
    return f"{int(api.bulk_cancel().get('cancelled', 0)):,} cancelled"


INVOCATIONS: Final = (
    Action(
        key="k",
        name="kill",
        what="kill a queued one; ask a running one to stop, where its worker can",
        offered=lambda row, _ns: call_state(row) in LIVE_CALLS,
        run=_kill_call,
        question=_ask("kill invocation {name}?"),
    ),
    Action(
        key="c",
        name="cancel-all-queued",
        what="cancel every queued invocation of the namespace",
        offered=lambda _row, _ns: True,
        run=_cancel_all,
        question=_ask("cancel ALL queued invocations of the namespace?"),
        everywhere=True,
    ),
)


# --- storage


def _remove_storage(api: ApiClient, item: Item) -> str:
    from lakeshore.client.storages import Storages  # wall: after the first picture

    Storages(api).remove(item.row["name"])
    return f"removed {item.name}; its bucket stays"


STORAGE: Final = (
    Action(
        key="r",
        name="remove",
        what="delete the record; the bucket stays",
        offered=_is_ours,
        run=_remove_storage,
        question=_ask("remove storage {name}? its bucket stays"),
    ),
)
