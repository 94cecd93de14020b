"""Sends the frames of one streaming body in batches that its own round trips clock: what gathers meanwhile leaves next.

The body goes on while frames travel; it is held back only when too much waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import http_wire
from .errors import DispatchError
from .http_client import HttpClient
from .sources import Work
from .watcher import patience

log = logging.getLogger(__name__)

MAX_FRAMES = 2048
MAX_BYTES = 8 * 1024 * 1024
BATCH_BYTES = 1024 * 1024


class FrameSender:
    """`put` from the body's thread; a thread of its own sends, from the first frame on, while `wanted()`."""

    def __init__(self, client: HttpClient, work: Work, wanted: Callable[[], bool]) -> None:
        self._client, self._work, self._wanted = client, work, wanted
        self._changed = threading.Condition()
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._sending = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, seq: int, frame: bytes) -> None:
        """Queue a frame. Raises DispatchError when an earlier one was refused: the claim is lost."""
        with self._changed:
            while self._error is None and (len(self._frames) >= MAX_FRAMES or self._bytes >= MAX_BYTES):
                self._changed.wait()
            self._check()
            self._frames.append((seq, frame))
            self._bytes += len(frame)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lakeshore-frames", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Return when everything is stored."""
        with self._changed:
            while self._error is None and (self._frames or self._sending):
                self._changed.wait()
            self._check()

    def close(self, wait_s: float) -> None:
        """The body has ended: what it yielded before it failed gets `wait_s` to arrive, then the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or not (self._frames or self._sending), wait_s)
            self._frames.clear()
            self._closed = True
            self._changed.notify_all()

    def _check(self) -> None:
        if self._error is not None:
            raise DispatchError(f"the frames of {self._work.id} were not taken: {self._error}") from self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._frames and not self._closed:
                    self._changed.wait()
                if not self._frames:
                    return
                batch, size = [], 0
                while self._frames and size < BATCH_BYTES:
                    batch.append(self._frames.popleft())
                    size += len(batch[-1][1])
                self._bytes -= size
                self._sending = True
                self._changed.notify_all()
            error: Exception | None = None
            try:
                self._send(batch)
            except Exception as exc:  # noqa: BLE001  # the body's thread raises it
                error = exc
            with self._changed:
                self._sending = False
                self._error = error
                self._changed.notify_all()
                if error is not None:
                    return

    def _send(self, batch: list[tuple[int, bytes]]) -> None:
        waits = patience()
        while True:
            try:
                return self._send_once(batch)
            except DispatchError as exc:
                # A server that is away, or has no room, is waited for as long as the claim is ours (K-13). What it has
                # of these frames already, it knows (K-24).
                if self._closed or not self._wanted() or not http_wire.is_passing(exc):
                    raise
                log.warning("%s; trying again", exc)
                time.sleep(next(waits))

    def _send_once(self, batch: list[tuple[int, bytes]]) -> None:
        chunks = [self._chunk(seq, frame) for seq, frame in batch]
        what = f"posting frames of {self._work.id}"
        if len(chunks) == 1:
            self._client.call("POST", http_wire.CHUNK, chunks[0], what)
            return
        for answer in self._client.call("POST", http_wire.CHUNK, {"chunks": chunks}, what)["chunks"]:
            if int(answer.get("status", 200)) != 200:
                http_wire.refuse(int(answer["status"]), answer, what)

    def _chunk(self, seq: int, frame: bytes) -> dict[str, Any]:
        return {
            "invocation_id": self._work.id,
            "seq": seq,
            "bytes": frame,
            "final": False,
            "claim": self._work.claim,
        }
