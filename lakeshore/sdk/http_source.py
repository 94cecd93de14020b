"""A worker loop's end of an HTTP plane: prefetch short jobs, say endings in batches, never begin what was given back.

Endings leave with the next poll, or while a long body runs. While short jobs follow each other, a poll is due after as
much work as the last one took, 2 to 10 ms: a slow server or disk gets fewer, larger polls, and a worker spends no more
than half of its time waiting for it. A poll with nothing to do waits at the server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from lakeshore.net.blocking import BlockingConnection
from lakeshore.net.errors import NetError
from lakeshore.wire.messages import MAX_PREFETCH

from . import http_wire
from .errors import DispatchError
from .frame_sender import FrameSender
from .guard import Guard
from .http_client import SLACK_S, HttpClient
from .http_wire import Refusal
from .session import Session
from .slate import LONG_S, Slate
from .sources import Ending, FrameSink, Work
from .teller import Teller
from .watcher import patience

log = logging.getLogger(__name__)

FLUSH_S, LATEST_FLUSH_S = 0.002, 0.01
LONG_POLL_S = 20.0
FAREWELL_S = 5.0


class SessionSource:
    """One worker loop. `once` takes a single job and prefetches none."""

    local = False

    def __init__(self, client: HttpClient, session: Session, guard: Guard, *, retries: int, once: bool) -> None:
        self._client, self._session, self._guard = client, session, guard
        self._retries, self._once = retries, once
        self._connection = BlockingConnection(client.target)
        self._slate: Slate | None = None
        self._sink: FrameSender | None = None
        self._batch = 0
        self._draining = False
        self._away = False
        """Whether the server did not answer the last poll."""
        self._began_at = 0.0
        self._long = False
        """Whether the last job was long: then nothing is taken that would have to wait behind the next."""
        self._said_at = time.monotonic()
        self._flush_s = FLUSH_S
        """Endings wait for company for so long, while there is other work."""
        self._waits = patience()
        self._turn = threading.Lock()
        """Held by who polls: the worker's thread between bodies, the teller while a body runs."""
        self._running = False
        self._teller = Teller(LONG_S, self._say_late)

    def next(self, wait_s: float) -> Work | None:
        with self._turn:
            return self._next(wait_s)

    def _next(self, wait_s: float) -> Work | None:
        deadline = time.monotonic() + wait_s
        while True:
            session = self._session
            if session.unsaid and session.ready and time.monotonic() - self._said_at > self._flush_s:
                self._poll(0.0)
            work = self._next_ready()
            if work is not None:
                return work
            if self._draining or session.fenced:
                return None
            left = deadline - time.monotonic()
            asked = min(max(left, 0.0), LONG_POLL_S)
            self._poll(asked)
            if not session.ready and time.monotonic() >= deadline:
                return None

    def _next_ready(self) -> Work | None:
        while (entry := self._take()) is not None:
            try:
                return self._client.claimed(entry)
            except DispatchError as exc:  # its arguments cannot be had: that is this job's failure, not the worker's
                error = {"type": "DispatchError", "message": str(exc)}
                with self._session.lock:
                    self._session.begin(entry.id, entry.claim)
                    self._session.end(entry.id, entry.claim, {"state": "failed", "error": error, "retry": True})
        return None

    def begin(self, work: Work, stop: Callable[[str], None]) -> None:
        self._began_at = time.monotonic()
        self._running = True
        if self._session.unsaid:
            self._teller.watch()
        with self._session.lock:
            held = self._session.begin(work.id, work.claim, stop)
        if not held:
            stop("lost")

    def end(self, work: Work, ending: Ending) -> None:
        self._long = time.monotonic() - self._began_at > LONG_S
        if self._sink is not None:
            self._sink.close(FAREWELL_S if ending.outcome == "failed" else 0.0)
            self._sink = None
        said: dict[str, Any] = {"state": ending.outcome}
        if ending.outcome == "succeeded":
            if http_wire.travels_beside(len(ending.result)):
                said |= self._result(work, ending.result)
            else:
                said["result_blob"] = ending.result
        else:
            said |= {"error": ending.error, "retry": ending.retry, "retries": self._retries}
        if ending.last_seq is not None and said["state"] == "succeeded":
            said["last_seq"] = ending.last_seq
        if self._slate is not None:
            self._slate.idle()  # not before: what waits behind a long upload goes back, too
        with self._session.lock:
            if not self._session.end(work.id, work.claim, said):
                log.warning("the ending of %s is not wanted any more: its claim was lost", work.id)
        self._running = False

    def _say_late(self) -> bool:
        """Say what has ended while a long body runs, and give back what waits behind it."""
        with self._turn:
            session = self._session
            if self._running and session.unsaid and time.monotonic() - self._began_at > LONG_S:
                with session.lock:
                    session.give_back()
                self._poll(0.0, capacity=0)
            return self._running and bool(session.unsaid)

    def _result(self, work: Work, data: bytes) -> dict[str, Any]:
        """The ending's payload. The body has run: while the server is away or has no room, its result waits here."""
        waits, give_up = patience(), float("inf")
        while True:
            try:
                return self._client.payload("result", data, work.id, "the result")
            except DispatchError as exc:
                passing = http_wire.is_passing(exc)
                if self._draining:
                    give_up = min(give_up, time.monotonic() + FAREWELL_S)
                if not passing or time.monotonic() >= give_up or self._session.claim_of(work.id) != work.claim:
                    error = {"type": "DispatchError", "message": str(exc)}
                    return {"state": "failed", "error": error, "retry": passing}
                log.warning("%s; trying again", exc)
                time.sleep(next(waits))

    def sink(self, work: Work) -> FrameSink:
        self._sink = FrameSender(self._client, work, lambda: self._session.claim_of(work.id) == work.claim)
        return self._sink

    def drain(self) -> None:
        """Take no more jobs. May be called from a signal handler: a poll that waits ends at once."""
        self._draining = True
        self._connection.interrupt()

    def close(self) -> None:
        self._draining = True
        self._teller.close()
        with self._turn:
            self._close()

    def _close(self) -> None:
        session = self._session
        session.give_back()
        with session.lock:
            session.held.clear()  # of a body that has no ending nothing more is known: it is lost with this session
        deadline = time.monotonic() + FAREWELL_S
        try:
            self._poll(0.0, capacity=0)
            while session.unsaid and time.monotonic() < deadline:
                self._poll(0.0, capacity=0)
            if session.unsaid:
                log.error("%d endings could not be said: the server does not answer", len(session.unsaid))
        finally:
            self._guard.release(session)
            self._connection.close()
            if self._slate is not None:
                self._slate.close()

    def _take(self) -> Any:
        with self._session.lock:
            entry = self._session.take()
            if entry is None:
                return None
            assert self._slate is not None, "a poll that brings work brings a slate"
            if not self._slate.begin():
                self._session.held.pop(entry.id, None)
                self._session.give_back()
                return None
            return entry

    def _poll(self, timeout_s: float, *, capacity: int | None = None) -> None:
        session = self._session
        if capacity is None:
            room = 1 if self._once or self._long else MAX_PREFETCH
            capacity = 0 if self._draining else max(0, room - len(session.ready))
        with session.lock:
            body = session.request(capacity=capacity, timeout_s=timeout_s)
        asked_at = time.monotonic()
        try:
            status, data = self._connection.ask(
                self._client.routes[http_wire.POLL],
                http_wire.pack(body),
                timeout=timeout_s + SLACK_S,
                retry_stale=False,
            )
            read = http_wire.unpack(status, data, f"polling {session.queue}")
        except NetError as exc:
            if self._once and not session.held and not session.unsaid:
                raise DispatchError(f"polling {session.queue} failed: {exc}") from exc
            if not self._draining:
                if not self._away:
                    log.warning("%s; trying again until it answers", exc)
                self._away = True
                time.sleep(next(self._waits))
            return
        except Refusal as exc:
            if exc.status == 409 and exc.body.get("error") == "superseded":
                return
            if http_wire.is_passing(exc):
                log.warning("%s; trying again", exc)
                time.sleep(next(self._waits))
                return
            raise
        if self._away:
            log.warning("connected again to %s", self._client.url)
            self._away = False
        self._waits = patience()
        self._said_at = time.monotonic()
        took_s = self._said_at - asked_at
        if timeout_s > 0.0:  # it may have waited for work
            took_s = min(took_s, self._flush_s)
        self._flush_s = max(FLUSH_S, min(took_s, LATEST_FLUSH_S))
        with session.lock:
            session.read(read)
            self._batch += 1
            if self._slate is None and session.ready:
                self._slate = Slate.create()
            self._guard.hold(session, slate=self._slate, batch=self._batch)
