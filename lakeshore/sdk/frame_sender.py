"""Sends the frames of one streaming body in runs that its own round trips clock: what gathers meanwhile leaves next.

The body goes on while frames travel; it is held back only when too much waits. `put` is the hot path: it takes no lock
and wakes nobody while the sending thread is busy.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable

from . import http_wire
from .errors import DispatchError
from .http_client import HttpClient
from .sources import Work
from .watcher import patience

log = logging.getLogger(__name__)

MAX_FRAMES = 4096
MAX_BYTES = 8 * 1024 * 1024
RUN_FRAMES = 1024  # a server stores so many in a few milliseconds, during which others wait
SLOW_RUN_FRAMES = 2048  # where its disk takes longer than that
SLOW_S = 0.01
RUN_BYTES = 1024 * 1024


class FrameSender:
    """`put` from the body's thread; a thread of its own sends, from the first frame on, while `wanted()`."""

    def __init__(self, client: HttpClient, work: Work, wanted: Callable[[], bool]) -> None:
        self._client, self._work, self._wanted = client, work, wanted
        self._frames: deque[bytes] = deque()  # consecutive: the body's thread appends, the sending one takes
        self._put_bytes = 0  # the body's thread counts these
        self._taken_bytes = 0  # and the sending one these
        self._first = 0  # the seq of the first in `_frames`
        self._most = RUN_FRAMES
        self._changed = threading.Condition()  # for whoever waits for the sending thread
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._asleep = False
        self._sending = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, seq: int, frame: bytes) -> None:
        """Queue a frame, `seq` rising by one. Raises DispatchError when one was refused: the claim is lost."""
        if self._error is not None or self._is_full():
            self._make_room()
        if self._thread is None:
            self._first = seq
            self._thread = threading.Thread(target=self._run, name="lakeshore-frames", daemon=True)
            self._thread.start()
        self._put_bytes += len(frame)
        self._frames.append(frame)
        # The sending thread says that it sleeps and looks once more before it does: one of the two sees the other.
        if self._asleep:
            self._asleep = False
            self._bell.put(None)

    def flush(self) -> None:
        """Return when everything is stored."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._is_idle())
        self._check()

    def close(self, wait_s: float) -> None:
        """The body has ended: what it yielded before it failed gets `wait_s` to arrive, then the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._is_idle(), wait_s)
            self._closed = True
            self._frames.clear()
        self._bell.put(None)

    def _is_full(self) -> bool:
        return len(self._frames) >= MAX_FRAMES or self._put_bytes - self._taken_bytes >= MAX_BYTES

    def _is_idle(self) -> bool:
        return not (self._frames or self._sending)

    def _make_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or not self._is_full())
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise DispatchError(f"the frames of {self._work.id} were not taken: {self._error}") from self._error

    # -- the sending thread

    def _run(self) -> None:
        while True:
            self._sleep_until_work()
            with self._changed:
                if self._closed:
                    return
                self._sending = True
                first, run = self._next_run()
                self._changed.notify_all()
            error: Exception | None = None
            began = time.monotonic()
            try:
                self._send(first, run)
                self._most = RUN_FRAMES if time.monotonic() - began < SLOW_S else SLOW_RUN_FRAMES
            except Exception as exc:  # noqa: BLE001  # the body's thread raises it
                error = exc
            with self._changed:
                self._sending = False
                self._error = error
                self._changed.notify_all()
                if error is not None:
                    return

    def _sleep_until_work(self) -> None:
        while not (self._frames or self._closed):
            self._asleep = True
            if self._frames or self._closed:
                self._asleep = False
                return
            self._bell.get()

    def _next_run(self) -> tuple[int, list[bytes]]:
        frames, first = self._frames, self._first
        run: list[bytes] = []
        size = 0
        while frames and size < RUN_BYTES and len(run) < self._most:
            run.append(frames.popleft())
            size += len(run[-1])
        self._first = first + len(run)
        self._taken_bytes += size
        return first, run

    def _send(self, first: int, run: list[bytes]) -> None:
        waits = patience()
        while True:
            try:
                return self._send_once(first, run)
            except DispatchError as exc:
                # A server that is away, or has no room, is waited for as long as the claim is ours (K-13). What it has
                # of these frames already, it knows (K-24).
                if self._closed or not self._wanted() or not http_wire.is_passing(exc):
                    raise
                log.warning("%s; trying again", exc)
                time.sleep(next(waits))

    def _send_once(self, first: int, run: list[bytes]) -> None:
        body = {"invocation_id": self._work.id, "claim": self._work.claim, "seq": first}
        body |= {"bytes": run[0]} if len(run) == 1 else {"frames": b"".join(run)}
        self._client.call("POST", http_wire.CHUNK, body, f"posting frames of {self._work.id}")
