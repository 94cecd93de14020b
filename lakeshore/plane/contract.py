"""What a plane takes and answers, and how it refuses.

    PlaneError
    ├── Refused                 the caller's fault; nothing was written
    │   ├── Conflict            the id is taken by another submit
    │   ├── Purged              the id lived here once and was purged
    │   ├── UnknownInvocation
    │   ├── NotHeld             the report's claim is not the row's claim any more
    │   ├── Gap                 a frame (or an ack) runs ahead of what is stored
    │   ├── Superseded          a poll older than the newest one seen
    │   ├── QueueNotActive      draining or archived
    │   ├── QueueFull           for now: max_depth is reached
    │   │   └── QueueBehind     for now: what is queued has waited for too long
    │   ├── QueueBusy           it still has calls, so it is not removed
    │   └── IllegalTransition   the state machine has no such edge
    └── PlaneFailed             the machine's fault
        ├── PlaneFull           no space: reads, acks and frames go on, submits do not
        ├── SyncFailed          the disk refused a sync: nothing after it may be believed
        └── UnfitPlane          SQLite too old, a network file system, a newer schema, another owner

Times are seconds since the epoch, UTC. Payloads are opaque bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..wire.run_configs import Offer
from ..wire.values import value

State = Literal["queued", "running", "succeeded", "failed", "killed", "timeout"]
TERMINAL: frozenset[str] = frozenset({"succeeded", "failed", "killed", "timeout"})
STATES: tuple[State, ...] = ("queued", "running", "succeeded", "failed", "killed", "timeout")
DELAYED = "delayed"
"""What the file says of a queued row whose instant has not come, so that nobody claims it. It is shown as `queued`."""
KINDS: tuple[str, ...] = ("fifo", "priority", "filo", "boltzmann")

INLINE_BYTES = 64 * 1024
"""From this size on a payload is a file beside the database, not a value inside it (K-20)."""
DEFAULT_MAX_ATTEMPTS = 3
FREE_LOSSES = 3
"""So many lease expiries of an unstarted claim cost no attempt (K-6)."""


class PlaneError(Exception):
    """Root of what a plane raises."""


class Refused(PlaneError):
    """The request cannot be done as asked; nothing was written."""


class Conflict(Refused):
    """The id is taken by a submit with other content, or in another namespace."""


class Purged(Refused):
    """The id was used, settled and purged; it will not run again."""


class UnknownInvocation(Refused):
    """No such row in this namespace."""


class NotHeld(Refused):
    """The claim that reports is not the row's claim any more."""


class Superseded(Refused):
    """A poll numbered at or below the newest one of its session."""


class IllegalTransition(Refused):
    """The row's state has no such edge."""


class Gap(Refused):
    """Frames are missing before this one."""

    def __init__(self, invocation_id: str, expected: int, got: int) -> None:
        super().__init__(f"frame {got} of {invocation_id} is ahead of what is stored; send frame {expected} first")
        self.expected = expected


class QueueNotActive(Refused):
    """The queue is draining or archived and takes no submits."""

    def __init__(self, queue: str, state: str) -> None:
        super().__init__(f"queue {queue!r} is {state}; it takes no new submits")
        self.queue, self.state = queue, state


class QueueFull(Refused):
    """The queue's admission limit is reached. `blocks`: whoever submits is to be held until there is room."""

    def __init__(self, queue: str, max_depth: int | None, *, blocks: bool = False, says: str | None = None) -> None:
        super().__init__(says or f"queue {queue!r} is full (max_depth {max_depth}); try again later")
        self.queue, self.max_depth, self.blocks = queue, max_depth, blocks


class QueueBehind(QueueFull):
    """What is queued has waited longer than the queue's `deadline_cutoff_s`, so nothing more is taken."""

    def __init__(self, queue: str, cutoff_s: float, waited_s: float, *, blocks: bool = False) -> None:
        says = (
            f"queue {queue!r} is behind: its oldest call has waited {waited_s:.1f} s "
            f"(deadline_cutoff_s {cutoff_s:g}); try again later"
        )
        super().__init__(queue, None, blocks=blocks, says=says)
        self.cutoff_s, self.waited_s = cutoff_s, waited_s


class QueueBusy(Refused):
    """The queue has calls that are queued or running."""

    def __init__(self, queue: str, queued: int, running: int) -> None:
        super().__init__(f"queue {queue!r} has {queued} queued and {running} running calls")
        self.queue, self.queued, self.running = queue, queued, running


class PlaneFailed(PlaneError):
    """The machine under the plane failed."""


class PlaneFull(PlaneFailed):
    """No space is left for new work."""


class SyncFailed(PlaneFailed):
    """A sync was refused by the disk."""


class UnfitPlane(PlaneFailed):
    """This plane cannot be opened here; the message says why and what to do."""


@value
class BlobRef:
    """A payload that lives in a file: key below the blob root, size in bytes, sha256 in hex."""

    key: str
    size: int
    sha256: str


Payload = bytes | BlobRef


@value
class Submission:
    """One invocation to insert. `function`, `run_config`, `code` are msgpack maps the plane never opens. Nobody gets it
    before the instant `due`; None, or one that has passed: at once. `needs` is what it asks of a worker, as
    `wire/run_configs` says it; None: nothing.
    """

    ns: str
    queue: str
    id: str
    args: Payload
    hash: bytes
    function: bytes = b"\x80"
    run_config: bytes = b"\x80"
    code: bytes = b"\x80"
    prefix: str | None = None
    priority: float = 0.0
    key: str | None = None
    parent: str | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    retry_nonce: str | None = None
    due: float | None = None
    needs: str | None = None


@value
class Submitted:
    """Where a submit ended up: `existing` when another submit holds its key, `again` when the row was there already,
    by that one or by this very submit. `due` while it waits for that instant. `needs` of a row that is new.
    """

    id: str
    queue: str
    existing: bool = False
    again: bool = False
    retried: bool = False
    due: float | None = None
    needs: str | None = None


@value
class Wish:
    """What a worker asks for: queue names (a trailing `*` is a prefix), how many, in which order.

    `draw` is a number in [0, 1) that decides boltzmann's sample; `temperature` is its T. `offer` is what the worker
    has: rows that ask for more are not for it. None: every row is (this machine's own queues).
    """

    ns: str
    queues: tuple[str, ...]
    worker: str
    session: str = ""
    n: int = 0
    capacity: int = 1
    kind: str = "fifo"
    temperature: float = 1.0
    draw: float = 0.0
    start: bool = False
    offer: Offer | None = None

    def limited(self, capacity: int) -> Wish:
        """The same wish for fewer."""
        return Wish(
            ns=self.ns,
            queues=self.queues,
            worker=self.worker,
            session=self.session,
            n=self.n,
            capacity=capacity,
            kind=self.kind,
            temperature=self.temperature,
            draw=self.draw,
            start=self.start,
            offer=self.offer,
        )


@value
class Claimed:
    """One claimed row, ready to run. `attempt` is the number this execution will have, from 1."""

    id: str
    ns: str
    queue: str
    claim: int
    attempt: int
    first_seq: int
    args: Payload
    function: bytes
    run_config: bytes
    prefix: str | None
    parent: str | None
    root: str


Outcome = Literal["succeeded", "failed", "killed", "timeout"]


@value
class Report:
    """How one execution ended. Without `claim` it is matched by worker, for peers that echo none (K-5)."""

    ns: str
    id: str
    outcome: Outcome
    claim: int | None = None
    worker: str | None = None
    result: Payload = b""
    error: bytes | None = None
    retry: bool = False
    retries: int | None = None
    last_seq: int | None = None


@value
class Settled:
    """The answer to a report: `ok`, `duplicate` (said before), `stale` (not yours any more) or `gap`."""

    id: str
    claim: int | None
    result: Literal["ok", "duplicate", "stale", "gap"]
    state: str | None = None
    queue: str | None = None
    expected: int | None = None
    attempt: int | None = None
    """The attempts of a row that succeeded by this report: nothing changes it any more."""


@value
class Held:
    """A pair that a worker lists: it holds this claim, and has (not) begun its body."""

    id: str
    claim: int
    started: bool


@value
class Loss:
    """Why a claim's worker is gone, as far as that is known; None is what is not.

    `code` when its process exited, `signal` (a name) when it was killed, `oom` whether for want of memory (K-12).
    `why` is said when neither is known.
    """

    why: str = "how its process ended is not known"
    code: int | None = None
    signal: str | None = None
    oom: bool | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"its process was killed by {self.signal}{' for want of memory' if self.oom else ''}"
        return self.why if self.code is None else f"its process exited with code {self.code}"


@value
class Poll:
    """One poll of a session: its number, what it holds, how bodies ended, and what it wishes for (K-8, K-28).

    `loss` when the worker is dead: what had begun and is not listed any more was lost by that.
    """

    ns: str
    worker: str
    session: str
    n: int
    held: Sequence[Held] = ()
    reports: Sequence[Report] = ()
    wish: Wish | None = None
    loss: Loss | None = None


@value
class PollAnswer:
    """In the order a worker reads it: answers to reports, lost pairs, cancels, runs."""

    settled: Sequence[Settled] = ()
    lost: Sequence[tuple[str, int]] = ()
    cancel: Sequence[tuple[str, int]] = ()
    runs: Sequence[Claimed] = ()
    fenced: bool = False
    freed: Sequence[str] = ()
    """Queues that got a row back by this poll."""


@value
class Cancelled:
    """What a cancel did: `cancelled` now, `cancelling` (the holder was asked), or neither (terminal)."""

    id: str
    state: str
    queue: str
    cancelled: bool
    cancelling: bool = False
    worker: str | None = None
    claim: int = 0


@value
class Appended:
    """A stored frame: its seq, and whether it had been stored before."""

    seq: int
    duplicate: bool = False


@value
class Ended:
    """A row as a waiter sees it: a terminal state with result or error, or `pending`, `unknown`, `purged` (K-22)."""

    id: str
    state: str
    row_state: str | None = None
    result: Payload = b""
    error: bytes | None = None
    attempt: int = 0

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL
