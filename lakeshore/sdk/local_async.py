"""The async verbs of a plane that only has blocking ones.

Short verbs share a few threads, and commit together when they come together. All waits for results of one plane share
one watching thread, so that a thousand awaits cost one. A live stream has a thread of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from lakeshore.wire.frames import ValueReader

from . import outcomes
from .aio import Promise, in_own_thread, in_thread, promise
from .ids import check_id

T = TypeVar("T")
_DONE = object()
IDLE_S = 1.0


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
        watcher = _watcher(self._plane)
        told = watcher.add(inv_id)
        try:
            await told.wait(timeout)
        except TimeoutError:
            row = await self.get(inv_id)
            raise outcomes.still(inv_id, "unknown" if row is None else str(row["state"]), timeout) from None
        finally:
            watcher.drop(inv_id, told)
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


class _Watcher:
    """One thread that tells all awaits of a plane which invocations have ended."""

    def __init__(self, plane: Any) -> None:
        self._plane = weakref.ref(plane)
        self._lock = threading.Lock()
        self._waiting: dict[str, set[Promise[None]]] = {}
        self._running = False

    def add(self, inv_id: str) -> Promise[None]:
        made: Promise[None] = promise()
        plane = self._plane()
        with self._lock:
            self._waiting.setdefault(inv_id, set()).add(made)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, args=(time.time(),), name="lakeshore-results", daemon=True).start()
        # Asked after it is listed, so that an end in between is seen by one of the two.
        if plane is not None and plane.ended(inv_id):
            self._finish([inv_id], None)
        return made

    def drop(self, inv_id: str, told: Promise[None]) -> None:
        with self._lock:
            waiting = self._waiting.get(inv_id)
            if waiting is not None:
                waiting.discard(told)
                if not waiting:
                    del self._waiting[inv_id]

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
                if not ended:  # a clock set back would hide ends: now and then, ask for each
                    with self._lock:
                        waiting = list(self._waiting)
                    ended = [id_ for id_ in waiting if plane.ended(id_)]
            except Exception as exc:  # noqa: BLE001  # every await must hear that the plane is gone
                with self._lock:
                    self._running = False
                    waiting = list(self._waiting)
                self._finish(waiting, exc)
                return
            del plane
            self._finish(ended, None)

    def _finish(self, ids: list[str], error: Exception | None) -> None:
        with self._lock:
            waiting = [told for id_ in ids for told in self._waiting.pop(id_, ())]
        for told in waiting:
            told.keep(None) if error is None else told.fail(error)


_watchers: weakref.WeakKeyDictionary[Any, tuple[int, _Watcher]] = weakref.WeakKeyDictionary()


def _watcher(plane: Any) -> _Watcher:
    found = _watchers.get(plane)
    if found is None or found[0] != os.getpid():
        found = _watchers[plane] = (os.getpid(), _Watcher(plane))
    return found[1]
