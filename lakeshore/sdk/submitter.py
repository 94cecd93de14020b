"""Flat combining of submits over HTTP: the first thread sends; who comes meanwhile leaves with the next request.

Each waits for its own answer, not for a turn: one that is answered goes on at once, for behind a slow disk the next
turn is long, and what it submits next then leaves with more company. Each waits for as long as its own limit: who goes
is in no later try, and one that goes while it sends leaves the sending to the next.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from lakeshore.net.errors import NetError

from .http_wire import refuse
from .limits import NEVER, OutOfTime, left_of
from .watcher import Watcher

MAX_ITEMS = 256
MAX_BYTES = 8 * 1024 * 1024


class _Item:
    __slots__ = ("answer", "body", "done", "gone", "leads", "sent", "told")

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.done = False
        self.gone = False
        self.leads = False
        self.sent = False
        """Whether a try of it that got no answer may have reached the server."""
        self.answer: Any = None
        self.told = threading.Lock()
        """Held until the item is done or its thread is to send."""
        self.told.acquire()


class Again(Protocol):
    """As `HttpClient.until_answered`."""

    def __call__(self, send: Callable[[], Any], what: str, /, *, until: float) -> Any: ...


class Submitter:
    """`send(body, until)` performs one submit request, single or batched; `again` has it tried until it is answered."""

    def __init__(
        self, send: Callable[[dict[str, Any], float], Mapping[str, Any]], again: Again, watcher: Watcher
    ) -> None:
        self._send = send
        self._again = again
        self._watch = watcher.book.session
        self._books = threading.Lock()
        self._sending = False
        self._asked: list[_Item] = []
        """What the request that is under way carries."""
        self._trouble: NetError | None = None
        """Why the last try got no answer."""
        self._waiting: deque[_Item] = deque()

    def submit(self, body: dict[str, Any], until: float = NEVER) -> Mapping[str, Any]:
        """The answer for this item, once it is on the server's disk. Raises what the server refused it with, and
        OutOfTime.
        """
        item = _Item(body)
        try:
            with self._books:
                self._waiting.append(item)
                item.leads, self._sending = not self._sending, True
            if not item.leads and not item.told.acquire(timeout=_for(until)) and not item.done:
                raise OutOfTime(self._trouble, sent=item.sent or item in self._asked or self._trouble is None)
            if not item.done:
                self._send_waiting(item, until)
        finally:
            self._pass_on(item)
        if isinstance(item.answer, BaseException):
            raise item.answer
        answer: Mapping[str, Any] = item.answer
        if int(answer.get("status", 200)) != 200:
            refuse(int(answer["status"]), answer, "submitting")
        return answer

    def _send_waiting(self, mine: _Item, until: float) -> None:
        def send() -> list[tuple[_Item, Any]]:
            return self._try(batch, until)

        while not mine.done:
            batch: list[_Item] = []
            size = 0
            with self._books:  # whose time is over goes out of the row meanwhile
                while self._waiting and len(batch) < MAX_ITEMS and size < MAX_BYTES:
                    item = self._waiting.popleft()
                    batch.append(item)
                    size += len(item.body.get("args_blob") or b"")
            answers: Iterable[tuple[_Item, Any]]
            try:
                answers = self._again(send, "submitting", until=until)
            except OutOfTime as late:
                self._put_back(batch, mine)
                late.sent = mine.sent
                raise
            except Exception as exc:  # noqa: BLE001  # each of them raises it
                answers = [(item, exc) for item in batch]
            except BaseException:  # interrupted: for the others that was no answer
                self._put_back(batch, mine)
                raise
            for item, answer in answers:
                item.answer, item.done = answer, True
                if item is not mine:
                    item.told.release()

    def _try(self, batch: list[_Item], until: float) -> list[tuple[_Item, Any]]:
        """One request with those of a batch that still wait, and what each of them is answered."""
        there = self._asked = [item for item in batch if not item.gone]
        try:
            if len(there) == 1:
                # Held, it would hold up the others: who is to be held asks for that by itself.
                answers = [self._send({**there[0].body, "watch": self._watch, "hold_s": 0.0}, until)]
            else:
                bodies = [item.body for item in there]
                answers = self._send({"invocations": bodies, "watch": self._watch}, until)["results"]
        except NetError as exc:
            self._trouble = exc
            for item in there:
                item.sent = item.sent or exc.sent_anything
            self._asked = []
            raise
        self._trouble = None
        return list(zip(there, answers, strict=True))

    def _put_back(self, batch: list[_Item], mine: _Item) -> None:
        with self._books:
            self._waiting.extendleft(item for item in reversed(batch) if item is not mine and not item.gone)

    def _pass_on(self, item: _Item) -> None:
        """Its thread goes, answered or interrupted: it waits no more, and if it was to send, another one is."""
        with self._books:
            item.gone = True
            if not item.done:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(item)
            if item.leads:
                self._sending = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].leads = True
                    self._waiting[0].told.release()


def _for(until: float) -> float:
    """How long a lock may be waited for, in its words."""
    left = left_of(until)
    return -1 if left is None else min(left, threading.TIMEOUT_MAX)
