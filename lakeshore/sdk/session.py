"""A worker's session on an HTTP plane, without I/O: what it holds, what it has to say, and what an answer means.

The list is the truth (K-8): each poll lists every pair from its `run` until its ending has been answered. Numbers leave
room between two polls of the worker for the guardian's, which are the later ones while the worker is silent.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ids import new_id

STRIDE = 1 << 20
"""Between two numbers of the worker, so many are the guardian's."""
MARGIN = 0.1
"""The part of a lease that a worker does not count on (K-12)."""


@dataclass(slots=True)
class Entry:
    """One held pair."""

    id: str
    claim: int
    body: Mapping[str, Any]
    started: bool = False
    stop: Callable[[str], None] | None = field(default=None)


def boot_time() -> float:
    """Seconds on a clock that counts suspended time."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Session:
    """Guard it with `lock`: one poll is in flight at a time."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.id = new_id()
        self.lock = threading.RLock()
        self.n = 0
        self.lease_s = 60.0
        self.fenced = False
        self.queue = "default"
        self.order: dict[str, Any] = {}
        self.held: dict[str, Entry] = {}
        self.ready: deque[Entry] = deque()
        self.unsaid: dict[str, dict[str, Any]] = {}
        """Endings by invocation, until they are answered."""
        self._sent_at = 0.0
        self._usable_until = 0.0
        """Until when what is held and has not begun may begin: each answer renews all that its poll listed."""

    def aim(self, queue: str, kind: str, temperature: float) -> None:
        """What the next polls wish for."""
        self.queue = queue
        self.order = {"kind": kind, "temperature": temperature}

    # -- polls

    def request(self, *, capacity: int, timeout_s: float) -> dict[str, Any]:
        """The body of the next poll."""
        self.n += STRIDE
        self._sent_at = boot_time()
        self._drop_expired()
        return {
            "worker_id": self.worker,
            "queue": self.queue,
            "timeout_s": min(timeout_s, self.lease_s / 2),  # a later answer is not read
            "cursor": None,
            "invocations": [],
            "session": self.id,
            "n": self.n,
            "held": self.pairs(),
            "acks": list(self.unsaid.values()),
            "capacity": 0 if self.fenced else capacity,
            **self.order,
        }

    def pairs(self) -> list[list[Any]]:
        """What is held, in wire shape."""
        return [[entry.id, entry.claim, entry.started] for entry in self.held.values()]

    def read(self, answer: Mapping[str, Any]) -> bool:
        """Take an answer in: endings, lost, cancel, runs, in this order (K-28). False when it came too late."""
        self.lease_s = float(answer.get("lease_s") or self.lease_s)
        usable = self._sent_at + self.lease_s * (1 - MARGIN)
        if boot_time() > usable:
            return False
        for said in answer.get("acks") or ():
            self._answered(said)
        for id_, claim in answer.get("lost") or ():
            self.drop(id_, claim, "lost")
        commands = answer.get("commands") or ()
        for command in commands:
            if command["kind"] == "cancel":
                self.cancel(command["body"]["invocation_id"], command["body"]["claim"])
        if answer.get("status") == 410:
            self.fenced = True
            self.give_back()
        self._usable_until = usable
        for command in commands:
            if command["kind"] == "run" and not self.fenced:
                self._receive(command["body"])
        return True

    def _answered(self, said: Mapping[str, Any]) -> None:
        id_, result = str(said["invocation_id"]), said.get("result")
        ending = self.unsaid.get(id_)
        if ending is None or ending["claim"] != said.get("claim"):
            return
        if result in ("ok", "duplicate", "stale"):
            del self.unsaid[id_]

    def _receive(self, body: Mapping[str, Any]) -> None:
        id_, claim = str(body["invocation_id"]), int(body["claim"])
        known = self.held.get(id_)
        if known is not None:
            if known.claim >= claim:
                return
            self.drop(id_, known.claim, "replaced")
        entry = Entry(id_, claim, body)
        self.held[id_] = entry
        self.ready.append(entry)

    # -- jobs

    def take(self) -> Entry | None:
        """The next job that may still begin."""
        while self.ready:
            entry = self.ready.popleft()
            if self.held.get(entry.id) is not entry:
                continue
            if boot_time() > self._usable_until:
                del self.held[entry.id]  # unlisted from now on: the next poll gives it back
                continue
            return entry
        return None

    def begin(self, id_: str, claim: int, stop: Callable[[str], None] | None = None) -> bool:
        """The body of a job starts. False when the claim is not ours any more."""
        entry = self.held.get(id_)
        if entry is None or entry.claim != claim:
            return False
        entry.started, entry.stop = True, stop
        return True

    def end(self, id_: str, claim: int, ending: dict[str, Any]) -> bool:
        """The body has ended: its ending is said with the next poll. False when the claim is not ours any more."""
        entry = self.held.get(id_)
        if entry is None or entry.claim != claim:
            return False
        del self.held[id_]
        self.unsaid[id_] = {"invocation_id": id_, "claim": claim, "worker_id": self.worker, **ending}
        return True

    def settled(self, id_: str, claim: int) -> None:
        """An ending was said by another route, and answered."""
        entry = self.held.get(id_)
        if entry is not None and entry.claim == claim:
            del self.held[id_]

    def claim_of(self, id_: str) -> int | None:
        """The claim held of an invocation."""
        entry = self.held.get(id_)
        return None if entry is None else entry.claim

    def drop(self, id_: str, claim: int, why: str) -> None:
        """A pair that is not ours any more: its body is ended, it is listed no longer."""
        entry = self.held.get(id_)
        if entry is None or entry.claim != claim:
            return
        del self.held[id_]
        if entry.started and entry.stop is not None:
            entry.stop(why)

    def cancel(self, id_: str, claim: int) -> None:
        """The plane asks to stop a held job."""
        entry = self.held.get(id_)
        if entry is None or entry.claim != claim:
            return
        if not entry.started:
            del self.held[id_]
        elif entry.stop is not None:
            entry.stop("cancelled")

    def give_back(self) -> list[Entry]:
        """Stop listing what has not begun; it never begins here."""
        back = [entry for entry in self.held.values() if not entry.started]
        for entry in back:
            del self.held[entry.id]
        self.ready.clear()
        return back

    def _drop_expired(self) -> None:
        if boot_time() > self._usable_until:
            for entry in [e for e in self.held.values() if not e.started]:
                del self.held[entry.id]
