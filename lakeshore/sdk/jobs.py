"""What travels between a queue and who drains it by hand: jobs, raw payloads, decoded frames.

Reference: python-sdk/queue.md.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from lakeshore import wire
from lakeshore.sdk import outcomes
from lakeshore.wire.frames import reassemble

from .ids import new_id


@dataclass
class Job:
    """One claimed invocation: `payload` is the decoded value, or the Envelope of a UDF call. `claim` is the fence."""

    id: str
    payload: Any
    attempt: int
    queue: str
    claim: int = 0


def decode(data: bytes) -> Any:
    """The payload of a submit: an Envelope when it has an Envelope's shape, else the packed value."""
    value = wire.unpack(data) if data else None
    if isinstance(value, dict) and {"v", "id", "fn", "args", "kwargs"} <= value.keys():
        return wire.Envelope.from_bytes(data)
    return value


def values_of(pieces: Iterable[tuple[int, bytes]], invocation_id: str) -> Generator[Any, None, bool]:
    """Decoded values of a stream of (seq, frame); whether it ended with an END. DispatchError at an ERROR frame."""
    try:
        end = yield from reassemble(wire.Frame.from_bytes(data) for _seq, data in pieces)
    except wire.RemoteFailure as exc:
        raise outcomes.failure(invocation_id, "failed", {"type": exc.type, "message": exc.message}) from None
    return end is not None


class Reassembly:
    """`values_of` for who is fed frames one by one."""

    def __init__(self, invocation_id: str) -> None:
        self._id = invocation_id
        self._run: list[wire.Frame] = []
        self._missing = 0
        self.ended = False

    def feed(self, data: bytes) -> list[Any]:
        """The values that this frame completes. Raises DispatchError at an ERROR frame."""
        frame = wire.Frame.from_bytes(data)
        self._run.append(frame)
        if frame.kind == wire.FrameKind.BEGIN and len(self._run) == 1:
            self._missing = int((frame.meta or {}).get("total", -1))
            return []
        if frame.kind == wire.FrameKind.CHUNK:
            self._missing -= len(frame.body)
            if self._missing != 0:
                return []
        run, self._run = self._run, []
        values = values_of(((f.seq, f.to_bytes()) for f in run), self._id)
        completed = []
        while True:
            try:
                completed.append(next(values))
            except StopIteration as stop:
                self.ended = bool(stop.value)
                return completed


def worker_name() -> str:
    """A name for whoever claims: host, process, and what tells two of them apart."""
    return f"{socket.gethostname().split('.')[0]}-{os.getpid()}-{new_id()[-6:].lower()}"
