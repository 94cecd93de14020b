"""`SyncQueue`, its async twin `Queue`, and `Topic`: a name on a plane, and the verbs that producers and hand-written
workers use.

The async verbs run natively on asyncio and on trio: an HTTP plane answers them on the loop itself, the local plane
through a few threads that all queues of a process share.
Reference: python-sdk/queue.md.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from types import BuiltinFunctionType, FunctionType
from typing import Any

from lakeshore import wire
from lakeshore.sdk import delays, outcomes
from lakeshore.wire.frames import ValueReader, end_frame

from .brief import briefly
from .claimed import check_kind
from .default_plane import default_dispatch
from .ids import check_name, new_id
from .jobs import Job, decode, values_of, worker_name
from .local_async import async_verbs
from .options import check_key, check_number, check_plane

__all__ = ["Job", "Queue", "SyncQueue", "Topic"]


class SyncQueue:
    """A queue, blocking: a name on a plane, made without asking anybody. Safe to share among threads.

    `dispatch` is any plane (default: the process's: `LAKESHORE_URL`, else a file below `~/.lakeshore`). `kind` is the
    order in which `claim` takes: `fifo`, `filo` or `boltzmann`, which draws at random by priority, the more evenly the
    higher `temperature` (above 0). Raises DispatchError for another kind.
    """

    def __init__(self, name: str, *, dispatch: Any = None, kind: str = "fifo", temperature: float = 1.0) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a queue's name is a str, got {type(name).__name__}")
        with briefly:
            check_kind(kind)
            check_plane(dispatch, "dispatch")
            self.plane = default_dispatch() if dispatch is None else dispatch
        self.name = name
        self.kind = kind
        self.temperature = temperature
        self._worker = ("", -1)
        self._posted: dict[str, int] = {}
        self._streams: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, dispatch={self.plane!r})"

    @property
    def dispatch(self) -> Any:
        """The plane this queue is bound to."""
        return self.plane

    # -- producers

    def submit(
        self,
        payload: Any = None,
        *,
        envelope: Any = None,
        key: str | None = None,
        priority: float = 0.0,
        delay: delays.Delay | None = None,
        at: datetime | None = None,
        _key: str | None = None,
        _priority: float | None = None,
        _delay: delays.Delay | None = None,
        _at: datetime | None = None,
    ) -> str:
        """Put a payload (any value the codec knows, a Thunk, or a ready `envelope=`) on the queue; its invocation id.

        The same `key` on the same queue gives the id of the first submit. Nobody gets it before `delay` (seconds or a
        timedelta) has passed, or before the instant `at` (a datetime with a time zone).
        """
        with briefly:
            data, how = _ready(
                self.plane,
                self.name,
                payload,
                envelope,
                key or _key,
                priority if _priority is None else _priority,
                delay if _delay is None else _delay,
                at if _at is None else _at,
            )
            sent: str = self.plane.submit(self.name, data, **how)
        return sent

    def result(self, inv_id: str, *, timeout: float | None = 30.0) -> Any:
        """Wait for the result of an invocation of this plane, from any process.

        Raises DispatchError when it failed or was cancelled, TimeoutError when the wait ends first: the id stays valid.
        """
        with briefly:
            try:
                return unpacked(self.plane.result(inv_id, timeout=timeout))
            except KeyboardInterrupt as interrupted:
                interrupted.add_note(outcomes.goes_on(self.name, inv_id))
                raise

    def call(
        self,
        payload: Any,
        *,
        timeout: float | None = 30.0,
        envelope: Any = None,
        key: str | None = None,
        priority: float = 0.0,
        delay: delays.Delay | None = None,
        at: datetime | None = None,
    ) -> Any:
        """`submit` and `result`, both within the timeout; a `delay` comes on top of it."""
        id_ = ""
        with briefly:
            try:
                data, how = _ready(self.plane, self.name, payload, envelope, key, priority, delay, at)
                timeout, id_ = delays.after(timeout, how), how["id"]
                at_once = getattr(self.plane, "submit_and_wait", None)
                if at_once is not None:
                    return unpacked(at_once(self.name, data, timeout=timeout, **how))
                id_ = self.plane.submit(self.name, data, **how)
                return unpacked(self.plane.result(id_, timeout=timeout))
            except KeyboardInterrupt as interrupted:
                if id_:
                    interrupted.add_note(outcomes.goes_on(self.name, id_))
                raise

    def stream(self, inv_id: str, *, since: int = -1, timeout: float | None = 30.0) -> Iterator[Any]:
        """The values that an invocation yields, in order, live, until it ends; what it yielded before comes first.

        `since` is the number of the last value seen, -1 for none: values are numbered from 0. Raises TimeoutError
        after a silence of `timeout` seconds (None: never), InvocationFailed when the body failed or was stopped, and
        DispatchError for an unknown or purged id. A lost connection is resumed.
        """
        reader = ValueReader(since)
        direct = getattr(self.plane, "journal_values", None)
        with briefly:
            try:
                if direct is not None:
                    yield from direct(inv_id, reader, timeout=timeout)
                else:
                    for _seq, data in self.plane.journal_read(inv_id, since=since, timeout=timeout):
                        yield from reader.feed(data)
            except KeyboardInterrupt as interrupted:
                interrupted.add_note(outcomes.goes_on(self.name, inv_id, reader.seq))
                raise
            except wire.RemoteFailure as exc:
                raise outcomes.of_stream(inv_id, exc) from None
        if not reader.ended:
            check_end(inv_id, self.plane.get(inv_id))

    def cancel(self, inv_id: str) -> bool:
        """Cancel what has not begun: True when this call did it, False when it had ended or runs.

        At a control plane a running body is asked to stop; on the local plane it goes on, and is not tried again. A
        success that is reported first wins. Raises DispatchError for an unknown id.
        """
        with briefly:
            return bool(self.plane.cancel(inv_id))

    def count(self, state: str = "queued") -> int:
        """How many invocations of this queue are in one state: queued, running, succeeded, failed, cancelled (at a
        control plane: killed) or timeout.
        """
        with briefly:
            return int(self.plane.count(self.name, state))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    def topic(self, name: str | None = None) -> Topic:
        """A channel of values that belongs to no invocation; without a name, a new one. Nothing is sent."""
        return Topic(name or f"topic-{new_id().lower()}", queue=self.name, plane=self.plane)

    # -- workers

    @property
    def worker_id(self) -> str:
        """Who claims: one name per queue object and process."""
        if self._worker[1] != os.getpid():
            self._worker = (worker_name(), os.getpid())
        return self._worker[0]

    def claim(self) -> Job | None:
        """Take the next job, or None at once when there is none. Exactly one claimer gets it, and its attempt counts.

        `payload` is the submitted value, or the Envelope of a UDF call (`dls.run_worker` runs those). Whoever claims
        must `ack` or `nack`; the claim is lost, and the job queued again, when this process dies.
        """
        found = self.plane.claim(self.name, self.worker_id, kind=self.kind, temperature=self.temperature)
        if found is None:
            return None
        claim = getattr(found, "claim", 0)
        self._posted[found.id] = getattr(found, "first_seq", 0)
        return Job(id=found.id, payload=decode(found.envelope), attempt=found.attempt, queue=found.queue, claim=claim)

    def ack(self, job: Job, result: Any = None) -> None:
        """The job succeeded with `result`, any value the codec knows; on disk when this returns.

        Raises DispatchError when the claim is not current any more: somebody else has the job, or it was cancelled.
        """
        first = self._posted.pop(job.id, 0)
        posted = {"last_seq": first - 1} if job.id in self._streams else {}
        self._streams.discard(job.id)
        self.plane.ack(job.id, self.worker_id, result=wire.pack(result), **fence(job), **posted)

    def nack(self, job: Job, *, error: Any, retry: bool = True) -> None:
        """The attempt failed: the job runs again while attempts remain and `retry` is true.

        `error` is an exception, a text or `{"type", "message", "traceback"?}`. Raises DispatchError as `ack` does.
        """
        self._posted.pop(job.id, None)
        self.plane.nack(job.id, self.worker_id, error=error, retry=retry, **fence(job))

    @contextlib.contextmanager
    def working(self) -> Iterator[Job | None]:
        """Claim one job for the block: acked at its end, nacked when it raises. None when the queue is empty."""
        job = self.claim()
        if job is None:
            yield None
            return
        try:
            yield job
        except BaseException as exc:
            self.nack(job, error=outcomes.as_error(exc), retry=isinstance(exc, Exception))
            raise
        self.ack(job)

    def post(self, inv_id: str, value: Any, *, final: bool = False) -> int:
        """Append one value to the stream of a job claimed here; the seq it got. With `final` no more values follow.

        The END itself is written when the job is acked.
        """
        if final and value is not None:
            self.post(inv_id, value)
        seq = self._posted.get(inv_id, 0)
        self._streams.add(inv_id)
        if final:
            return int(self.plane.journal_append(inv_id, seq, end_frame(seq), final=True))
        frame = wire.Frame(kind=wire.FrameKind.VALUE, seq=seq, body=value, meta=None).to_bytes()
        self.plane.journal_append(inv_id, seq, frame)
        self._posted[inv_id] = seq + 1
        return seq


class Queue:
    """A queue, async: every verb is awaited, on asyncio or on trio. `q.sync` is the same queue, blocking."""

    def __init__(self, name: str, **options: Any) -> None:
        self._q = SyncQueue(name, **options)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, dispatch={self._q.plane!r})"

    @property
    def sync(self) -> SyncQueue:
        """The blocking queue with the same plane, name and order."""
        return self._q

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._q.name

    @property
    def _plane(self) -> Any:
        return async_verbs(self._q.plane)

    async def submit(
        self,
        payload: Any = None,
        *,
        envelope: Any = None,
        key: str | None = None,
        priority: float = 0.0,
        delay: delays.Delay | None = None,
        at: datetime | None = None,
    ) -> str:
        """As `SyncQueue.submit`."""
        with briefly:
            data, how = _ready(self._q.plane, self.name, payload, envelope, key, priority, delay, at)
            sent: str = await self._plane.submit(self.name, data, **how)
        return sent

    async def result(self, inv_id: str, *, timeout: float | None = 30.0) -> Any:  # noqa: ASYNC109  # documented
        """As `SyncQueue.result`."""
        with briefly:
            return unpacked(await self._plane.result(inv_id, timeout=timeout))

    async def call(
        self,
        payload: Any,
        *,
        timeout: float | None = 30.0,  # noqa: ASYNC109  # documented
        envelope: Any = None,
        key: str | None = None,
        priority: float = 0.0,
        delay: delays.Delay | None = None,
        at: datetime | None = None,
    ) -> Any:
        """As `SyncQueue.call`."""
        with briefly:
            data, how = _ready(self._q.plane, self.name, payload, envelope, key, priority, delay, at)
            timeout, plane = delays.after(timeout, how), self._plane
            at_once = getattr(plane, "submit_and_wait", None)
            if at_once is not None:
                return unpacked(await at_once(self.name, data, timeout=timeout, **how))
            sent = await plane.submit(self.name, data, **how)
            return unpacked(await plane.result(sent, timeout=timeout))

    async def stream(
        self,
        inv_id: str,
        *,
        since: int = -1,
        timeout: float | None = 30.0,  # noqa: ASYNC109  # documented
    ) -> AsyncIterator[Any]:
        """As `SyncQueue.stream`."""
        plane = self._plane
        reader = ValueReader(since)
        with briefly:
            try:
                async with contextlib.aclosing(plane.journal_values(inv_id, reader, timeout=timeout)) as values:
                    async for value in values:
                        yield value
            except wire.RemoteFailure as exc:
                raise outcomes.of_stream(inv_id, exc) from None
        if not reader.ended:
            check_end(inv_id, await plane.get(inv_id))

    async def cancel(self, inv_id: str) -> bool:
        """As `SyncQueue.cancel`."""
        with briefly:
            return bool(await self._plane.cancel(inv_id))

    async def count(self, state: str = "queued") -> int:
        """As `SyncQueue.count`."""
        with briefly:
            return int(await self._plane.count(self.name, state))

    async def claim(self) -> Job | None:
        """As `SyncQueue.claim`."""
        found: Job | None = await self._plane.run(self._q.claim)
        return found

    async def ack(self, job: Job, result: Any = None) -> None:
        """As `SyncQueue.ack`."""
        await self._plane.run(lambda: self._q.ack(job, result))

    async def nack(self, job: Job, *, error: Any, retry: bool = True) -> None:
        """As `SyncQueue.nack`."""
        await self._plane.run(lambda: self._q.nack(job, error=error, retry=retry))

    def topic(self, name: str | None = None) -> Topic:
        """As `SyncQueue.topic`: not awaited, and the same type."""
        return self._q.topic(name)


class Topic:
    """A channel of values on a queue: posted by anybody, read live by anybody, from any point."""

    def __init__(self, name: str, *, queue: str, plane: Any) -> None:
        self.name = name
        self._queue = queue
        self._plane = plane

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, queue={self._queue!r})"

    def post(self, value: Any, *, final: bool = False) -> int:
        """Append a value; its seq, from 0. On disk when this returns.

        With `final` the topic's END is appended (after the value, when there is one): its readers stop.
        """
        if final and value is not None:
            self._plane.topic_post(self._queue, self.name, wire.pack(value))
        return int(self._plane.topic_post(self._queue, self.name, wire.pack(value), final=final))

    def listen(self, since: int = -1, timeout: float | None = 5.0) -> Any:
        """The next value after `since`, or None after `timeout` seconds (None: waits for ever)."""
        try:
            return next(self.stream(since, timeout), None)
        except TimeoutError:
            return None

    def stream(self, since: int = -1, timeout: float | None = 5.0) -> Iterator[Any]:
        """Values after `since`, live, until the END. A silence of `timeout` seconds raises TimeoutError."""
        pieces = self._plane.topic_read(self._queue, self.name, since=since, timeout=timeout)
        yield from values_of(pieces, f"topic {self.name}")


for _verb in (Queue.submit, Queue.result, Queue.call, Queue.cancel, Queue.count, Queue.claim, Queue.ack, Queue.nack):
    # Python's own warning about a call that was never awaited shows this name.
    _verb.__qualname__ += " (await it, or use dls.SyncQueue, which blocks)"


def packed(payload: Any, envelope: Any, key: str | None) -> tuple[str, bytes]:
    """(id, bytes) of a submit."""
    if envelope is None and hasattr(payload, "to_envelope"):
        envelope = payload.to_envelope(key=key)
    if envelope is None:
        return new_id(), wire.pack(payload)
    if isinstance(envelope, wire.Envelope):
        return envelope.id, envelope.to_bytes()
    return wire.Envelope.from_bytes(envelope).id, bytes(envelope)


def _ready(
    plane: Any,
    queue: str,
    payload: Any,
    envelope: Any,
    key: str | None,
    priority: float,
    delay: delays.Delay | None,
    at: datetime | None,
) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a submit, and the plane's words for the rest of it."""
    check_name(queue)
    check_key(key, "key")
    check_number(priority, "priority")
    try:
        id_, data = packed(payload, envelope, key)
    except TypeError:
        if (mistake := _of_a_function(payload)) is None:
            raise
        raise mistake from None
    how = {"id": id_, "key": key, "priority": priority, **delays.when(delay, at)}
    if envelope is None and getattr(plane, "trusts_new_ids", False):
        how["new"] = True  # a caller's own Envelope may have been sent before
    return data, how


def _of_a_function(payload: object) -> TypeError | None:
    """What to say to who submits a function instead of a call of it."""
    from .functions import UDF  # wall: only a mistake pays for it

    if not isinstance(payload, UDF | FunctionType | BuiltinFunctionType):
        return None
    name = payload.__name__
    how = (
        f"{name}.submit(…) submits one"
        if isinstance(payload, UDF)
        else f"submit dls.thunk({name}, …), or make it a @udf"
    )
    return TypeError(f"{name} is a function, not a call of it: {how}")


def unpacked(result: bytes) -> Any:
    """The value of a packed result; an empty one is None."""
    return wire.unpack(result) if result else None


def fence(job: Job) -> dict[str, int]:
    """The claim of a job, for planes that know claims."""
    return {"claim": job.claim} if job.claim else {}


def check_end(inv_id: str, row: dict[str, Any] | None) -> None:
    """A stream ended without an END: say so when the invocation did not succeed."""
    state = "" if row is None else str(row["state"])
    if state in ("failed", "timeout", "cancelled", "killed"):
        assert row is not None
        raise outcomes.failure(inv_id, "killed" if state == "cancelled" else state, row.get("error"))
