"""What a body prints in a worker process: to the worker's terminal as ever, and to the control plane.

Kept is what goes through `sys.stdout` and `sys.stderr` of the process while a body runs there, in whatever thread:
`print`, `logging`, warnings, `sys.stdout.buffer`. What C code and child processes write to the file descriptors
themselves is on the worker's terminal alone. A worker process runs one body at a time, so nothing mixes.

Rules: a body that prints nothing costs nothing. The first bytes start a thread; what gathers while a batch travels
leaves with the next, `PACE_S` apart. `end` returns when everything has arrived, before the ending is told, or after
`FAREWELL_S` (where the server is away, `AWAY_S` more). More than `MOST_BYTES` do not wait: the oldest are given up, but
for the beginning. A server that is away is tried again; one that refuses gets no more of that job. A log never fails
its job.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections import deque
from typing import Any

from lakeshore.net.errors import NetError, ProtocolViolation

from . import http_wire
from .errors import DispatchError
from .http_client import HttpClient
from .sources import Work
from .watcher import patience

log = logging.getLogger(__name__)

STREAMS = ("stdout", "stderr")
MOST_BYTES = 1024 * 1024
MOST_PARTS = 4096
PART_BYTES = 32 * 1024
HEAD_BYTES, HEAD_PARTS = 64 * 1024, 16  # of the beginning nothing is given up
BATCH_BYTES = 128 * 1024
PACE_S = 0.05
FAREWELL_S = 5.0
AWAY_S = 30.0


class _Part:
    """Bytes of one stream, the first of them at `offset`."""

    __slots__ = ("data", "offset", "stream")

    def __init__(self, stream: str, offset: int, data: bytearray) -> None:
        self.stream, self.offset, self.data = stream, offset, data


class _Tee(io.RawIOBase):
    """A file descriptor whose writes a log gets, too."""

    def __init__(self, fd: int, stream: str, printed: Printed) -> None:
        super().__init__()
        self._fd, self._stream, self._printed = fd, stream, printed
        self.name = f"<{stream}>"

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        whole = bytes(data)
        if self._printed.work is not None:
            self._printed.add(self._stream, whole)
        left = memoryview(whole)
        while left:
            left = left[os.write(self._fd, left) :]
        return len(whole)

    def close(self) -> None:
        """A body that closes its output does not close the worker's."""


class Printed:
    """The standard output of one worker process. `work` is the job whose body runs."""

    def __init__(self, client: HttpClient) -> None:
        self.work: Work | None = None
        self._client = client
        # Entered as it is, not through the condition: an interruption of the body then never leaves it locked. A signal
        # handler of the body may print in the middle of a print.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[_Part] = deque()  # of `work`
        self._bytes = 0
        self._offsets = dict.fromkeys(STREAMS, 0)
        self._sending = False
        self._refused = False
        self._ending = False
        self._away = False
        self._thread: threading.Thread | None = None
        os.register_at_fork(after_in_child=self._forked)

    def install(self) -> None:
        """Stand in for `sys.stdout` and `sys.stderr`."""
        for fd, name in enumerate(STREAMS, 1):
            before = getattr(sys, name)
            if before is None:  # closed by whoever started us
                continue
            raw: Any = _Tee(fd, name, self)
            stream = io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)
            setattr(sys, name, stream)
            for handler in logging.root.handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                    handler.setStream(stream)

    # -- the body's thread

    def begin(self, work: Work) -> None:
        """This job's body starts."""
        self.work = work

    def add(self, stream: str, data: bytes) -> None:
        """Keep some bytes of the running body. Any thread."""
        with self._lock:
            if self.work is None or self._refused or threading.current_thread() is self._thread:
                return  # what the sending thread itself has to say is for the worker's terminal
            waiting, offset = self._waiting, self._offsets[stream]
            self._offsets[stream] = offset + len(data)
            given_up = max(0, len(data) - MOST_BYTES)
            last = waiting[-1] if waiting else None
            if last is not None and last.stream == stream and len(last.data) < PART_BYTES and not given_up:
                last.data += data
            else:
                waiting.append(_Part(stream, offset + given_up, bytearray(data[given_up:])))
            self._bytes += len(data) - given_up
            while self._bytes > MOST_BYTES or len(waiting) > MOST_PARTS:
                place = 0
                while place < HEAD_PARTS and waiting[place].offset < HEAD_BYTES:
                    place += 1
                self._bytes -= len(waiting[place].data)
                del waiting[place]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lakeshore-printed", daemon=True)
                self._thread.start()
            if not self._sending:
                self._changed.notify_all()

    def end(self, *, soon: bool = False) -> None:
        """The body has ended: what it printed arrives before its ending does. `soon`: do not wait for a server that is
        away.
        """
        if not (self._offsets["stdout"] or self._offsets["stderr"]):
            self.work = None
            return
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            arrived = self._changed.wait_for(self._has_arrived, FAREWELL_S)
            if not arrived and self._away and not soon:
                arrived = self._changed.wait_for(self._has_arrived, AWAY_S)
            if not arrived and self.work is not None:
                log.warning("the end of what %s printed did not arrive", self.work.id)
            self.work = None
            self._waiting.clear()
            self._bytes = 0
            self._offsets = dict.fromkeys(STREAMS, 0)
            self._ending = self._refused = self._away = False

    def _has_arrived(self) -> bool:
        return not self._waiting and not self._sending

    # -- the sending thread

    def _run(self) -> None:
        waits = patience()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                work, batch = self.work, self._batch()
                self._sending = True
            assert work is not None, "what waits is of a job"
            pause, again = PACE_S, False
            try:
                self._send(work, batch)
                waits = patience()
            except Exception as error:  # noqa: BLE001  # whatever it is, the job goes on
                pause = next(waits)
                again = self._failed(work, batch, error)
            with self._changed:
                self._away = again
                self._sending = False
                self._changed.notify_all()
                self._changed.wait_for(lambda again=again: self._ending and not again, pause)  # type: ignore[misc]

    def _failed(self, work: Work, batch: list[_Part], error: Exception) -> bool:
        """A batch did not arrive; whether it is to be sent again."""
        full = getattr(error, "status", None) == 507
        again = not full and (
            http_wire.is_passing(error)
            if isinstance(error, DispatchError)
            else isinstance(error, NetError) and not isinstance(error, ProtocolViolation)
        )
        with self._changed:
            if self.work is not work:
                return False
            if again:
                self._waiting.extendleft(reversed(batch))
                self._bytes += sum(len(part.data) for part in batch)
                return True
            if not full:
                self._refused = True
                self._waiting.clear()
                self._bytes = 0
        log.warning("what %s prints is not kept: %s", work.id, error)
        return False

    def _batch(self) -> list[_Part]:
        taken: list[_Part] = []
        size = 0
        while self._waiting and size < BATCH_BYTES:
            part = self._waiting.popleft()
            room = BATCH_BYTES - size
            if len(part.data) > room:
                self._waiting.appendleft(_Part(part.stream, part.offset + room, part.data[room:]))
                part.data = part.data[:room]
            size += len(part.data)
            taken.append(part)
        self._bytes -= size
        return taken

    def _send(self, work: Work, batch: list[_Part]) -> None:
        parts = [(part.stream, part.offset, bytes(part.data)) for part in batch]
        body = {"invocation_id": work.id, "claim": work.claim, "attempt": work.attempt, "parts": parts}
        self._client.once("POST", http_wire.LOG, body, f"keeping what {work.id} prints", 0.0)

    def _forked(self) -> None:
        """A child that a body forked: its parent's log is not its own."""
        self.work = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread = None
