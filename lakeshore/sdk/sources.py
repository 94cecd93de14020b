"""Where a worker's jobs come from and where their endings go: one interface over every plane.

A source hands out one job at a time and is told how it ended. What it prefetches, batches and renews meanwhile is its
own affair. `PlaneSource` works with anything that has the documented verbs; an HTTP plane brings its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from lakeshore.wire.values import value

from .errors import DispatchError

log = logging.getLogger(__name__)


@value
class Ending:
    """How one execution ended: a packed result, or an error map `{type, message, traceback?}`.

    `last_seq` is the seq of the last frame that the body yielded, -1 for a stream without any, None for a body that is
    no stream. `retry` allows another attempt.
    """

    outcome: str
    result: bytes = b""
    error: dict[str, Any] | None = None
    retry: bool = False
    last_seq: int | None = None


class Work(Protocol):
    """One claimed invocation, as `dispatch.Claimed` has it."""

    @property
    def id(self) -> str: ...
    @property
    def envelope(self) -> bytes: ...
    @property
    def attempt(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def claim(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def timeout_s(self) -> float | None: ...


class FrameSink(Protocol):
    """Where one job's frames go. `put` may return before the frame is stored; `flush` returns when all are."""

    def put(self, seq: int, frame: bytes) -> None: ...
    def flush(self) -> None: ...


class Source(Protocol):
    """A worker's end of a plane."""

    local: bool

    def next(self, wait_s: float) -> Work | None:
        """The next job, waiting up to `wait_s` seconds; None when there is none (or the source drains)."""

    def begin(self, work: Work, stop: Callable[[str], None]) -> None:
        """The body starts now. `stop(why)` may be called from another thread when the claim is lost or cancelled."""

    def end(self, work: Work, ending: Ending) -> None:
        """The body has ended. Never raises for a claim that was lost: that ending is simply not wanted any more."""

    def sink(self, work: Work) -> FrameSink: ...

    def drain(self) -> None:
        """Take no more jobs: what is prefetched goes back."""

    def close(self) -> None:
        """Tell the plane what is still unsaid, give back what was not begun, and let go."""


class PlaneSource:
    """The documented verbs as a source: one claim at a time, each ending settled before the next claim."""

    def __init__(
        self, plane: Any, queue: str, worker: str, *, kind: str, temperature: float, retries: int, poll_s: float
    ) -> None:
        self.plane = plane
        self.local = bool(getattr(plane, "local", True))
        self._queue, self._worker, self._poll_s, self._retries = queue, worker, poll_s, retries
        self._order: dict[str, Any] = {"kind": kind, "temperature": temperature}
        self._draining = False

    def next(self, wait_s: float) -> Work | None:
        if self._draining:
            return None
        found: Work | None = self.plane.claim(self._queue, self._worker, **self._order)
        if found is None and wait_s > 0:
            _wait(self.plane, self._queue, wait_s, self._poll_s)
            found = self.plane.claim(self._queue, self._worker, **self._order)
        return found

    def begin(self, work: Work, stop: Callable[[str], None]) -> None:
        """A claim on these planes is begun when it is made."""

    def end(self, work: Work, ending: Ending) -> None:
        fence = {"claim": work.claim} if getattr(work, "claim", 0) else {}
        try:
            if ending.outcome == "succeeded":
                stream = {} if ending.last_seq is None else {"last_seq": ending.last_seq}
                self.plane.ack(work.id, self._worker, result=ending.result, **fence, **stream)
            elif fence:
                self.plane.nack(
                    work.id,
                    self._worker,
                    error=ending.error,
                    retry=ending.retry,
                    retries=self._retries,
                    outcome=ending.outcome,
                    **fence,
                )
            else:
                self.plane.nack(work.id, self._worker, error=ending.error, retry=ending.retry)
        except DispatchError as exc:
            log.warning("the ending of %s was not taken: %s", work.id, exc)

    def sink(self, work: Work) -> FrameSink:
        return _DirectSink(self.plane, work)

    def drain(self) -> None:
        self._draining = True

    def close(self) -> None:
        """Nothing is held between jobs."""


class _DirectSink:
    def __init__(self, plane: Any, work: Work) -> None:
        self._plane, self._work = plane, work

    def put(self, seq: int, frame: bytes) -> None:
        fence = {"claim": self._work.claim} if getattr(self._work, "claim", 0) else {}
        self._plane.journal_append(self._work.id, seq, frame, **fence)

    def flush(self) -> None:
        """Every put was stored when it returned."""


def _wait(plane: Any, queue: str, wait_s: float, poll_s: float) -> None:
    wait = getattr(plane, "wait_for_work", None)
    if wait is not None:
        wait(queue, wait_s)
    else:
        time.sleep(min(wait_s, poll_s))
