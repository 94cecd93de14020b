"""The daemon's state machines, as data (see `wire.states`): its loop, a job, a command or script.

CONTRACT K-8, K-11, K-27, K-34; nymph/daemons "The poll loop", nymph/telemetry (the names of the loop's states).
"""

from __future__ import annotations

from typing import Final

from lakeshore.wire.states import Machine

_NOBODY: Final = "nobody: it is the state of a process"

LOOP: Final = Machine(
    name="daemon",
    states=("starting", "polling", "backoff", "hibernating", "draining", "gone"),
    initial=("starting",),
    terminal=frozenset({"gone"}),
    transitions={
        ("starting", "hello"): "polling",
        ("polling", "answer"): "polling",
        ("polling", "failure"): "backoff",
        ("backoff", "answer"): "polling",
        ("backoff", "failure"): "backoff",
        ("backoff", "hello"): "polling",  # with a new key
        ("hibernating", "hello"): "hibernating",
        ("polling", "hibernate"): "hibernating",
        ("hibernating", "hibernate"): "hibernating",
        ("hibernating", "answer"): "hibernating",  # of a renewal: jobs go on while the daemon takes none
        ("hibernating", "failure"): "hibernating",
        ("hibernating", "wake"): "polling",
        ("starting", "drain"): "draining",
        ("polling", "drain"): "draining",
        ("backoff", "drain"): "draining",
        ("hibernating", "drain"): "draining",
        ("draining", "hello"): "draining",
        ("draining", "answer"): "draining",
        ("draining", "failure"): "draining",
        ("draining", "leave"): "gone",
    },
    after_crash=dict.fromkeys(("starting", "polling", "backoff", "hibernating", "draining"), _NOBODY),
)

_ADOPTED: Final = "the next daemon on this host, which adopts it; else the server, when the lease ends"

JOB: Final = Machine(
    name="job",
    states=("waiting", "starting", "running", "stopping", "lapsing", "lost", "ended", "unlisted", "settled", "dropped"),
    initial=("waiting", "starting", "running", "ended"),  # the last two are adopted
    terminal=frozenset({"settled", "dropped"}),
    transitions={
        ("waiting", "begin"): "starting",  # the older body of this invocation has ended
        **{("waiting", event): "dropped" for event in ("stop", "lapse", "lose", "give_back")},
        ("starting", "start"): "running",
        # `stop`: its ending is told. `lapse`: one lease without an answer. `lose`: the claim is somebody else's.
        **{(state, "stop"): "stopping" for state in ("starting", "running")},
        **{(state, "lapse"): "lapsing" for state in ("starting", "running", "stopping")},
        **{(state, "lose"): "lost" for state in ("starting", "running", "stopping", "lapsing")},
        **{(state, "finish"): "ended" for state in ("starting", "running", "stopping", "lapsing")},
        **{(state, "vanish"): "dropped" for state in ("starting", "running", "stopping", "lapsing", "lost")},
        # A body that was being spawned when it was told to stop.
        **{(state, "start"): state for state in ("stopping", "lapsing", "lost")},
        ("ended", "lose"): "unlisted",  # the ack is on its way; its answer will be `stale`, or crossed this one
        ("ended", "answer"): "settled",
        ("unlisted", "answer"): "settled",
    },
    after_crash={
        "waiting": "the server: no later poll lists it",
        "unlisted": "nobody needs to: it is not this daemon's",
        **dict.fromkeys(("starting", "running", "stopping", "lapsing", "lost", "ended"), _ADOPTED),
    },
)

TASK: Final = Machine(
    name="task",
    states=("queued", "running", "stopping", "ended", "told"),
    initial=("queued",),
    terminal=frozenset({"told"}),
    transitions={
        ("queued", "begin"): "running",
        ("queued", "end"): "ended",  # refused: the daemon leaves
        ("running", "stop"): "stopping",
        ("running", "end"): "ended",
        ("stopping", "end"): "ended",
        ("ended", "tell"): "told",
    },
    after_crash={
        "queued": "the server's sweeper",
        **dict.fromkeys(("running", "stopping", "ended"), "the next daemon, from the note on disk (K-34)"),
    },
)
