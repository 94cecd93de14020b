"""What the routes of producers, workers and streams answer, as `wire/messages.py` states it in words.

Their handlers build plain maps, for they are asked often; the tests of the OpenAPI document hold them to these.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from ...wire.messages import MSGPACK_STREAM, OCTETS
from .stated import Media

FRAMES = Media(type=MSGPACK_STREAM, says="frames, verbatim and undelimited")
RAW = Media(type=OCTETS, says="bytes as they are")
TEXT = Media(type="text/plain", says="text")


class Up(TypedDict):
    """It answers."""

    ok: bool
    version: NotRequired[str]
    full: NotRequired[bool]


class Waits(TypedDict):
    """For what a queued call waits."""

    reason: str
    message: str


class InvocationEnded(TypedDict):
    """How a call ended, or that it has not."""

    state: str
    row_state: NotRequired[str]
    why: NotRequired[Waits]
    result_blob: NotRequired[bytes | None]
    result_ref: NotRequired[dict[str, Any] | None]
    error: NotRequired[Any]
    attempt: NotRequired[int]
    invocation: NotRequired[dict[str, Any] | None]


class Submitted(TypedDict):
    """A call that is stored. `existing`: it was before. `ended` where `wait_s` saw its end, else `why` on demand."""

    invocation_id: str
    queue: str
    existing: NotRequired[bool]
    due: NotRequired[float]
    warnings: NotRequired[list[str]]
    ended: NotRequired[InvocationEnded]
    why: NotRequired[Waits]


class SubmittedMany(TypedDict):
    """In the order of the items: each with a `status` of its own."""

    results: list[dict[str, Any]]


class Watched(TypedDict):
    """Ids of the set that ended; each is reported once. `more`: ask again at once. `why` is of one that is queued."""

    results: list[dict[str, Any]]
    more: bool
    why: NotRequired[Waits]


class Cancelled(TypedDict):
    """Whether it is killed, or was asked to stop."""

    cancelled: bool
    state: str
    cancelling: NotRequired[bool]


class Trimmed(TypedDict):
    """How many frames went."""

    trimmed: int


class ProducerQueue(TypedDict):
    """A queue as a producer sees it."""

    name: str
    kind: str
    state: str


class ProducerQueues(TypedDict):
    """By name."""

    queues: list[ProducerQueue]


class Counted(TypedDict):
    """How many calls of a state there are."""

    count: int


class Posted(TypedDict):
    """The number of the frame."""

    seq: int


class HelloAnswer(TypedDict):
    """A session, or why there is none (`reject`)."""

    worker_id: NotRequired[str | None]
    session_token: NotRequired[str | None]
    session_ttl_s: NotRequired[int]
    config: NotRequired[dict[str, Any]]
    key_id: NotRequired[str | None]
    namespace: NotRequired[str]
    reject: NotRequired[dict[str, Any] | None]
    lost: NotRequired[list[list[Any]]]


class PollAnswer(TypedDict):
    """What the worker is to do, and what became of what it told."""

    commands: list[dict[str, Any]]
    acks: list[dict[str, Any]]
    lost: list[list[Any]]
    lease_s: float
    status: NotRequired[int]
    reason: NotRequired[str]


class AckAnswers(TypedDict):
    """For one ack `result` and `state`; for several, `acks` in their order."""

    ok: NotRequired[bool]
    result: NotRequired[str]
    state: NotRequired[str | None]
    ignored: NotRequired[bool]
    acks: NotRequired[list[dict[str, Any]]]


class ChunkAnswers(TypedDict):
    """For one frame or a run of them `seq`; for several, `chunks` in their order."""

    ok: NotRequired[bool]
    seq: NotRequired[int]
    duplicate: NotRequired[bool]
    chunks: NotRequired[list[dict[str, Any]]]


class LogStored(TypedDict):
    """The position after what was stored."""

    ok: bool
    position: int


class LogPart(TypedDict):
    """What a stream printed at once."""

    stream: str
    offset: int
    position: int
    at: float
    bytes: bytes


class LogPage(TypedDict):
    """What follows a position, and the position to go on with; `end`: no more will come."""

    attempt: int | None
    claim: int | None
    attempts: list[dict[str, Any]]
    state: str
    end: bool
    offset: int
    parts: list[dict[str, Any]]


class ExecResultStored(TypedDict):
    """How the command stands now; `ignored` where it had ended before."""

    ok: bool
    status: str
    ignored: NotRequired[bool]
    duplicate: NotRequired[bool]


class ExecResultsStored(TypedDict):
    """In the same order; one that is refused says so in `refused`."""

    results: list[dict[str, Any]]


class ExecChunkStored(TypedDict):
    """Where the stream goes on."""

    ok: bool
    offset: int


class Presigned(TypedDict):
    """A URL of this server that is its own credential."""

    url: str
    bucket: str
    key: str
    expires_at: str


class BlobStored(TypedDict):
    """What is stored."""

    key: str
    size: int
    sha256: str
