"""The daemon as a pure state machine: `handle(event, now)` gives the instructions that follow. No I/O, clock or chance.

`now` is in seconds on a clock that counts suspend and never goes back. Whatever is due by then is done with any event,
so timers are hints. An event that cannot be (a job's second end, a poll that was never sent) raises IllegalTransition
with the key's story. The same events give the same instructions: a recorded log of a real run replays (`recording`).

Where its rules are: `greeting` hello · `answers` polls, acks, commands · `work` jobs, commands, scripts · `upkeep` keys
and versions · `leaving` drain · `clock` what is due, and when to poll.
Reference: nymph/daemons, nymph/protocol; CONTRACT K-5, K-8, K-9, K-11, K-12, K-15, K-27, K-28, K-34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import answers, clock, events, greeting, leaving, upkeep, work
from .instructions import Instruction
from .settings import Settings
from .state import State

_HANDLERS: Final[Mapping[type, Callable[[State, Any, float], None]]] = {
    events.Booted: greeting.booted,
    events.HelloAnswered: greeting.hello_answered,
    events.HelloFailed: greeting.hello_failed,
    events.PollAnswered: answers.poll_answered,
    events.PollFailed: answers.poll_failed,
    events.AcksAnswered: answers.acks_answered,
    events.AcksFailed: answers.acks_failed,
    events.ResultAnswered: answers.result_answered,
    events.ResultsAnswered: answers.results_answered,
    events.ResultFailed: answers.result_failed,
    events.JobStarted: work.job_started,
    events.JobOutput: work.job_output,
    events.JobEnded: work.job_ended,
    events.FramesLost: work.frames_lost,
    events.ExecEnded: work.exec_ended,
    events.SetupEnded: work.setup_ended,
    events.HostDetected: work.host_detected,
    events.KeyRotated: upkeep.key_rotated,
    events.RotationFailed: upkeep.rotation_failed,
    events.UpdateInstalled: upkeep.update_installed,
    events.UpdateFailed: upkeep.update_failed,
    events.Signalled: leaving.signalled,
    events.ClockJumped: clock.clock_jumped,
    events.TimerFired: clock.timer_fired,
}


class Core:
    """One daemon, from its boot to its end. The first event is `Booted`, the last instruction `Exit` or `Restart`."""

    def __init__(self, settings: Settings) -> None:
        self._state = State(settings)

    def handle(self, event: events.Event, now: float) -> tuple[Instruction, ...]:
        """What follows from an event. Raises IllegalTransition, and ValueError for a clock that went back."""
        it = self._state
        name = type(event).__name__
        if it.loop == "gone":
            raise it.illegal("anything", name)
        if (it.now is None) != isinstance(event, events.Booted):
            raise it.illegal("anything before it booted" if it.now is None else "another boot", name)
        if it.now is not None and now < it.now:
            raise ValueError(f"time went back from {it.now} to {now}: give the clock that counts suspend")
        it.now = now
        it.out = []
        _HANDLERS[type(event)](it, event, now)
        clock.settle(it, now)
        return tuple(it.out)

    def may_begin(self, invocation_id: str, claim: int, now: float) -> bool:
        """Whether a job's body may still be spawned: its claim can be counted on, and nobody has stopped it (K-12)."""
        job = self._state.held.get(invocation_id, claim)
        return job is not None and job.state == "starting" and now < job.usable_until

    def status(self) -> dict[str, Any]:
        """What `GET /status` tells of the daemon, but for its version and uptime (nymph/telemetry).

        `pending_version` is there while an update is installed and not yet run.
        """
        it = self._state
        told: dict[str, Any] = {
            "worker_id": it.polls.worker_id if it.greeted else None,
            "queue": it.settings.queue,
            "run_state": "draining" if it.loop == "gone" else it.loop,
            "backoff_s": it.backoff.waiting_s,
            "last_poll_ok_ts": it.last_poll_ok_epoch,
            "inflight": {"count": it.running(), "last_exec_id": it.execs.last_id},
        }
        if it.pending_version is not None:
            told["pending_version"] = it.pending_version
        return told
