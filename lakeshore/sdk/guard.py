"""The worker's side of its guardian: one small process beside it that renews its claims while bodies run (K-12).

What is held is told after each poll that brought or settled something: on the slate of a worker that has one, where it
costs no other process a turn, else through the guardian's pipe. What the guardian hears (a claim lost, a cancel asked
for) comes back and stops the body.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import weakref
from typing import Any

import msgpack

from lakeshore._self import python_path

from .session import Session
from .slate import ROOM, Slate

log = logging.getLogger(__name__)


class Guard:
    """The guardian of one process for one plane; it starts when there is something to guard."""

    def __init__(self, url: str, token: str | None, namespace: str) -> None:
        self._plane = {"url": url, "token": token, "namespace": namespace}
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        """Slates go to the guardian on it."""
        self._lock = threading.Lock()
        self._sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
        self._told: set[str] = set()
        self._reads: set[str] = set()
        """Sessions whose slates the guardian that runs now was given."""

    def hold(self, session: Session, *, slate: Slate | None = None, batch: int = 0) -> None:
        """Tell what the session holds now. Without a slate everything listed as started has begun."""
        said = [[e["invocation_id"], e["claim"]] for e in session.unsaid.values()]
        begun = [[e.id, e.claim] for e in session.held.values() if e.started]
        ready = [[e.id, e.claim] for e in session.held.values() if not e.started]
        if session.id not in self._told:
            if not (said or begun or ready):
                return
            self._sessions[session.id] = session
            self._told.add(session.id)
        message = {
            "session": session.id,
            "worker": session.worker,
            "queue": session.queue,
            "n": session.n,
            "lease_s": session.lease_s,
            "begun": said + begun,
            "ready": ready,
            "batch": batch,
            "slate": False,
        }
        if slate is not None and self._write(session, slate, batch, message):
            return
        self._send(message, slate)

    def _write(self, session: Session, slate: Slate, batch: int, message: dict[str, Any]) -> bool:
        """Put a list on the slate. Whether the guardian reads it there."""
        data = msgpack.packb(message)
        fits = len(data) <= ROOM
        sleeps = slate.tell(batch, data if fits else b"")
        if not fits or session.id not in self._reads or not self._lives():
            return False
        if sleeps:
            self._send({"session": session.id, "look": True})
        return True

    def _lives(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None

    def release(self, session: Session) -> None:
        """The session holds nothing any more and never will."""
        if session.id in self._told:
            self._told.discard(session.id)
            self._reads.discard(session.id)
            self._send({"session": session.id, "bye": True})

    def close(self) -> None:
        """End the guardian: what is still held is given back by it."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            self._hang_up()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(msgpack.packb({"leave": True}))  # a child of a body's may hold the pipe open
                process.stdin.close()
            process.wait(timeout=30)

    def _send(self, message: dict[str, Any], slate: Slate | None = None) -> None:
        """Tell the guardian, and give it the session's slate when it does not have it yet."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = self._start()
            assert process.stdin is not None
            assert self._line is not None
            try:
                if slate is not None and message["session"] not in self._reads:
                    slate.pass_to(self._line)
                    message = {**message, "slate": True}
                    self._reads.add(message["session"])
                process.stdin.write(msgpack.packb(message))
                process.stdin.flush()
            except (BrokenPipeError, ConnectionResetError):
                log.warning("the guardian ended by itself; the next poll starts another")

    def _start(self) -> subprocess.Popen[bytes]:
        self._reads.clear()
        self._hang_up()
        self._line, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*python_path(), os.environ.get("PYTHONPATH", "")])}
        ours = _pidfd()  # from here, so that it is of this process even when that is gone before its guardian is up
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "lakeshore.sdk.entry.guardian"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,
                pass_fds=(theirs.fileno(),) if ours < 0 else (theirs.fileno(), ours),
            )
        finally:
            line = theirs.fileno()
            theirs.close()
            if ours >= 0:
                os.close(ours)
        assert process.stdin is not None
        process.stdin.write(msgpack.packb({**self._plane, "pid": os.getpid(), "pidfd": ours, "line": line}))
        process.stdin.flush()
        threading.Thread(target=self._listen, args=(process,), name="lakeshore-guard", daemon=True).start()
        return process

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        unpacker = msgpack.Unpacker(read_size=65536)  # its buffer is of this size at least, and all of it gets touched
        with process.stdout as pipe:
            while data := os.read(pipe.fileno(), 65536):
                unpacker.feed(data)
                for message in unpacker:
                    self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        session = self._sessions.get(message["session"])
        if session is None:
            return
        for id_, claim in message.get("lost", ()):
            log.warning("claim %s of %s is lost; its body is ended", claim, id_)
            session.drop(id_, claim, "lost")
        for id_, claim in message.get("cancel", ()):
            session.cancel(id_, claim)


def _pidfd() -> int:
    """A handle of this process, -1 where there is no such thing."""
    opener = getattr(os, "pidfd_open", None)
    if opener is None:
        return -1
    try:
        return int(opener(os.getpid()))
    except OSError:
        return -1
