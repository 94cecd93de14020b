"""What is due: leases that lapse, the ends of a hibernation, the idle time and a grace; and what may be said by now."""

from __future__ import annotations

from typing import Final

from . import events
from .drain import TERM_GRACE_S
from .greeting import send_hello
from .held import MARGIN
from .instructions import SendAcks, SendResult, SetTimer
from .leaving import begin_drain, leave_if_done, stop_everything
from .state import State
from .work import begin, lapse_job

THAW_S: Final = 10.0
"""After the host has slept, so long may bodies go on while the server is asked whether they are still ours (K-13)."""


def timer_fired(it: State, _event: events.TimerFired, _now: float) -> None:
    it.timer = None


def clock_jumped(it: State, event: events.ClockJumped, now: float) -> None:
    if it.hibernate_until_epoch is not None:
        it.wake_at = now + max(0.0, it.hibernate_until_epoch - event.epoch)
    if event.slept_s > 0:
        it.thaw_until = now + THAW_S
        it.give_up_poll(now)
        it.hurry(now)
        it.backoff.reset()
        if it.hello_at is not None:
            it.hello_at = now
        if it.drain is not None:
            it.drain.slept(event.slept_s)


def settle(it: State, now: float) -> None:
    """Do whatever is due, begin what may begin, say what may be said, leave if that was all."""
    _due(it, now)
    if it.drain is None:
        begin(it, now)
    _talk(it, now)
    if it.drain is not None:
        leave_if_done(it, it.drain, now)
    if it.loop != "gone":
        _set_timer(it, now)


def _due(it: State, now: float) -> None:
    for job in it.held.lapsed(now):
        if now >= it.thaw_until or job.state in ("waiting", "starting"):
            lapse_job(it, job, min(TERM_GRACE_S, it.polls.lease_s * MARGIN / 2), now)
    if it.wake_at is not None and now >= it.wake_at:
        it.wake_at = it.hibernate_until_epoch = None
        it.move("wake", now)
        it.backoff.reset()
        it.polls.not_before = now
    if it.busy():
        it.idle.stop()
    leaves_at = it.idle.leaves_at()
    if leaves_at is not None and now >= leaves_at:
        begin_drain(it, "idle", 0, now)
    if it.drain is not None and it.drain.must_stop(now):
        stop_everything(it, it.drain, now)


def _talk(it: State, now: float) -> None:
    if it.hello_at is not None and now >= it.hello_at:
        send_hello(it)
    poll_at = _poll_at(it)
    if poll_at is not None and now >= poll_at:
        leaving = it.drain is not None and it.drain.restart is None
        it.out.append(it.polls.compose(now, it.held, it.acks, capacity=it.wish(), draining=leaving))
    if it.greeted and it.batch_out is None and (due := it.acks.take_due(now)):
        it.batch += 1
        it.batch_out = tuple(due)
        items = tuple({**it.acks.get(pair), "worker_id": it.polls.worker_id} for pair in due)
        it.out.append(SendAcks(batch=it.batch, items=items))
    for kind, id_ in it.results.take_due(now) if it.greeted else ():
        it.out.append(SendResult(kind=kind, id=id_, body=it.results.get((kind, id_))))


def _poll_at(it: State) -> float | None:
    """When the next poll is to be sent; None: not before something else happens.

    With a free slot at once, but for the back-off; without one, or on the way out, at the pace of renewals.
    """
    polls = it.polls
    if polls.flight is not None or it.hello_out or it.hello_at is not None or not it.greeted or it.dismissed:
        return None
    if it.wish() > 0:
        return polls.not_before
    if (it.drain is not None or it.wake_at is not None) and not it.held.listed():
        return None
    if polls.last_sent_at is None or (polls.capabilities is not None and it.drain is None):
        return polls.not_before
    return max(polls.not_before, polls.last_sent_at + polls.renew_s())


def _set_timer(it: State, now: float) -> None:
    lapse = it.held.lapses_at()
    times = [
        _poll_at(it),
        it.hello_at,
        None if lapse is None else max(lapse, it.thaw_until),
        it.wake_at,
        it.idle.leaves_at(),
        None if it.drain is None else it.drain.next_at(now),
        it.acks.due_at() if it.greeted and it.batch_out is None else None,
        it.results.due_at() if it.greeted else None,
    ]
    at = min((time for time in times if time is not None), default=None)
    if at != it.timer:
        it.timer = at
        it.out.append(SetTimer(at=at))
