"""How a daemon drains and leaves, or becomes a newer program (`drain` has the rules)."""

from __future__ import annotations

from . import endings, events
from .drain import Drain
from .instructions import Exit, Instruction, Restart
from .state import State
from .work import LEAVING, refuse_task, stop_job, stop_task


def signalled(it: State, event: events.Signalled, now: float) -> None:
    if it.drain is None:
        begin_drain(it, event.name, 0, now)
    elif it.drain.restart is not None:
        it.drain = Drain(event.name, 0, now, it.settings.grace_s)  # leave, and do not come back
    else:
        it.drain.hurry(now)


def begin_drain(
    it: State, why: str, code: int, now: float, *, grace_s: float | None = None, restart: str | None = None
) -> None:
    """Fire the first token, once."""
    if it.drain is not None:
        return
    it.drain = Drain(why, code, now, it.settings.grace_s if grace_s is None else grace_s, restart=restart)
    it.say("warning" if code else "info", f"draining: {why}")
    it.move("drain", now)
    it.idle.stop()
    it.wake_at = it.hibernate_until_epoch = it.hello_at = None
    it.give_up_poll(now)
    it.hurry(now)
    for job in it.held:
        if job.state == "waiting":
            it.held.move(job, "give_back", now)
    for task in (*it.execs.queued(), *it.setups.queued()):
        refuse_task(it, task, LEAVING, now)


def stop_everything(it: State, drain: Drain, now: float) -> None:
    """Fire the second token."""
    drain.stopped = True
    for task in (*it.execs.running(), *it.setups.running()):
        if task.state == "running":
            stop_task(it, task, endings.GRACE_EXPIRED, now)
    for job in it.held.alive() if drain.restart is None else ():
        if job.state in ("starting", "running"):
            stop_job(it, job, endings.GRACE_EXPIRED, now)


def leave_if_done(it: State, drain: Drain, now: float) -> None:
    """Leave once nothing runs and everything is told, or nobody listens."""
    stays = drain.restart is not None
    alive = it.execs.open() + it.setups.open() + (0 if stays else len(it.held.alive()))
    if alive and not (drain.stopped and now >= drain.stuck_at()):
        return
    if drain.ended_at is None:
        drain.ended_at = now
    untold = len(it.results) + (0 if stays else len(it.acks))
    if untold and it.greeted and now < drain.told_by():
        return
    if drain.restart is not None:
        _leave(it, Restart(version=drain.restart), now)
        return
    if not untold and _still_saying_goodbye(it, drain, now):
        return
    if alive or untold:
        it.say("error", f"leaving {alive} behind that run, and {untold} results that nobody has taken")
    _leave(it, Exit(code=drain.code, why=drain.why), now)


def _still_saying_goodbye(it: State, drain: Drain, now: float) -> bool:
    """Say it once; whether its answer may still come."""
    if not it.greeted or it.dismissed or it.held.listed() or drain.goodbye_answered:
        return False
    if not drain.goodbye_sent:
        drain.goodbye_sent = True
        it.give_up_poll(now)
        it.out.append(it.polls.compose(now, it.held, it.acks, capacity=0, draining=True, goodbye=True))
    return now < drain.left_by()


def _leave(it: State, last: Instruction, now: float) -> None:
    it.give_up_poll(now)
    it.move("leave", now)
    it.out.append(last)
