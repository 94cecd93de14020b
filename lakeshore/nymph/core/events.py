"""What can happen to a daemon: the only things that its core hears of.

Fields are plain values (numbers, strings, bytes, lists, maps), so that an event can be written down and read again
(`recording`). Chance and the wall's clock are fields where they matter: `rand` in [0, 1), `epoch` in seconds since
1970. `answer` is a body as it was decoded (`wire.messages`). A `status` is None when there was no answer at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args

from lakeshore.wire.values import value

Map: TypeAlias = Mapping[str, Any]


@value
class Booted:
    """The first event. `adopted` are jobs that outlived an older daemon: {invocation_id, claim, body?, started_at?,
    usable_until?, ending?}; with `ending` they are over and were never told (see `JobEnded`).
    """

    adopted: Sequence[Map] = ()


@value
class HelloAnswered:
    answer: Map


@value
class HelloFailed:
    """`final` when trying again cannot help: the server refused what was said, or who said it."""

    rand: float
    reason: str
    status: int | None = None


@value
class PollAnswered:
    n: int
    answer: Map
    epoch: float


@value
class PollFailed:
    """`revoked` when the server said that the key or the token is revoked."""

    n: int
    rand: float
    reason: str
    status: int | None = None
    revoked: bool = False


@value
class AcksAnswered:
    """`answers` as `AckAnswer` in wire.messages, those of one `SendAcks`."""

    batch: int
    answers: Sequence[Map]


@value
class AcksFailed:
    batch: int
    rand: float
    reason: str
    status: int | None = None


@value
class ResultAnswered:
    """What `SendResult` sent has arrived."""

    kind: str
    id: str


@value
class ResultsAnswered:
    """Several of a kind have arrived, in one request."""

    kind: str
    ids: Sequence[str]


@value
class ResultFailed:
    kind: str
    id: str
    rand: float
    reason: str
    status: int | None = None


@value
class JobStarted:
    """The body runs."""

    invocation_id: str
    claim: int
    epoch: float


@value
class JobOutput:
    """The end of what the body has printed so far."""

    invocation_id: str
    claim: int
    tail: bytes


@value
class JobEnded:
    """The whole process group is gone and its frames and logs are sent, or it never began.

    `ending` is {state, result_blob? | result_ref?, error?, exit_code?, retry?, retries?, last_seq?}: an ack's fields;
    an `error` that is a string becomes a DaemonError.
    """

    invocation_id: str
    claim: int
    ending: Map


@value
class FramesLost:
    """`SendFrames` could not: what it yielded from `expected` on is not here any more, or none of it is frames."""

    invocation_id: str
    claim: int
    expected: int


@value
class ExecEnded:
    """`result` is the callback's body: {exit_code, stdout, stderr, duration_ms, error?, …}."""

    exec_id: str
    result: Map


@value
class SetupEnded:
    """`result` is {exit_code, duration_ms, error?, …}."""

    setup_id: str
    result: Map


@value
class HostDetected:
    """What `DetectHost` found: the capabilities as hello tells them."""

    capabilities: Map


@value
class KeyRotated:
    key_id: str


@value
class RotationFailed:
    reason: str


@value
class UpdateInstalled:
    """The new program is in its place and has been seen to start."""

    version: str


@value
class UpdateFailed:
    version: str
    reason: str


@value
class Signalled:
    """SIGTERM or SIGINT: the first one drains, the second one stops."""

    name: str


@value
class ClockJumped:
    """The host slept for `slept_s` (0 when only the wall's clock was set). Told before anything that follows it."""

    slept_s: float
    epoch: float


@value
class TimerFired:
    """The time of the last `SetTimer` has come."""


Event: TypeAlias = (
    Booted
    | HelloAnswered
    | HelloFailed
    | PollAnswered
    | PollFailed
    | AcksAnswered
    | AcksFailed
    | ResultAnswered
    | ResultsAnswered
    | ResultFailed
    | JobStarted
    | JobOutput
    | JobEnded
    | FramesLost
    | ExecEnded
    | SetupEnded
    | HostDetected
    | KeyRotated
    | RotationFailed
    | UpdateInstalled
    | UpdateFailed
    | Signalled
    | ClockJumped
    | TimerFired
)

EVENTS: Final[tuple[type, ...]] = get_args(Event)
