"""The guardian: renews what a worker holds while its bodies run, and speaks for it when it is dead (K-9, K-12).

It runs no user code, holds no result and asks for no work. It lists what the worker's slate says has begun; when the
running job turns out long it gives back what has not. When the worker dies it says at once what had begun, gives
everything back, and ends.
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgpack

from lakeshore.net.backoff import full_jitter
from lakeshore.net.blocking import BlockingConnection
from lakeshore.net.errors import NetError
from lakeshore.net.target import parse_target

from ..http_wire import POLL, Refusal, headers, pack, unpack
from ..slate import LONG_S, Slate
from .ending import Watched

log = logging.getLogger(__name__)

LOOK_S = 0.03
QUIET_S = 0.25
"""A worker that has been silent for so long is busy: its guardian polls in its place."""
HOLD_S = 15.0
CANCEL_PAUSE_S = 0.5
LAST_NUMBER = 1 << 62
LAST_WORDS_S = 5.0
DYING_S = 0.5
"""A process that dies closes its files before it has a status; one that lives on has lost them or replaced itself."""
ROBBED = "its process lives on without the files that it works with: a body closed them, or it has started afresh"


@dataclass(slots=True)
class Ward:
    """One session of the worker."""

    session: str
    worker: str = ""
    queue: str = "default"
    n: int = 0
    lease_s: float = 60.0
    begun: list[list[Any]] = field(default_factory=list)
    ready: list[list[Any]] = field(default_factory=list)
    batch: int = 0
    slate: Slate | None = None
    heard_at: float = 0.0
    told_ns: int = 0
    """When the newest list that was read from the slate was written there."""
    overtaken: bool = False
    """The worker has polled since it last spoke to us: it renews by itself."""
    busy: threading.Thread | None = None

    def update(self, message: dict[str, Any], now: float) -> None:
        """The worker has spoken at `now`: it renewed by itself."""
        for name in ("worker", "queue", "n", "lease_s", "begun", "ready", "batch"):
            setattr(self, name, message[name])
        self.heard_at = now
        self.overtaken = False

    def look(self) -> None:
        """Read what the worker has told on its slate."""
        news = self.slate.heard(self.told_ns) if self.slate is not None else None
        if news is not None:
            self.told_ns, said = news
            if said:
                self.update(msgpack.unpackb(said), self.told_ns / 1e9)

    def may_sleep(self) -> bool:
        """Whether the worker will wake us when it has something to tell; False when it has just told something."""
        return self.slate is None or self.slate.sleep(self.told_ns)

    def needs_us(self) -> bool:
        """Whether something is held that nobody renews just now."""
        return bool(self.begun or self.ready) and not self.overtaken and self.busy is None

    def started(self) -> list[list[Any]]:
        """Pairs whose bodies have begun, ended ones that nobody has heard of included."""
        begun = 0
        if self.slate is not None:
            batch, begun = self.slate.begun()
            begun = begun if batch == self.batch else len(self.ready)
        return [*self.begun, *self.ready[:begun]]

    def has_waiting(self) -> bool:
        """Whether something that has not begun may have to go back."""
        if not self.ready or self.slate is None or self.overtaken:
            return False
        batch, begun = self.slate.begun()
        return batch == self.batch and begun < len(self.ready)

    def pairs(self) -> list[list[Any]]:
        """The list of the next poll."""
        started = self.started()
        rest = self.ready[len(started) - len(self.begun) :]
        return [[id_, claim, True] for id_, claim in started] + [[id_, claim, False] for id_, claim in rest]


class Guardian:
    """The loop over what the worker says, the clock, and the worker's death.

    While a worker is busy a thread per ward holds a poll open in its place, so that a cancel is heard at once.
    """

    def __init__(self, plane: dict[str, Any]) -> None:
        self._target = parse_target(plane["url"])
        self._line = socket.socket(fileno=int(plane["line"])) if "line" in plane else None
        self._lock = threading.Lock()
        self._headers = headers(plane["token"], plane["namespace"])
        self._pid = int(plane["pid"])
        self._wards: dict[str, Ward] = {}
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN | select.POLLHUP)
        self._pidfd = int(plane.get("pidfd", -1))
        self._watched = Watched(self._pid, self._pidfd)
        if self._pidfd >= 0:
            self._poll.register(self._pidfd, select.POLLIN)

    def run(self, unpacker: msgpack.Unpacker) -> None:
        left = self._hear_all(unpacker)
        while not left:
            ready = {fd for fd, _event in self._poll.poll(self._sleep_s(time.monotonic()) * 1000)}
            died = self._pidfd in ready or (self._pidfd < 0 and os.getppid() != self._pid)
            # What it said before it died is heard first; a child of a body's may hold its end of the pipe open.
            left = self._listen(unpacker) or died
            now = time.monotonic()
            for ward in list(self._wards.values()) if not left else ():
                self._look_after(ward, now)
        self._last_words()

    def _listen(self, unpacker: msgpack.Unpacker) -> bool:
        """Hear what stands in the pipe; whether that was the last of it."""
        while select.select([0], [], [], 0)[0]:
            data = os.read(0, 1 << 20)
            if not data:
                return True
            unpacker.feed(data)
            if self._hear_all(unpacker):
                return True
        return False

    def _hear_all(self, unpacker: msgpack.Unpacker) -> bool:
        for message in unpacker:
            if message.get("leave"):
                return True
            self._hear(message, time.monotonic())
        return False

    def _sleep_s(self, now: float) -> float:
        """How long until the next look. Above `LOOK_S`, whatever a worker tells wakes us earlier."""
        wards = self._wards.values()
        if any(ward.has_waiting() or (ward.slate and now - ward.heard_at < QUIET_S) for ward in wards):
            return LOOK_S
        if not all(ward.may_sleep() for ward in wards):
            return 0.0
        if any((ward.begun or ward.ready) and not ward.overtaken for ward in wards):
            return QUIET_S
        return 3600.0 if self._pidfd >= 0 else 1.0

    def _hear(self, message: dict[str, Any], now: float) -> None:
        with self._lock:
            if message.get("bye"):
                self._wards.pop(message["session"], None)
                return
            if message.get("look"):
                return  # the slate has it: every ward's is read before it is looked after
            ward = self._wards.setdefault(message["session"], Ward(message["session"]))
            ward.update(message, now)
            if message.get("slate"):
                assert self._line is not None, "a worker that has slates has a line for them"
                ward.slate = Slate.received(self._line)

    def _look_after(self, ward: Ward, now: float) -> None:
        with self._lock:
            if ward.slate is not None:
                ward.slate.wake()
            ward.look()
        revoked = False
        if ward.has_waiting():
            assert ward.slate is not None
            begun = ward.slate.revoke_if_long(ward.batch, longer_than_s=LONG_S)
            if begun is not None:
                with self._lock:
                    ward.begun = [*ward.begun, *ward.ready[:begun]]
                    ward.ready = []
                    ward.batch = -1
                revoked = True
        if ward.needs_us() and (revoked or now - ward.heard_at > QUIET_S):
            ward.busy = threading.Thread(target=self._stand_in, args=(ward,), daemon=True)
            ward.busy.start()

    def _stand_in(self, ward: Ward) -> None:
        """Poll for a busy worker until it speaks again."""
        self._watched.look()
        waits = _patience(ward.lease_s)
        with BlockingConnection(self._target) as connection:
            while True:
                heard_at = ward.heard_at
                if not (ward.begun or ward.ready) or ward.session not in self._wards:
                    break
                try:
                    answer = self._tell(connection, ward, ward.pairs(), min(ward.lease_s / 4, HOLD_S))
                except (NetError, Refusal) as exc:
                    if ward.heard_at != heard_at:
                        break
                    if isinstance(exc, Refusal) and exc.status == 409:
                        ward.overtaken = True
                        break
                    log.info("standing in for %s: %s", ward.session, exc)
                    time.sleep(next(waits))
                    continue
                waits = _patience(ward.lease_s)
                self._pass_on(ward, answer)
                if ward.heard_at != heard_at:
                    break
        ward.busy = None

    def _pass_on(self, ward: Ward, answer: dict[str, Any]) -> None:
        cancel = [c["body"] for c in answer.get("commands", ()) if c["kind"] == "cancel"]
        heard = {
            "session": ward.session,
            "lost": answer.get("lost") or [],
            "cancel": [[body["invocation_id"], body["claim"]] for body in cancel],
        }
        if not (heard["lost"] or heard["cancel"]):
            return
        gone = {tuple(pair) for pair in heard["lost"]}
        with self._lock:
            os.write(1, msgpack.packb(heard))
            ward.begun = [pair for pair in ward.begun if tuple(pair) not in gone]
        if cancel:
            time.sleep(CANCEL_PAUSE_S)  # the plane says it at each poll until the body has ended

    def _tell(
        self,
        connection: BlockingConnection,
        ward: Ward,
        pairs: list[list[Any]],
        hold_s: float,
        ended: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        with self._lock:
            ward.n += 1
            n = ward.n
        body = {
            "worker_id": ward.worker,
            "queue": ward.queue,
            "timeout_s": hold_s,
            "cursor": None,
            "invocations": [],
            "session": ward.session,
            "n": n,
            "held": pairs,
            "capacity": 0,
            "ended": ended,
        }
        answer = connection.request("POST", POLL, headers=self._headers, body=pack(body), timeout=hold_s + 10.0)
        return unpack(answer.status, answer.body, "renewing")

    def _last_words(self) -> None:
        """The worker is gone: what had begun is marked so, then nothing is listed, so that everything goes back.

        So it is for a worker that held nothing: a child that a body left behind may keep its connection open, and the
        poll that waits on it must not be given a job.
        """
        if not self._wards:
            return
        ended = self._how_it_ended()
        deadline = time.monotonic() + LAST_WORDS_S
        with BlockingConnection(self._target) as connection:
            for ward in self._wards.values():
                ward.look()
                started = [[id_, claim, True] for id_, claim in ward.started()]
                ward.n = LAST_NUMBER  # above whatever the worker sent that we were not told of
                for pairs in [started, []] if started else [[]]:
                    self._insist(connection, ward, pairs, deadline, ended)

    def _how_it_ended(self) -> dict[str, Any]:
        dead = self._pidfd < 0 or bool(select.select([self._pidfd], [], [], DYING_S)[0])
        return {**self._watched.ended(), "why": None if dead else ROBBED}

    def _insist(
        self,
        connection: BlockingConnection,
        ward: Ward,
        pairs: list[list[Any]],
        deadline: float,
        ended: dict[str, Any],
    ) -> None:
        while time.monotonic() < deadline:
            try:
                self._tell(connection, ward, pairs, 0.0, ended)
            except NetError:
                time.sleep(0.2)
            except Refusal as exc:
                log.info("last words of %s: %s", ward.session, exc)
                return
            else:
                return


def _patience(lease_s: float) -> Iterator[float]:
    """How long to leave a server alone that does not answer: never so long that a lease could end meanwhile."""
    cap = min(2.0, lease_s / 4)
    return full_jitter(random.random, base=min(0.1, cap), cap=cap)


def main() -> int:
    """Read the plane and then what is held from stdin, until the worker ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the worker's; this process ends with it
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    unpacker = msgpack.Unpacker(read_size=65536)  # its buffer is of this size at least, and all of it gets touched
    while True:
        data = os.read(0, 65536)
        if not data:
            return 0
        unpacker.feed(data)
        for plane in unpacker:
            guardian = Guardian(plane)
            guardian.run(unpacker)
            return 0


if __name__ == "__main__":
    sys.exit(main())
