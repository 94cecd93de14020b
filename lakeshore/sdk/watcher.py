"""Waiting threads of one HTTP plane: the leader reads the process's one watch, the others are told (K-21).

Whoever waits and finds no leader becomes it. A leader whose own answer has come, or whose time is over, passes the lead
on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lakeshore.net.backoff import full_jitter
from lakeshore.net.errors import NetError

from . import vain
from .limits import GRACE_S
from .watch import WatchBook

POLL_S = 20.0


class Watcher:
    """`ask(body, timeout_s, until)` performs one await request, that goes on until then at most. Safe in threads; make
    a new one after a fork.
    """

    def __init__(self, ask: Callable[[dict[str, Any], float, float], Mapping[str, Any]]) -> None:
        self.book = WatchBook()
        self._ask = ask
        self._changed = threading.Condition()
        self._leading = False
        self._waits = patience()
        self.trouble: str | None = None
        """Why the server could not be asked, while it cannot."""

    def submitted(self, id_: str, *, again: bool = False) -> None:
        """A submit carried this watcher's session; `again` when it may have queued an ended row."""
        with self._changed:
            self.book.submitted(id_, again=again)

    def wait(self, id_: str, timeout_s: float | None) -> Mapping[str, Any] | None:
        """The answer for `id_`, or None when the time is over."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if (answer := self.book.take(id_)) is not None:  # it came while somebody waited for another
                return answer
            self.book.enter(id_)
            poll_s = vain.SAID_AFTER_S
            try:
                self._list_beside(id_, deadline + GRACE_S)
                while (answer := self.book.take(id_)) is None:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return None
                    if self._leading:
                        self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    else:
                        self._lead(min(left, poll_s), deadline + GRACE_S)
                        poll_s = POLL_S
                return answer
            finally:
                self.book.leave(id_)

    def _list_beside(self, id_: str, until: float) -> None:
        """A leader is parked at the server and this id is not in the set: add it on another connection."""
        if not self._leading or self.book.answer(id_) is not None:
            return
        body = self.book.request(0.0)
        if body["add"]:
            self._exchange(body, 0.0, until)

    def _lead(self, wait_s: float, until: float) -> None:
        self._leading = True
        try:
            self._exchange(self.book.request(wait_s), wait_s, until)
        finally:
            self._leading = False
            self._changed.notify_all()

    def _exchange(self, body: dict[str, Any], wait_s: float, until: float) -> None:
        self._changed.release()
        answer: Mapping[str, Any] | None = None
        try:
            answer = self._ask(body, wait_s, until)
        except NetError as exc:  # a server that restarts is waited for; the caller's own time goes on
            self.trouble = str(exc)
            time.sleep(next(self._waits))
        finally:
            self._changed.acquire()
            if answer is None:
                self.book.lost_set()
        if answer is not None:
            self.trouble = None
            self._waits = patience()
            self.book.read(answer)
            vain.tell(answer)
            self._changed.notify_all()


def patience() -> Iterator[float]:
    """How long to leave an unreachable server alone, time after time."""
    return full_jitter(random.random, base=0.05, cap=2.0)
