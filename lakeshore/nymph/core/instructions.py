"""What the core can ask for. Whoever performs an instruction tells how it went by an event; which one stands beside it.

An instruction never waits for another one: those of one answer may be performed at the same time, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, get_args

from lakeshore.wire.messages import Pair
from lakeshore.wire.values import value

Map: TypeAlias = Mapping[str, Any]


# ---- to the server


@value
class SendHello:
    """→ HelloAnswered, HelloFailed. `adopted` are the pairs that this session takes over; with `reenroll` the enroll
    token is spent again, for a new key.
    """

    adopted: tuple[Pair, ...] = ()
    reenroll: bool = False


@value
class Poll:
    """→ PollAnswered, PollFailed. Give the whole request `patience_s`."""

    n: int
    body: Map
    patience_s: float


@value
class GiveUpPoll:
    """The answer of this poll is not read any more, whenever it comes (K-8). No event follows."""

    n: int


@value
class SendAcks:
    """→ AcksAnswered, AcksFailed. POST /v1/daemon/ack with {acks: items}."""

    batch: int
    items: tuple[Map, ...]


@value
class SendResult:
    """→ ResultAnswered, ResultsAnswered, ResultFailed. How a command (`kind` exec) or a script (setup) ended."""

    kind: str
    id: str
    body: Map


@value
class SendFrames:
    """The ack of this claim was a gap: store its frames from `expected` on. The ack is sent again; FramesLost follows
    where they are not there.
    """

    invocation_id: str
    claim: int
    expected: int


# ---- on this host


@value
class StartJob:
    """→ JobStarted, JobOutput, JobEnded. `body` is the run command's. Ask `Core.may_begin` right before the spawn."""

    invocation_id: str
    claim: int
    body: Map


@value
class StopJob:
    """TERM to the whole group, KILL after `grace_s`. → JobEnded, also when it never began."""

    invocation_id: str
    claim: int
    why: str
    grace_s: float


@value
class ReleaseJob:
    """Nothing of this job is needed any more. `keep` its working directory for whoever looks into a failure."""

    invocation_id: str
    claim: int
    keep: bool


@value
class RunExec:
    """→ ExecEnded. Note it on disk before the spawn: it runs at most once (K-34)."""

    exec_id: str
    body: Map


@value
class StopExec:
    """→ ExecEnded."""

    exec_id: str
    why: str
    grace_s: float


@value
class ReleaseExec:
    """Its result was taken: the note may go."""

    exec_id: str


@value
class RunSetup:
    """→ SetupEnded."""

    setup_id: str
    body: Map


@value
class StopSetup:
    """→ SetupEnded."""

    setup_id: str
    why: str
    grace_s: float


@value
class ReleaseSetup:
    """How it went was taken: what is left of it may go."""

    setup_id: str


@value
class DetectHost:
    """→ HostDetected."""


@value
class RotateKey:
    """→ KeyRotated, RotationFailed."""


@value
class InstallUpdate:
    """→ UpdateInstalled, UpdateFailed. Without `url` and `sha256`: find this version where releases are."""

    version: str
    url: str | None = None
    sha256: str | None = None


@value
class Restart:
    """Become the new program, with the original arguments. Jobs run on, the new daemon adopts them. The last one."""

    version: str


@value
class SetTimer:
    """→ TimerFired at `at`, on the clock of `now`. It replaces the timer before it; None: no timer."""

    at: float | None


@value
class Say:
    """For the log. `level` as in `logging`, lower case."""

    level: str
    message: str


@value
class Exit:
    """Leave, with this code. The last one."""

    code: int
    why: str


Instruction: TypeAlias = (
    SendHello
    | Poll
    | GiveUpPoll
    | SendAcks
    | SendResult
    | SendFrames
    | StartJob
    | StopJob
    | ReleaseJob
    | RunExec
    | StopExec
    | ReleaseExec
    | RunSetup
    | StopSetup
    | ReleaseSetup
    | DetectHost
    | RotateKey
    | InstallUpdate
    | Restart
    | SetTimer
    | Say
    | Exit
)

INSTRUCTIONS: Final[tuple[type, ...]] = get_args(Instruction)
