"""The async verbs of a plane that only has blocking ones.

Short verbs share a few threads, and commit together when they come together; new submits leave in one sync with all
that were made while the last ones left. All waits for results of one plane share one watching thread, which reads many
results at a time, so that a thousand awaits cost one. A live stream has a thread of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from lakeshore.wire.frames import ValueReader

from ..plane.contract import Ended
from . import outcomes
from .aio import Promise, in_own_thread, in_thread, keep_all, promise, start
from .errors import DispatchError
from .ids import check_id
from .local_submission import Call, is_held, is_new

T = TypeVar("T")
S = TypeVar("S")
_DONE = object()
IDLE_S = 1.0
TOGETHER = 128
"""So many calls at most are submitted, or read, in one go: others of the plane get their turn."""
MANY = 16
PAUSE_S = 0.002
"""While so many awaits are left the watching thread lets ends gather, so long."""


def async_verbs(plane: Any) -> Any:
    """The async verbs of a plane: its own, or its blocking ones in threads."""
    native = getattr(plane, "aio", None)
    return ThreadedPlane(plane) if native is None else native


class ThreadedPlane:
    """Async verbs over `plane`'s blocking ones."""

    def __init__(self, plane: Any) -> None:
        self._plane = plane

    async def run(self, call: Callable[[], T]) -> T:
        """A short blocking call."""
        return await in_thread(call)

    async def submit(self, queue: str, envelope: bytes, **options: Any) -> str:
        if options.get("new") and is_new(options):
            try:
                return await _shared(_senders, self._plane, _Sender).send((queue, envelope, options))
            except DispatchError as exc:
                if not is_held(exc):
                    raise
        return await in_thread(lambda: self._plane.submit(queue, envelope, **options))

    async def get(self, inv_id: str) -> Any:
        return await in_thread(lambda: self._plane.get(inv_id))

    async def cancel(self, inv_id: str) -> Any:
        return await in_thread(lambda: self._plane.cancel(inv_id))

    async def count(self, queue: str, state: str) -> Any:
        return await in_thread(lambda: self._plane.count(queue, state))

    async def result(self, inv_id: str, *, timeout: float | None) -> bytes:  # noqa: ASYNC109  # as the plane's own
        check_id(inv_id)
        if not hasattr(self._plane, "watch_done"):
            return await in_own_thread(lambda: self._plane.result(inv_id, timeout=timeout), f"result-{inv_id[-6:]}")
        watcher = _shared(_watchers, self._plane, _Watcher)
        told = watcher.add(inv_id)
        try:
            ended = await told.wait(timeout)
        except TimeoutError:
            row = await self.get(inv_id)
            raise outcomes.still(inv_id, "unknown" if row is None else str(row["state"]), timeout) from None
        finally:
            watcher.drop(inv_id, told)
        if ended.state == "succeeded" and isinstance(ended.result, bytes):
            return ended.result
        return await in_thread(lambda: self._plane.result(inv_id, timeout=0))

    async def journal_read(
        self,
        inv_id: str,
        *,
        since: int = -1,
        timeout: float | None = 30.0,  # noqa: ASYNC109  # as the plane's own
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """The plane's own, in a thread."""
        check_id(inv_id)
        pieces = iter(self._plane.journal_read(inv_id, since=since, timeout=timeout))
        puller = _Puller(pieces, f"stream-{inv_id[-6:]}")
        try:
            while (piece := await puller.next()) is not _DONE:
                yield piece
        finally:
            puller.stop()

    async def journal_values(
        self,
        inv_id: str,
        reader: ValueReader,
        *,
        timeout: float | None,  # noqa: ASYNC109  # as the plane's own
    ) -> AsyncGenerator[Any, None]:
        """What the reader makes of the frames, as they come."""
        async with aclosing(self.journal_read(inv_id, since=reader.seq, timeout=timeout)) as pieces:
            async for _seq, data in pieces:
                for value in reader.feed(data):
                    yield value


class _Puller:
    """A thread that takes one item of a blocking iterator whenever it is asked to."""

    def __init__(self, pieces: Any, name: str) -> None:
        self._pieces = pieces
        self._asked = threading.Semaphore(0)
        self._promise: Promise[Any] | None = None
        self._stopped = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def next(self) -> Any:
        made = self._promise = promise()
        self._asked.release()
        return await made.wait()

    def stop(self) -> None:
        self._stopped = True
        self._asked.release()

    def _run(self) -> None:
        while True:
            self._asked.acquire()
            if self._stopped:
                self._pieces.close()
                return
            promise = self._promise
            assert promise is not None
            try:
                piece = next(self._pieces, _DONE)
            except Exception as exc:  # noqa: BLE001  # carried to the awaiting task
                promise.fail(exc)
            else:
                promise.keep(piece)


class _Sender:
    """Submits of a plane: one thread sends what has come while the last ones were sent."""

    def __init__(self, plane: Any) -> None:
        self._plane = weakref.ref(plane)
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Call, Promise[str]]] = deque()
        self._sending = False

    async def send(self, call: Call) -> str:
        """Its id, once it is on disk. Raises what the plane refused it with."""
        made: Promise[str] = promise()
        with self._lock:
            self._waiting.append((call, made))
            first, self._sending = not self._sending, True
        if first:
            start(self._run)
        return await made.wait()

    def _run(self) -> None:
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), TOGETHER))]
                if not batch:
                    self._sending = False
                    return
            answers: list[Any]
            try:
                plane = self._plane()
                assert plane is not None, "whoever awaits holds it"
                answers = plane.submit_together([call for call, _made in batch])
            except Exception as exc:  # noqa: BLE001  # carried to the awaiting tasks
                answers = [exc] * len(batch)
            keep_all(zip((made for _call, made in batch), answers, strict=True))


class _Watcher:
    """One thread that tells all awaits of a plane which invocations have ended."""

    def __init__(self, plane: Any) -> None:
        self._plane = weakref.ref(plane)
        self._lock = threading.Lock()
        self._waiting: dict[str, set[Promise[Ended]]] = {}
        self._running = False
        self._new: list[str] = []
        self._asking = False

    def add(self, inv_id: str) -> Promise[Ended]:
        made: Promise[Ended] = promise()
        with self._lock:
            self._waiting.setdefault(inv_id, set()).add(made)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, args=(time.time(),), name="lakeshore-results", daemon=True).start()
            self._new.append(inv_id)
            first, self._asking = not self._asking, True
        if first:
            start(self._ask)
        return made

    def drop(self, inv_id: str, told: Promise[Ended]) -> None:
        with self._lock:
            waiting = self._waiting.get(inv_id)
            if waiting is not None:
                waiting.discard(told)
                if not waiting:
                    del self._waiting[inv_id]

    def _ask(self) -> None:
        """Whether those have ended that were listed since: what ends from now on the watching thread sees."""
        while True:
            with self._lock:
                new, self._new = self._new, []
                if not new:
                    self._asking = False
                    return
            plane = self._plane()
            assert plane is not None, "whoever awaits holds it"
            try:
                self._tell(plane, new)
            except Exception as exc:  # noqa: BLE001  # carried to the awaiting tasks
                self._fail(new, exc)

    def _run(self, since: float) -> None:
        idle_since = time.monotonic()
        while True:
            plane = self._plane()
            with self._lock:
                if self._waiting:
                    idle_since = time.monotonic()
                if plane is None or (not self._waiting and time.monotonic() - idle_since > IDLE_S):
                    self._running = False
                    return
            try:
                ended, since = plane.watch_done(since, IDLE_S)
                with self._lock:
                    # A clock set back would hide ends: now and then, ask for each.
                    asked = [id_ for id_ in ended if id_ in self._waiting] if ended else list(self._waiting)
                    many = len(self._waiting) > MANY
                self._tell(plane, asked)
            except Exception as exc:  # noqa: BLE001  # every await must hear that the plane is gone
                with self._lock:
                    self._running = False
                    waiting = list(self._waiting)
                self._fail(waiting, exc)
                return
            del plane
            if many:  # its bell rings on meanwhile, so that workers let endings gather
                time.sleep(PAUSE_S)

    def _tell(self, plane: Any, ids: Sequence[str]) -> None:
        """Bring those of these that have ended to who awaits them."""
        for some in (ids[at : at + TOGETHER] for at in range(0, len(ids), TOGETHER)):
            ended = [one for one in plane.endings(some) if one.state != "pending"]
            with self._lock:
                kept = [(told, one) for one in ended for told in self._waiting.pop(one.id, ())]
            keep_all(kept)

    def _fail(self, ids: Sequence[str], error: Exception) -> None:
        with self._lock:
            kept = [(told, error) for id_ in ids for told in self._waiting.pop(id_, ())]
        keep_all(kept)


_senders: weakref.WeakKeyDictionary[Any, tuple[int, _Sender]] = weakref.WeakKeyDictionary()
_watchers: weakref.WeakKeyDictionary[Any, tuple[int, _Watcher]] = weakref.WeakKeyDictionary()


def _shared(kept: weakref.WeakKeyDictionary[Any, tuple[int, S]], plane: Any, make: Callable[[Any], S]) -> S:
    """The one of this plane in this process."""
    found = kept.get(plane)
    if found is None or found[0] != os.getpid():
        found = kept[plane] = (os.getpid(), make(plane))
    return found[1]
