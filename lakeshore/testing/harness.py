"""What a plane offers to be tested: handles with the documented verbs, a way to lose a worker, a pause between steps.

A case knows nothing but this. `between` is called before every verb that a case's own thread calls, so a harness can
kill and restart a server there: every case then is a case of durability too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..plane.contract import Appended, Cancelled, Poll, PollAnswer, Report, Settled


class Job(Protocol):
    """A claimed invocation."""

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


class Verbs(Protocol):
    """The documented dispatch verbs (python-sdk/dispatch), as `sdk.dispatch.Dispatch` has them."""

    def submit(
        self,
        queue: str,
        envelope: bytes,
        *,
        id: str,
        key: str | None = None,
        priority: float = 0.0,
        parent: str | None = None,
        run_config: dict[str, Any] | None = None,
        retry_failed: str | None = None,
        delay: float | None = None,
        due: float | None = None,
    ) -> str: ...
    def claim(self, queue: str, worker_id: str, *, kind: str = "fifo", temperature: float = 1.0) -> Job | None: ...
    def ack(
        self,
        inv_id: str,
        worker_id: str,
        *,
        result: bytes | None = None,
        claim: int | None = None,
        last_seq: int | None = None,
    ) -> None: ...
    def nack(
        self,
        inv_id: str,
        worker_id: str,
        *,
        error: object,
        retry: bool = True,
        claim: int | None = None,
        retries: int | None = None,
        outcome: str = "failed",
    ) -> None: ...
    def cancel(self, inv_id: str) -> bool: ...
    def retry(self, inv_id: str, *, claim: int | None = None) -> str: ...
    def get(self, inv_id: str) -> dict[str, Any] | None: ...
    def count(self, queue: str, state: str = "queued") -> int: ...
    def result(self, inv_id: str, *, timeout: float | None = 30.0, poll: float = 0.02) -> bytes: ...
    def journal_append(
        self, inv_id: str, seq: int | None, frame_bytes: bytes, *, final: bool = False, claim: int | None = None
    ) -> int: ...
    def journal_read(
        self, inv_id: str, *, since: int = -1, timeout: float | None = 30.0, poll: float = 0.02
    ) -> Iterator[tuple[int, bytes]]: ...
    def journal_trim(self, inv_id: str, *, keep_last: int = 0) -> int: ...
    def topic_post(self, queue: str, name: str, body: bytes, *, final: bool = False) -> int: ...
    def topic_read(
        self, queue: str, name: str, *, since: int = -1, timeout: float | None = 5.0
    ) -> Iterator[tuple[int, bytes]]: ...


class Harness(Protocol):
    """One plane under test, empty at the start of a case.

    `seeded`: `claim` takes `draw=`, the number that decides a boltzmann sample. `purges`: `purge` works here.
    """

    seeded: bool
    purges: bool

    def plane(self, ns: str = "default") -> Verbs:
        """A handle. Called again for the same namespace it is the same handle."""

    def another(self, ns: str = "default") -> Verbs:
        """A second handle on the same rows, as another process has it."""

    def lose(self, inv_id: str, claim: int, ns: str = "default") -> None:
        """Make the holder of this claim look dead, and wait until the plane has noticed."""

    def purge(self) -> None:
        """Forget every row that has ended."""

    def set_queue(self, name: str, **fields: Any) -> None:
        """What the row of a queue says from now on: fields of `plane.queues.QueueRow`; what is not named is unset."""

    def between(self) -> None:
        """Called between any two steps."""


class PollHarness(Protocol):
    """One plane seen through the worker protocol. Rows are in namespace `default`; times are the harness's."""

    def submit(self, inv_id: str, *, queue: str = "default", max_attempts: int = 3) -> None: ...
    def register(self, worker: str, session: str) -> bool: ...
    def adopt(self, worker: str, session: str, pairs: list[tuple[str, int]]) -> list[tuple[str, int]]: ...
    def poll(self, request: Poll) -> PollAnswer:
        """Raises Superseded."""

    def settle(self, report: Report) -> Settled: ...
    def append(self, inv_id: str, claim: int, seq: int) -> Appended:
        """One frame of a few bytes. Raises NotHeld, Gap."""

    def lose(self, inv_id: str, claim: int) -> None:
        """The lease of this claim expires. Nothing happens when it is not current."""

    def cancel(self, inv_id: str) -> Cancelled:
        """With a deadline that does not pass by itself within a case."""

    def deadline(self, inv_id: str, claim: int) -> None:
        """The deadline that a cancel gave this claim passes."""

    def retry(self, inv_id: str, claim: int) -> None:
        """By hand. Raises IllegalTransition."""

    def row(self, inv_id: str) -> dict[str, Any]:
        """Its row: at least `state`, `claim`, `attempt`, `started`, `cancel_requested`, `error`, `last_frame`."""

    def restart(self) -> None:
        """The server is killed and started again, or its file is closed and opened again."""


class Stepped:
    """A harness whose `between` runs before each verb of the thread that made it."""

    def __init__(self, inner: Harness) -> None:
        self.inner = inner
        self.seeded, self.purges = inner.seeded, inner.purges
        self._thread = threading.get_ident()

    def plane(self, ns: str = "default") -> Verbs:
        stepped: Verbs = self._wrap(self.inner.plane(ns))
        return stepped

    def another(self, ns: str = "default") -> Verbs:
        stepped: Verbs = self._wrap(self.inner.another(ns))
        return stepped

    def lose(self, inv_id: str, claim: int, ns: str = "default") -> None:
        self.between()
        self.inner.lose(inv_id, claim, ns)

    def purge(self) -> None:
        self.between()
        self.inner.purge()

    def set_queue(self, name: str, **fields: Any) -> None:
        self.between()
        self.inner.set_queue(name, **fields)

    def between(self) -> None:
        if threading.get_ident() == self._thread:
            self.inner.between()

    def _wrap(self, plane: Verbs) -> Any:
        return _SteppedVerbs(plane, self.between)  # it has whatever the plane has


class _SteppedVerbs:
    def __init__(self, plane: Verbs, between: Callable[[], None]) -> None:
        self._plane, self._between = plane, between

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._plane, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            self._between()
            return verb(*args, **kwargs)

        return step
