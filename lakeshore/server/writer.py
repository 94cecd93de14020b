"""One writer a database: what arrives while a batch commits leaves with the next (K-30).

A batch commits on the loop while COMMIT is fast, for a hop to a thread costs more than such a sync; once its moving
average passes 0.5 ms, and a few of this machine's hops (2 ms at most, for they were measured in one moment, maybe a
busy one), the same function runs in a thread, so that a slow disk does not stall other requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import outcome
import trio

from ..plane.contract import PlaneError

T = TypeVar("T")
Tx = TypeVar("Tx")
Tx_co = TypeVar("Tx_co", covariant=True)
Verb = Callable[[Tx], Any]

SLOW_COMMIT_S = 0.0005
STALL_S = 0.002
PATIENCE_S = 0.002
"""So long a write that nobody waits for looks for company: a commit costs as much for one as for some."""
HOPS = 4
MAX_BATCH = 512
_SMOOTHING = 0.1


class Batches(Protocol[Tx_co]):
    """What is written to: each batch is one synced transaction. The plane, or a small file of the server."""

    @property
    def commit_s(self) -> float:
        """Seconds that the last COMMIT took, alone."""

    def batch(self, verbs: Sequence[Callable[[Tx_co], Any]]) -> list[Any]:
        """Run the verbs and commit; per verb its answer, or the exception that refused it. Raises what must stop us."""


class _Item(Generic[Tx]):
    __slots__ = ("answer", "is_answered", "task", "then", "verb")

    def __init__(self, verb: Verb[Tx], then: Callable[[Any], None] | None) -> None:
        self.verb = verb
        self.then = then
        self.task: trio.lowlevel.Task | None = None
        self.answer: Any = None
        self.is_answered = False

    async def answered(self) -> None:
        """Wait until it is."""
        self.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self.abandon)

    def abandon(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        """The asker is cancelled; at once, for an answer before its task runs must not wake it a second time."""
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Writer(Generic[Tx]):
    """Runs `verb(tx)` for whoever asks, in batches. `closing(threaded)` gives one last verb per batch."""

    def __init__(
        self, into: Batches[Tx], closing: Callable[[bool], tuple[Verb[Tx], Callable[[Any], None]]] | None = None
    ) -> None:
        self._into = into
        self.commits = 0
        self.items = 0
        self.commit_average_s = 0.0
        self._closing = closing or (lambda _threaded: (_nothing, _nothing))
        self._pending: list[_Item[Tx]] = []
        self._patient: list[_Item[Tx]] = []
        """They go behind the others of the next batch, or alone when their time is over."""
        self._sleeper: trio.lowlevel.Task | None = None
        self._failed: BaseException | None = None
        self.is_away = False
        """Whether a batch is on its way in a thread: what it writes through is not to be read through."""

    async def write(
        self, verb: Callable[[Tx], T], then: Callable[[T], None] | None = None, *, patient: bool = False
    ) -> T:
        """Commit `verb`; its answer. Raises what it refuses, or PlaneFailed.

        `then(answer)` runs on the loop right after the commit, before anybody else hears of it. A caller that is
        cancelled meanwhile does not take its verb with it. A `patient` one goes with others that come within
        PATIENCE_S.
        """
        if self._failed is not None:
            raise PlaneError(f"the plane has stopped: {self._failed}")
        item = _Item(verb, then)
        if patient:
            self._patient.append(item)
            try:
                with trio.move_on_after(PATIENCE_S):
                    await item.answered()
            finally:
                if not item.is_answered:
                    self.hurry()
        else:
            self._pending.append(item)
            self._wake()
        if not item.is_answered:
            await item.answered()
        if isinstance(item.answer, Exception):
            raise item.answer
        return item.answer  # type: ignore[no-any-return]  # a batch is heterogeneous; this item holds a T

    def hurry(self) -> None:
        """Somebody waits for what patient ones bring."""
        if self._patient:
            self._pending += self._patient
            self._patient = []
            self._wake()

    def nudge(self) -> None:
        """Run a batch of the closing verb alone."""
        self._pending.append(_Item(_nothing, None))
        self._wake()

    async def run(self) -> None:
        """Commit batches until cancelled. A refused sync of the disk ends it, and with it the server."""
        slow_s = slow_from_s(await _hop_s())
        while True:
            if not self._pending:
                self._sleeper = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abandon)
            self.hurry()  # there is company
            batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
            threaded = self.commit_average_s >= slow_s
            closing, then = self._closing(threaded)
            verbs = [item.verb for item in batch]
            verbs.append(closing)
            try:
                if threaded:
                    self.is_away = True
                    answers = await trio.to_thread.run_sync(self._into.batch, verbs)
                    self.is_away = False
                else:
                    answers = self._into.batch(verbs)
            except Exception as exc:
                self._failed = exc
                for item in batch + self._pending + self._patient:
                    self._answer(item, PlaneError(f"the plane has stopped: {exc}"))
                self._pending, self._patient = [], []
                raise
            self.commits += 1
            self.items += len(batch)
            self.commit_average_s += _SMOOTHING * (self._into.commit_s - self.commit_average_s)
            for item, answer in zip(batch, answers, strict=False):
                if item.then is not None and not isinstance(answer, Exception):
                    item.then(answer)
            if not isinstance(answers[-1], Exception):
                then(answers[-1])
            for item, answer in zip(batch, answers, strict=False):
                self._answer(item, answer)
            if self._pending:
                await trio.lowlevel.cancel_shielded_checkpoint()  # the answered ones get their turn

    def _answer(self, item: _Item[Tx], answer: Any) -> None:
        item.answer, item.is_answered = answer, True
        task, item.task = item.task, None
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Value(None))

    def _wake(self) -> None:
        task, self._sleeper = self._sleeper, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _abandon(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED


def slow_from_s(hop_s: float) -> float:
    """The COMMIT that is slow where a hop to a thread costs so much, in seconds."""
    return min(max(SLOW_COMMIT_S, HOPS * hop_s), STALL_S)


async def _hop_s() -> float:
    """What a call in a thread costs here, in seconds: the least of a few."""
    least = float("inf")
    for _ in range(8):
        before = time.perf_counter()
        await trio.to_thread.run_sync(int)
        least = min(least, time.perf_counter() - before)
    return least


def _nothing(_: Any) -> None:
    return None
