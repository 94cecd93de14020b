"""Flat combining: the thread that gets its turn commits for everybody who is waiting for theirs.

Each caller returns only when its own verb is on disk, and a hundred callers share one sync.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..plane.plane import Plane
from ..plane.statements import Values
from ..plane.transaction import Transaction

T = TypeVar("T")


class _Item:
    __slots__ = ("answer", "done", "verb")

    def __init__(self, verb: Callable[[Transaction], Any]) -> None:
        self.verb = verb
        self.done = False
        self.answer: Any = None


class Combiner:
    """Serialises what threads do with one plane. `turn` also guards plain reads of the same connection."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.turn = threading.RLock()
        self._waiting: deque[_Item] = deque()

    def write(self, verb: Callable[[Transaction], T]) -> T:
        """Commit one verb, together with whatever else waits. Raises what it refuses."""
        item = _Item(verb)
        self._waiting.append(item)
        with self.turn:
            if not item.done:
                self._commit()
        if isinstance(item.answer, Exception):
            raise item.answer
        return item.answer  # type: ignore[no-any-return]  # a batch is heterogeneous; this item holds a T

    def rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Read between commits."""
        with self.turn:
            return self.plane.rows(statement, values)

    def _commit(self) -> None:
        batch: list[_Item] = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        answers: list[Any] = []
        try:
            answers = self.plane.batch([item.verb for item in batch])
        except BaseException as exc:
            # Whoever waited for this commit must hear of it too.
            told = exc if isinstance(exc, Exception) else RuntimeError(f"the commit was interrupted: {exc!r}")
            answers = [told] * len(batch)
            raise
        finally:
            for item, answer in zip(batch, answers, strict=True):
                item.answer, item.done = answer, True
