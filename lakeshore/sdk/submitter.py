"""Flat combining of submits over HTTP: the first thread sends; who comes meanwhile leaves with its next request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from .http_wire import refuse
from .watcher import Watcher

MAX_ITEMS = 256
MAX_BYTES = 8 * 1024 * 1024


class _Item:
    __slots__ = ("answer", "body", "done")

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.done = False
        self.answer: Any = None


class Submitter:
    """`send(body)` performs one submit request, single or batched."""

    def __init__(self, send: Callable[[dict[str, Any]], Mapping[str, Any]], watcher: Watcher) -> None:
        self._send = send
        self._watch = watcher.book.session
        self._turn = threading.Lock()
        self._waiting: deque[_Item] = deque()

    def submit(self, body: dict[str, Any]) -> Mapping[str, Any]:
        """The answer for this item, once it is on the server's disk. Raises what the server refused it with."""
        item = _Item(body)
        self._waiting.append(item)
        with self._turn:
            if not item.done:
                self._send_waiting(item)
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
                    answers = [self._send({**batch[0].body, "watch": self._watch})]
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
