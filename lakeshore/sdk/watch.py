"""What one process waits for on an HTTP plane (K-21): the bookkeeping of a watch set, without I/O.

Results come for ids that somebody waits for, and for ids that somebody will ask for soon (a producer submits many, then
collects): those are kept, up to a bound, and asked for again when they were dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from .ids import new_id

KEEP_ANSWERS = 10_000
KEEP_BYTES = 32 * 1024 * 1024


class WatchBook:
    """Answers by id, and which ids the server's set should hold. The caller serialises access."""

    def __init__(self) -> None:
        self.session = new_id()
        self.waiting: dict[str, int] = {}
        self._open: set[str] = set()
        """What is waited for and has no answer."""
        self._listed: set[str] = set()
        self._unlisted: set[str] = set()
        """What is open and not listed."""
        self._answers: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._bytes = 0

    def enter(self, id_: str) -> None:
        """Somebody waits for `id_`."""
        self.waiting[id_] = self.waiting.get(id_, 0) + 1
        if id_ not in self._answers:
            self._reopen(id_)

    def _reopen(self, id_: str) -> None:
        self._open.add(id_)
        if id_ not in self._listed:
            self._unlisted.add(id_)

    def leave(self, id_: str) -> None:
        """One waiter less."""
        left = self.waiting[id_] - 1
        if left:
            self.waiting[id_] = left
        else:
            del self.waiting[id_]
            self._open.discard(id_)
            self._unlisted.discard(id_)

    def submitted(self, id_: str, *, again: bool) -> None:
        """A submit carried the session: the server's set holds the id, or has told its end before the submit was
        answered. A row that was queued `again` has no answer that counts.
        """
        if again:
            self.forget(id_)
        if id_ not in self._answers:
            self._listed.add(id_)
            self._unlisted.discard(id_)

    def taken(self, id_: str, *, again: bool) -> bool:
        """`submitted`, and who submitted it waits for its end. Whether that is still to come."""
        if again:
            self.forget(id_)
        self.waiting[id_] = self.waiting.get(id_, 0) + 1
        if id_ in self._answers:
            return False
        self._open.add(id_)
        self._listed.add(id_)
        self._unlisted.discard(id_)
        return True

    def is_listed(self, id_: str) -> bool:
        """Whether the server's set should hold the id."""
        return id_ in self._listed

    def unlisted(self) -> list[str]:
        """Ids that are waited for and not in the server's set; they count as listed from now on."""
        fresh = list(self._unlisted)
        self._listed.update(fresh)
        self._unlisted.clear()
        return fresh

    def request(self, timeout_s: float) -> dict[str, Any]:
        """The body of the next poll."""
        body = {"watch": self.session, "add": self.unlisted(), "timeout_s": timeout_s, "waiting": len(self._open)}
        return {**body, "why": True} if timeout_s > 0 else body

    def arrived(self, answer: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The answers that have come, by id, for who is told at once; `keep` those that nobody takes. A set that the
        server lost is listed anew.
        """
        if answer.get("resync"):
            self.lost_set()
        items = answer.get("results") or ()
        ids = [str(item["invocation_id"]) for item in items]
        for known in (self._listed, self._open, self._unlisted):
            known.difference_update(ids)
        return zip(ids, items, strict=True)

    def read(self, answer: Mapping[str, Any]) -> None:
        """Keep the answers that have come."""
        for id_, item in self.arrived(answer):
            self.keep(id_, item)

    def lost_set(self) -> None:
        """The server may have forgotten the set (it restarted): list everything again."""
        self._listed.clear()
        self._unlisted = set(self._open)

    def answer(self, id_: str) -> Mapping[str, Any] | None:
        """What came for `id_`."""
        return self._answers.get(id_)

    def take(self, id_: str) -> Mapping[str, Any] | None:
        """What came for `id_`, which is used now."""
        item = self._answers.get(id_)
        if item is not None:
            self.forget(id_)
        return item

    def forget(self, id_: str) -> None:
        """The answer was used, or is out of date."""
        item = self._answers.pop(id_, None)
        if item is not None:
            self._bytes -= _size(item)
            if id_ in self.waiting:
                self._reopen(id_)

    def keep(self, id_: str, item: Mapping[str, Any]) -> None:
        """Until somebody takes it, or there are too many."""
        if id_ in self._answers:
            self.forget(id_)
        self._answers[id_] = item
        self._bytes += _size(item)
        self._open.discard(id_)
        self._unlisted.discard(id_)
        while len(self._answers) > KEEP_ANSWERS or self._bytes > KEEP_BYTES:
            oldest = next((i for i in self._answers if i not in self.waiting), None)
            if oldest is None:
                return
            self.forget(oldest)


def _size(item: Mapping[str, Any]) -> int:
    blob = item.get("result_blob")
    return 256 + (len(blob) if isinstance(blob, bytes) else 0)
