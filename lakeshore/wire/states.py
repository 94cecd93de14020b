"""EVERY state machine of Lakeshore, as data: the states, what moves a row from one to another, which states are final,
and who moves a row on after a crash. Code asks these tables; it draws no machine of its own.

Inventory S-623…S-633; CONTRACT K-2, K-6, K-7, K-11…K-15, K-17, K-27, K-34; DECISIONS "Dispatch" and "Daemon".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


class IllegalTransition(RuntimeError):
    """A row was asked for what its state does not allow. `history` is what the row has been, oldest first, if known."""

    def __init__(
        self, machine: str, key: str, from_: str, to: str, *, event: str | None = None, history: Sequence[str] = ()
    ) -> None:
        how = f" by {event}" if event else ""
        been = f"; it has been {', '.join(history)}" if history else ""
        super().__init__(f"{machine} {key} cannot go from {from_} to {to}{how}{been}")
        self.machine = machine
        self.key = key
        self.from_ = from_
        self.to = to
        self.event = event
        self.history = tuple(history)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A state machine. `transitions` maps (state, event) to the state that follows.

    `initial` are the states in which a row may be born. From a `terminal` state no event but a deliberate one of a
    person leads away. `after_crash` says, for each state that is not terminal, who moves such a row on if everybody who
    knew of it is gone.
    """

    name: str
    states: tuple[str, ...]
    initial: tuple[str, ...]
    terminal: frozenset[str] = frozenset()
    transitions: Mapping[tuple[str, str], str]
    after_crash: Mapping[str, str]
    _targets: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        targets = {s: frozenset(to for (from_, _), to in self.transitions.items() if from_ == s) for s in self.states}
        object.__setattr__(self, "transitions", MappingProxyType(dict(self.transitions)))
        object.__setattr__(self, "after_crash", MappingProxyType(dict(self.after_crash)))
        object.__setattr__(self, "_targets", MappingProxyType(targets))

    def after(self, state: str, event: str, *, key: str = "?", history: Sequence[str] = ()) -> str:
        """The state after an event. Raises IllegalTransition."""
        to = self.transitions.get((state, event))
        if to is None:
            wanted = sorted({to for (_, name), to in self.transitions.items() if name == event}) or ["nowhere"]
            raise IllegalTransition(self.name, key, state, " or ".join(wanted), event=event, history=history)
        return to

    def leads(self, state: str, to: str) -> bool:
        """Whether some event leads from `state` to `to`."""
        return to in self._targets.get(state, ())

    def check(self, state: str, to: str, *, key: str = "?", history: Sequence[str] = ()) -> None:
        """Raise IllegalTransition unless some event leads from `state` to `to`."""
        if not self.leads(state, to):
            raise IllegalTransition(self.name, key, state, to, history=history)

    def sources(self, event: str) -> tuple[str, ...]:
        """The states in which an event means something, in the order of `states`."""
        return tuple(state for state in self.states if (state, event) in self.transitions)


def _each(states: tuple[str, ...], event: str, to: str) -> dict[tuple[str, str], str]:
    return {(state, event): to for state in states}


# ---- invocation

DELAYED: Final = "delayed"
QUEUED: Final = "queued"
RUNNING: Final = "running"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
KILLED: Final = "killed"
TIMEOUT: Final = "timeout"

INVOCATION: Final = Machine(
    name="invocation",
    states=(DELAYED, QUEUED, RUNNING, SUCCEEDED, FAILED, KILLED, TIMEOUT),  # a delayed one is shown as queued
    initial=(QUEUED, DELAYED),
    terminal=frozenset({SUCCEEDED, FAILED, KILLED, TIMEOUT}),
    transitions={
        (DELAYED, "promote"): QUEUED,  # the instant that it waits for has come
        (DELAYED, "cancel"): KILLED,
        (QUEUED, "claim"): RUNNING,
        (QUEUED, "cancel"): KILLED,
        (RUNNING, "release"): QUEUED,  # given back, or no longer listed, before it started (K-8)
        (RUNNING, "lose"): QUEUED,  # its worker is gone and attempts remain (K-7)
        (RUNNING, "exhaust"): FAILED,  # its worker is gone and none remain: WorkerLost
        (RUNNING, "nack"): QUEUED,  # the body failed and attempts remain
        (RUNNING, "settle_succeeded"): SUCCEEDED,
        (RUNNING, "settle_failed"): FAILED,
        (RUNNING, "settle_killed"): KILLED,  # also every other end after a request to cancel, and its deadline (K-27)
        (RUNNING, "settle_timeout"): TIMEOUT,
        (RUNNING, "cancel_unstarted"): KILLED,
        (RUNNING, "request_cancel"): RUNNING,  # noted with a deadline; a success that is acked first wins
        **_each((FAILED, KILLED, TIMEOUT), "retry", QUEUED),  # by a person, or by a submit with a nonce (K-17)
    },
    after_crash={
        DELAYED: "the server's timer, which asks the rows for the next instant when it starts; on the file plane the "
        "next claim of its queue",
        QUEUED: "the next claim of its queue",
        RUNNING: "the server's sweeper, when the lease expires (K-13); on the file plane the next claim, which finds "
        "that it can take the worker's lock (K-14)",
    },
)

# The local plane's documented words (P-280). They are for showing and counting: rows hold the names above.
LOCAL_NAMES: Final[Mapping[str, str]] = MappingProxyType({KILLED: "cancelled"})


def local_name(state: str) -> str:
    """What the SDK's local plane calls a state."""
    return LOCAL_NAMES.get(state, state)


def row_state(name: str) -> str:
    """The row's name of a state that a caller may have named in the local plane's words."""
    return KILLED if name == LOCAL_NAMES[KILLED] else name


# ---- queue

_QUEUE_STATES: Final = ("active", "draining", "paused", "archived")

QUEUE: Final = Machine(
    name="queue",
    states=_QUEUE_STATES,
    initial=("active",),
    transitions={
        **_each(("active", "paused", "draining"), "drain", "draining"),  # no new submits, queued rows still run
        **_each(("active", "draining"), "pause", "paused"),  # submits accepted, nothing claimed
        **_each(_QUEUE_STATES, "archive", "archived"),  # neither
        **_each(_QUEUE_STATES, "unarchive", "active"),
        ("paused", "resume"): "active",
    },
    after_crash=dict.fromkeys(_QUEUE_STATES, "nobody needs to: only people move it"),
)

# ---- worker

_WORKER_STATES: Final = ("pending", "setting_up", "joining", "active", "hibernating", "draining", "gone")
_SWEEPER: Final = "the server's sweeper, after 10 minutes of silence (configurable)"

WORKER: Final = Machine(
    name="worker",
    states=_WORKER_STATES,
    initial=("pending", "setting_up", "joining", "active"),  # launched; with setup; by hello; by a bare poll
    terminal=frozenset(),  # a gone worker may come back: the host slept, or the network did
    transitions={
        **_each(_WORKER_STATES, "hello", "joining"),
        **_each(_WORKER_STATES, "hello_with_setup", "setting_up"),  # setup commands remain
        **_each(("joining", "active"), "setup", "setting_up"),  # a script is left for it
        ("setting_up", "setup_done"): "joining",
        ("setting_up", "poll"): "setting_up",
        **_each(("pending", "joining", "active", "hibernating", "gone"), "poll", "active"),
        ("draining", "poll"): "draining",
        **_each(("setting_up", "joining", "active", "hibernating"), "hibernate", "hibernating"),  # it was told to
        **_each(_WORKER_STATES, "drain", "draining"),
        **{(state, "undrain"): "joining" if state == "draining" else state for state in _WORKER_STATES},
        **_each(_WORKER_STATES, "goodbye", "gone"),
        **_each(("pending", "setting_up", "joining", "active", "hibernating", "draining"), "silence", "gone"),
    },
    after_crash={
        **dict.fromkeys(_WORKER_STATES, _SWEEPER),
        "hibernating": "its own next poll; else the sweeper, 10 minutes after the end of its sleep",
        "gone": "its own next hello or poll, if it lives",
    },
)

# `stale` is shown, never stored: no contact for longer than this.
STALE_AFTER_S: Final = 60.0

SESSION: Final = Machine(
    name="session",
    states=("current", "fenced"),
    initial=("current",),
    terminal=frozenset({"fenced"}),  # fenced once is fenced for good (K-15)
    transitions={("current", "fence"): "fenced"},
    after_crash={"current": "the worker's next session fences it; its claims go by their leases"},
)

HOST: Final = Machine(
    name="host",
    states=("starting", "running", "stopping", "stopped", "terminated", "unknown"),
    initial=("starting", "unknown"),
    terminal=frozenset({"terminated"}),
    transitions={
        (state, f"saw_{seen}"): seen
        for state in ("starting", "running", "stopping", "stopped", "unknown")
        for seen in ("starting", "running", "stopping", "stopped", "terminated", "unknown")
    },
    after_crash=dict.fromkeys(
        ("starting", "running", "stopping", "stopped", "unknown"), "the next look at the provider's own list"
    ),
)

# What a launch asked for, as its row has it; `HOST` is what its provider says of it.
LAUNCHED: Final = Machine(
    name="launched machine",
    states=("asked", "made", "ending", "ended", "released"),
    initial=("asked",),
    terminal=frozenset({"ended", "released"}),
    transitions={
        ("asked", "answer"): "made",  # or its tag was found
        ("asked", "refusal"): "ended",  # there is none, and never was
        **_each(("asked", "made"), "kill", "ending"),
        **_each(("asked", "made"), "release", "released"),  # its worker went without it
        **_each(("made", "ending"), "end", "ended"),  # its provider says so
    },
    after_crash={
        "asked": "the next look at the provider's own list: its tag is found, or it never came",
        "made": "the next look at the provider's own list",
        "ending": "the next look at the provider's own list, which ends it again",
    },
)

# ---- ad-hoc commands

EXEC_JOB: Final = Machine(
    name="exec job",
    states=("pending", "running", "done", "timeout", "failed"),
    initial=("pending",),
    terminal=frozenset({"done", "timeout", "failed"}),
    transitions={
        ("pending", "deliver"): "running",
        ("pending", "abandon"): "failed",  # its worker is gone for good
        ("running", "exit"): "done",
        ("running", "time_out"): "timeout",  # exit code -2
        ("running", "fail"): "failed",  # exit code -1
        ("running", "lose"): "failed",  # at most once: never delivered again (K-34)
    },
    after_crash={
        "pending": "the worker's next poll, or the sweeper when the worker is gone",
        "running": "the daemon, which noted it before the spawn and reports `daemon restarted`; else the sweeper",
    },
)

# ---- credentials and registrations

DAEMON_KEY: Final = Machine(
    name="daemon key",
    states=("active", "retiring", "revoked"),
    initial=("active",),
    terminal=frozenset({"revoked"}),
    transitions={
        ("active", "rotate"): "retiring",  # verifies until the overlap ends
        ("retiring", "expire"): "revoked",
        **_each(("active", "retiring"), "revoke", "revoked"),
    },
    after_crash={"active": "the daemon's next poll, which is told to rotate", "retiring": "the reaper on each poll"},
)

ENROLL_TOKEN: Final = Machine(
    name="enroll token",
    states=("unspent", "consumed", "expired"),
    initial=("unspent",),
    terminal=frozenset({"consumed", "expired"}),
    transitions={("unspent", "consume"): "consumed", ("unspent", "expire"): "expired"},
    after_crash={"unspent": "its expiry"},
)

TOKEN: Final = Machine(
    name="token",
    states=("live", "revoked"),
    initial=("live",),
    terminal=frozenset({"revoked"}),
    transitions={("live", "revoke"): "revoked"},
    after_crash={"live": "nobody needs to"},
)

PROVIDER: Final = Machine(
    name="provider",
    states=("live", "deleted"),
    initial=("live",),
    transitions={("live", "delete"): "deleted", ("deleted", "restore"): "live"},
    after_crash={"live": "nobody needs to", "deleted": "nobody needs to"},
)

STORAGE: Final = Machine(
    name="storage",
    states=("live", "deleted"),
    initial=("live",),
    terminal=frozenset({"deleted"}),
    transitions={("live", "delete"): "deleted"},
    after_crash={"live": "nobody needs to"},
)

MACHINES: Final = (
    *(INVOCATION, QUEUE, WORKER, SESSION, HOST, LAUNCHED, EXEC_JOB),
    *(DAEMON_KEY, ENROLL_TOKEN, TOKEN, PROVIDER, STORAGE),
)
