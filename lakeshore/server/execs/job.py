"""A command for one worker (an exec job): what it is, and the states that it goes through.

    pending ──▶ running ──▶ done       it ended with a code of its own, 0 or not
       │           ├──────▶ timeout    exit_code -2
       └───────────┴──────▶ failed     exit_code -1: it was not started, was cancelled, or its daemon is gone

An end is for good: what comes later changes nothing.
Reference: get-started/architecture, "ExecJob"; nymph/protocol, "exec"; S-320…S-334, S-591…S-594, S-628.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ...plane.contract import BlobRef

State = Literal["pending", "running", "done", "failed", "timeout"]
STATES: Final = ("pending", "running", "done", "failed", "timeout")
ENDED: Final = frozenset({"done", "failed", "timeout"})
FAILED: Final = -1
TIMED_OUT: Final = -2
CANCELLED: Final = "cancelled"
RESTARTED: Final = "daemon restarted"
GONE: Final = "daemon gone"
KILLED: Final = "daemon killed"


def state_of(exit_code: int) -> State:
    """The state that an exit code means."""
    return "failed" if exit_code == FAILED else "timeout" if exit_code == TIMED_OUT else "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExec:
    """What to run, and where. `timeout_s` in seconds; `log`: its output is to be sent while it runs.

    `env` and `stdin` may hold secrets: neither is shown or logged, and both are forgotten at the end.
    """

    ns: str
    worker: str
    command: str
    queue: str | None = None
    env: dict[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes = field(default=b"", repr=False)
    workdir: str | None = None
    timeout_s: float | None = None
    log: bool = False
    payload_inline: bytes | None = field(default=None, repr=False)
    payload_ref: BlobRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How it ended. `stdout` and `stderr` are what was captured, `duration_ms` is what its daemon measured."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    duration_ms: int | None = None
    error: str | None = None
    result_inline: bytes | None = None
    result_ref: BlobRef | None = None


@dataclass(slots=True)
class Delivery:
    """Something on its way to a session: with which polls' answers it went, and whether one of them was read."""

    sent: set[int] = field(default_factory=set)
    read: bool = False

    def send(self, n: int) -> bool:
        """It goes with the answer to this poll (0: of a peer that numbers none)."""
        self.sent.add(n)
        return True

    def hear(self, seen: int | None) -> None:
        """The answer to poll `seen` was read; None: every one."""
        self.read = self.read or (bool(self.sent) if seen is None else seen in self.sent)


@dataclass(slots=True, kw_only=True)
class Open:
    """One that has not ended, as it is kept in memory. `size`: of what is sent to the daemon, about, in bytes."""

    seq: int
    id: str
    ns: str
    worker: str
    state: State
    created_at: float
    size: int
    session: str | None = None
    delivery: Delivery = field(default_factory=Delivery)
    cancelled_at: float | None = None
    cancel: Delivery = field(default_factory=Delivery)
    body: dict[str, Any] | None = field(default=None, repr=False)
    """What its daemon is told, of one that was handed out as it came; until it is on its way."""

    @property
    def is_unsent(self) -> bool:
        """Whether no answer to a poll has had it, as far as this process knows."""
        return self.state == "running" and self.body is not None

    @property
    def wants_cancel(self) -> bool:
        """Whether its session is to be told to stop it: once it has heard of it, for what is unknown is not stopped."""
        return self.cancelled_at is not None and self.delivery.read and not self.cancel.read

    @property
    def is_unread(self) -> bool:
        """Whether its session may not have heard all there is to be said."""
        return self.state == "running" and (not self.delivery.read or self.wants_cancel)

    @property
    def of(self) -> tuple[str, str]:
        """Whose it is: (namespace, worker)."""
        return self.ns, self.worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRow:
    """One as it is stored, without what may be secret. Times are Unix seconds; lists have no `stdout` and `stderr`."""

    seq: int
    id: str
    ns: str
    worker: str
    queue: str | None
    command: str
    workdir: str | None
    timeout_s: float | None
    log: bool
    state: State
    cancelled_at: float | None
    exit_code: int | None
    stdout: bytes | None
    stderr: bytes | None
    duration_ms: int | None
    error: str | None
    result_inline: bytes | None
    result_ref: dict[str, Any] | None
    created_at: float
    started_at: float | None
    finished_at: float | None

    @property
    def ended(self) -> bool:
        """Whether nothing of it will change."""
        return self.state in ENDED
