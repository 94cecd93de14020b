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
    """One claimed invocation.

    `payload` is the decoded value, or the Envelope of a UDF call. `attempt` counts executions from 1. `claim` is the
    number that every report of this job carries: the fence.
    """

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
        raise outcomes.of_stream(invocation_id, exc) from None
    return end is not None


def worker_name() -> str:
    """A name for whoever claims: host, process, and what tells two of them apart."""
    return f"{socket.gethostname().split('.')[0]}-{os.getpid()}-{new_id()[-6:].lower()}"
