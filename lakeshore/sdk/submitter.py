"""Flat combining of submits over HTTP: the first thread sends; who comes meanwhile leaves with the next request.

Each waits for its own answer, not for a turn: one that is answered goes on at once, for behind a slow disk the next
turn is long, and what it submits next then leaves with more company.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from .http_wire import refuse
from .watcher import Watcher

MAX_ITEMS = 256
MAX_BYTES = 8 * 1024 * 1024


class _Item:
    __slots__ = ("answer", "body", "done", "leads", "told")

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.done = False
        self.leads = False
        self.answer: Any = None
        self.told = threading.Lock()
        """Held until the item is done or its thread is to send."""
        self.told.acquire()


class Submitter:
    """`send(body)` performs one submit request, single or batched."""

    def __init__(self, send: Callable[[dict[str, Any]], Mapping[str, Any]], watcher: Watcher) -> None:
        self._send = send
        self._watch = watcher.book.session
        self._books = threading.Lock()
        self._sending = False
        self._waiting: deque[_Item] = deque()

    def submit(self, body: dict[str, Any]) -> Mapping[str, Any]:
        """The answer for this item, once it is on the server's disk. Raises what the server refused it with."""
        item = _Item(body)
        try:
            with self._books:
                self._waiting.append(item)
                item.leads, self._sending = not self._sending, True
            if not item.leads:
                item.told.acquire()
            if not item.done:
                self._send_waiting(item)
        finally:
            self._pass_on(item)
        if isinstance(item.answer, BaseException):
            raise item.answer
        answer: Mapping[str, Any] = item.answer
        if int(answer.get("status", 200)) != 200:
            refuse(int(answer["status"]), answer, "submitting")
        return answer

    def _send_waiting(self, mine: _Item) -> None:
        while not mine.done:
            batch: list[_Item] = []
            size = 0
            while self._waiting and len(batch) < MAX_ITEMS and size < MAX_BYTES:
                item = self._waiting.popleft()
                batch.append(item)
                size += len(item.body.get("args_blob") or b"")
            answers: list[Any]
            try:
                if len(batch) == 1:
                    # Held, it would hold up the others: who is to be held asks for that by itself.
                    answers = [self._send({**batch[0].body, "watch": self._watch, "hold_s": 0.0})]
                else:
                    bodies = [item.body for item in batch]
                    answers = list(self._send({"invocations": bodies, "watch": self._watch})["results"])
            except BaseException as exc:
                answers = [exc] * len(batch)
                if not isinstance(exc, Exception):
                    raise
            finally:
                for item, answer in zip(batch, answers, strict=True):
                    item.answer, item.done = answer, True
                    if item is not mine:
                        item.told.release()

    def _pass_on(self, item: _Item) -> None:
        """Its thread goes, answered or interrupted: it waits no more, and if it was to send, another one is."""
        with self._books:
            if not item.done:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(item)
            if item.leads:
                self._sending = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].leads = True
                    self._waiting[0].told.release()
