"""Jobs, commands and scripts: how they begin, run, are stopped and end (K-11, K-27, K-34; nymph/protocol)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from . import endings, events
from .drain import TERM_GRACE_S
from .held import Job
from .instructions import DetectHost, ReleaseJob, RunExec, RunSetup, StartJob, StopExec, StopJob, StopSetup
from .state import State
from .tasks import EXEC, Task

LOST_PAUSE_S: Final = 0.1
LEAVING: Final = "the daemon is shutting down"


# ---- jobs


def job_started(it: State, event: events.JobStarted, now: float) -> None:
    job = it.held.known(event.invocation_id, event.claim, "JobStarted")
    it.held.move(job, "start", now)
    job.started_at = event.epoch


def job_output(it: State, event: events.JobOutput, _now: float) -> None:
    job = it.held.get(event.invocation_id, event.claim)
    if job is not None:  # the last of it may come when the job is over
        job.print(event.tail)


def job_ended(it: State, event: events.JobEnded, now: float) -> None:
    job = it.held.known(event.invocation_id, event.claim, "JobEnded")
    # A lost attempt is never acked: it is not listed any more, and the server gives it away. What we ended for want of
    # a lease is a loss, unless it had succeeded or was to end anyway: the claim is the fence.
    ended_by_us = job.state == "lapsing" and event.ending.get("state") != "succeeded" and job.stop_why is None
    was_lost = event.ending.get("state") == "lost"
    vanishes = job.state == "lost" or ended_by_us or was_lost
    if was_lost and it.polls.flight is not None and it.polls.flight.hold_s > 0:
        it.give_up_poll(now)  # the next one tells, of all that are lost in this moment
        it.polls.not_before = max(it.polls.not_before, now + LOST_PAUSE_S)
    it.held.move(job, "vanish" if vanishes else "finish", now)
    it.idle.stop()
    if vanishes:
        it.out.append(ReleaseJob(invocation_id=job.id, claim=job.claim, keep=False))
        return
    job.ending = event.ending
    it.acks.put(job.pair, endings.ack_of(job))


def frames_lost(it: State, event: events.FramesLost, now: float) -> None:
    """A success needs every frame (K-24): without them it is a failure, which needs none."""
    job = it.held.get(event.invocation_id, event.claim)
    if job is None or job.state != "ended" or job.pair not in it.acks:
        return  # it was answered meanwhile
    message = f"what it yielded was not taken: frame {event.expected} is expected, and is not here"
    job.ending = {"state": "failed", "error": {"type": "DispatchError", "message": message}}
    it.say("warning", f"{job.key}: {message}")
    it.acks.put(job.pair, endings.ack_of(job))


def stop_job(it: State, job: Job, why: str, now: float) -> None:
    """Stop a body that starts or runs; its ending is told as `killed`, for this reason."""
    it.held.move(job, "stop", now)
    if job.state == "stopping":
        job.stop_why = why
        _tell_to_stop(it, job, why, TERM_GRACE_S)


def lose_job(it: State, job: Job, now: float) -> None:
    """The claim is somebody else's: the body ends, the pair is not listed any more."""
    was = job.state
    it.held.move(job, "lose", now)
    if was in ("starting", "running"):
        it.say("warning", f"{job.key} is not ours any more: stopping it")
        _tell_to_stop(it, job, "lost", TERM_GRACE_S)


def lapse_job(it: State, job: Job, grace_s: float, now: float) -> None:
    """A lease has gone by without an answer: the body ends before the server gives the claim away."""
    was = job.state
    it.held.move(job, "lapse", now)
    if was in ("starting", "running"):
        it.say("warning", f"no answer for a lease: stopping {job.key} before the server gives it away")
        _tell_to_stop(it, job, "lease", grace_s)


def _tell_to_stop(it: State, job: Job, why: str, grace_s: float) -> None:
    it.out.append(StopJob(invocation_id=job.id, claim=job.claim, why=why, grace_s=grace_s))


# ---- commands and scripts


def exec_ended(it: State, event: events.ExecEnded, now: float) -> None:
    _task_ended(it, it.execs.known(event.exec_id, "ExecEnded"), event.result, now)


def setup_ended(it: State, event: events.SetupEnded, now: float) -> None:
    task = it.setups.known(event.setup_id, "SetupEnded")
    _task_ended(it, task, event.result, now)
    if event.result.get("exit_code") == 0 and task.body.get("refresh_capabilities"):
        it.out.append(DetectHost())


def host_detected(it: State, event: events.HostDetected, now: float) -> None:
    it.polls.capabilities = event.capabilities
    if it.drain is None and it.polls.flight is not None and it.polls.flight.hold_s > 0:
        it.give_up_poll(now)  # it would keep the news back


def refuse_task(it: State, task: Task, why: str, now: float) -> None:
    """It does not begin; that is its result."""
    _task_ended(it, task, {"exit_code": -1, "stdout": b"", "stderr": b"", "duration_ms": 0, "error": why}, now)


def stop_task(it: State, task: Task, why: str, now: float) -> None:
    """Stop one that waits or runs."""
    if task.state == "queued":
        refuse_task(it, task, why, now)
        return
    tasks = it.execs if task.kind == EXEC else it.setups
    tasks.move(task, "stop", now)
    if task.kind == EXEC:
        it.out.append(StopExec(exec_id=task.id, why=why, grace_s=TERM_GRACE_S))
    else:
        it.out.append(StopSetup(setup_id=task.id, why=why, grace_s=TERM_GRACE_S))


def _task_ended(it: State, task: Task, result: Mapping[str, Any], now: float) -> None:
    tasks = it.execs if task.kind == EXEC else it.setups
    tasks.move(task, "end", now)
    it.results.put((task.kind, task.id), dict(result))
    it.idle.stop()


# ---- what may begin


def begin(it: State, now: float) -> None:
    """Begin what has a slot; scripts need none, and run one after the other."""
    for job in it.held.ready():
        if it.capacity.free(it.running()) < 1:
            break
        it.held.move(job, "begin", now)
        it.out.append(StartJob(invocation_id=job.id, claim=job.claim, body=job.body))
    for task in it.execs.queued():
        if it.capacity.free(len(it.execs.running()) + it.held.taken()) < 1:
            break
        it.execs.move(task, "begin", now)
        it.out.append(RunExec(exec_id=task.id, body=task.body))
    if not it.setups.running():
        for task in it.setups.queued()[:1]:
            it.setups.move(task, "begin", now)
            it.out.append(RunSetup(setup_id=task.id, body=task.body))
