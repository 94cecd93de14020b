"""Reading what the server answers, in the order of K-28: acks, lost, cancel, then the other commands, `hibernate` last.

The answer of a poll that was given up, or that comes later than its claims can be counted on, is not read (K-8, K-12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakeshore.wire.messages import Pair
from lakeshore.wire.states import IllegalTransition

from .. import told
from . import commands, endings, events, upkeep
from .instructions import ReleaseExec, ReleaseJob, ReleaseSetup, SendFrames
from .leaving import begin_drain
from .polls import STRIDE, Flight
from .state import State
from .tasks import EXEC, Tasks
from .work import LEAVING, lose_job, refuse_task, stop_job, stop_task

REFUSED_PAUSE_S: Final = 1.0
"""Before an ack is sent again that was a gap, or refused."""
QUIET_PAUSE_S: Final = 0.5
"""Before the next poll, when the server answered at once and had nothing new to say."""
_SUPERSEDED: Final = "the server has given this worker to a newer session"
_SETTLED: Final = frozenset({"ok", "duplicate", "stale"})
UNWANTED: Final = frozenset({400, 404, 409, 410, 413, 422})
"""A result that was answered so is wanted by nobody."""


# ---- polls


def poll_answered(it: State, event: events.PollAnswered, now: float) -> None:
    flight = it.polls.land(event.n, "PollAnswered")
    if flight is None:
        return
    answer = event.answer
    it.polls.lease_s = told.positive(answer.get("lease_s")) or it.polls.lease_s
    usable = it.polls.usable_until(flight.sent_at)
    _goodbye_is_over(it, flight)
    if now >= usable:
        it.say("warning", f"the answer of poll {flight.n} came {now - flight.sent_at:.1f} s after it left: not read")
        it.acks.unanswered(flight.acks, now)
        return
    it.move("answer", now)
    it.backoff.reset()
    it.polls.not_before = now
    it.polls.read(flight)
    it.last_poll_ok_epoch = event.epoch
    it.held.renew(flight.pairs, usable)
    it.thaw_until = 0.0
    news = bool(flight.acks)
    _read_acks(it, flight.acks, answer.get("acks"), now)
    news |= lose(it, answer.get("lost"), now)
    news |= _follow(it, answer.get("commands"), usable, event.epoch, now)
    upkeep.look_for_update(it, answer.get("target_nymph_version"), now)
    if answer.get("status") == 410:
        said = answer.get("reason")
        why = f"the server says: {said}" if isinstance(said, str) and said else _SUPERSEDED
        begin_drain(it, why, 0, now)
    if not news and flight.hold_s > 0 and now - flight.sent_at < min(1.0, flight.hold_s / 2):
        it.polls.not_before = now + QUIET_PAUSE_S
    if answer.get("commands"):
        it.idle.stop()
    elif it.loop == "polling" and not it.busy():
        it.idle.nothing_to_do(now)


def poll_failed(it: State, event: events.PollFailed, now: float) -> None:
    flight = it.polls.land(event.n, "PollFailed")
    if flight is None:
        return
    it.acks.unanswered(flight.acks, now)
    _goodbye_is_over(it, flight)
    it.move("failure", now)
    if event.status == 409:
        it.polls.n += STRIDE
    # Claims that are held bound the wait: their lease must not end for a long back-off (K-11).
    wait = it.backoff.failed(event.rand, it.polls.lease_s / 24 if it.held.listed() else None)
    it.polls.not_before = now + wait
    it.say("warning", f"poll {event.n} failed: {event.reason}; trying again in {wait:.1f} s")
    if event.status == 410:
        it.dismissed = True
        begin_drain(it, "the server has removed this worker", 0, now)
    elif event.revoked:
        _revoked(it, event.reason, now)


def _revoked(it: State, reason: str, now: float) -> None:
    if it.settings.may_reenroll and not it.reenrolling and it.drain is None:
        it.reenrolling = True
        it.hello_at = now
    else:
        it.dismissed = True
        begin_drain(it, f"the server has revoked this daemon: {reason}", 1, now)


def _goodbye_is_over(it: State, flight: Flight) -> None:
    if flight.goodbye and it.drain is not None:
        it.drain.goodbye_answered = True


# ---- acks and results


def acks_answered(it: State, event: events.AcksAnswered, now: float) -> None:
    pairs = _batch_back(it, event.batch, "AcksAnswered")
    it.ack_backoff.reset()
    _read_acks(it, pairs, event.answers, now)


def acks_failed(it: State, event: events.AcksFailed, now: float) -> None:
    pairs = _batch_back(it, event.batch, "AcksFailed")
    wait = it.ack_backoff.failed(event.rand, it.retry_ceiling())
    it.acks.unanswered(pairs, now + wait)
    it.say("warning", f"{len(pairs)} acks were not taken: {event.reason}; again in {wait:.1f} s")


def _batch_back(it: State, batch: int, event: str) -> tuple[Pair, ...]:
    if it.batch_out is None or batch != it.batch:
        story = [f"the last is {it.batch}"]
        raise IllegalTransition("batch of acks", str(batch), "nowhere", "anything", event=event, history=story)
    pairs, it.batch_out = it.batch_out, None
    return pairs


def _read_acks(it: State, asked: Sequence[Pair], answers: Any, now: float) -> None:
    answered = {told.pair((a.get("invocation_id"), a.get("claim"))): a for a in told.maps(answers)}
    for pair in asked:
        job, said = it.held.get(*pair), answered.get(pair, {})
        if job is None or pair not in it.acks:
            continue  # it was answered by another route
        result = said.get("result")
        if type(result) is str and result in _SETTLED:
            item = it.acks.answered(pair)
            assert item is not None, "it was there a moment ago"
            it.held.move(job, "answer", now)
            if result == "stale":
                it.say("warning", f"the ack of {job.key} was stale: its claim is not ours any more")
            else:
                it.polls.over.append(endings.last_status(job, item["state"]))
            keep = item["state"] != "succeeded"
            it.out.append(ReleaseJob(invocation_id=job.id, claim=job.claim, keep=keep))
            continue
        it.acks.unanswered((pair,), now + REFUSED_PAUSE_S)
        it.say("warning", f"the ack of {job.key} was not taken: {result or 'no answer'} {said.get('error') or ''}")
        if result == "gap":
            expected = told.count(said.get("expected"))
            it.out.append(SendFrames(invocation_id=job.id, claim=job.claim, expected=expected))


def result_answered(it: State, event: events.ResultAnswered, now: float) -> None:
    it.result_backoff.reset()
    _told(it, event.kind, event.id, "ResultAnswered", now)


def results_answered(it: State, event: events.ResultsAnswered, now: float) -> None:
    it.result_backoff.reset()
    for id_ in event.ids:
        _told(it, event.kind, id_, "ResultsAnswered", now)


def result_failed(it: State, event: events.ResultFailed, now: float) -> None:
    if event.status in UNWANTED:
        it.say("warning", f"nobody takes the result of {event.kind} {event.id} ({event.status}): {event.reason}")
        _told(it, event.kind, event.id, "ResultFailed", now)
        return
    wait = it.result_backoff.failed(event.rand, it.retry_ceiling())
    it.results.unanswered(((event.kind, event.id),), now + wait)
    it.say("warning", f"the result of {event.kind} {event.id} was not taken: {event.reason}; again in {wait:.1f} s")


def _told(it: State, kind: str, id_: str, event: str, now: float) -> None:
    tasks = it.execs if kind == EXEC else it.setups
    tasks.move(tasks.known(id_, event), "tell", now)
    it.results.answered((kind, id_))
    it.out.append(ReleaseExec(exec_id=id_) if kind == EXEC else ReleaseSetup(setup_id=id_))


# ---- lost claims and commands


def lose(it: State, pairs: Any, now: float) -> bool:
    """Claims that are somebody else's by now; whether that is new."""
    news = False
    for pair in told.pairs(pairs):
        job = it.held.get(*pair)
        if job is not None and job.state not in ("lost", "unlisted"):
            news = True
            lose_job(it, job, now)
    return news


def _follow(it: State, raw: Any, usable: float, epoch: float, now: float) -> bool:
    """Follow the commands of an answer; whether one of them was new."""
    understood, skipped = commands.read(raw)
    for one in skipped:
        it.say("warning", f"skipping a command {one.kind!r}: {one.why}")
    new = [_follow_one(it, command, usable, epoch, now) for command in understood]
    return any(new) or bool(skipped)


def _follow_one(it: State, command: commands.Command, usable: float, epoch: float, now: float) -> bool:
    kind, body = command.kind, command.body
    if kind == "cancel":
        return _cancel(it, body, now)
    if kind == "setup":
        return _receive_task(it, it.setups, command.id or f"poll-{it.polls.seen}", body, now)
    if kind == "exec":
        return _receive_task(it, it.execs, body["exec_id"], body, now)
    if kind == "run":
        return _run(it, body, usable, now)
    if kind == "rotate_key":
        upkeep.rotate(it)
    elif kind == "reset_backoff":
        it.backoff.reset()
    elif kind == "ota_update":
        upkeep.update(it, body["version"], body["url"], body["sha256"].lower())
    elif kind == "hibernate" and it.drain is None:
        _hibernate(it, float(body["until_epoch_s"]), epoch, now)
    return True


def _cancel(it: State, body: Mapping[str, Any], now: float) -> bool:
    if type(body.get("exec_id")) is str:
        task = it.execs.get(body["exec_id"])
        if task is None or task.state not in ("queued", "running"):
            return False
        stop_task(it, task, endings.CANCELLED, now)
        return True
    job = it.held.get(body["invocation_id"], body["claim"])
    if job is None or job.state not in ("waiting", "starting", "running"):
        return False
    stop_job(it, job, endings.CANCELLED, now)
    return True


def _receive_task(it: State, tasks: Tasks, id_: str, body: Mapping[str, Any], now: float) -> bool:
    task = tasks.receive(id_, body, now)
    if task is None:
        return False
    if it.drain is not None:
        refuse_task(it, task, LEAVING, now)
    return True


def _run(it: State, body: Mapping[str, Any], usable: float, now: float) -> bool:
    """Take a claim, if there is a slot for it. What is not taken is not listed: it goes back."""
    if it.drain is not None:
        return True
    if it.capacity.free(it.taken()) < 1:
        it.say("info", f"no slot for {body['invocation_id']}: it goes back")
        return True
    job = it.held.receive(body, usable, now)
    if job is None:
        return False
    for older in it.held:
        if older.id == job.id and older is not job and older.state not in ("lost", "unlisted"):
            lose_job(it, older, now)
    return True


def _hibernate(it: State, until_epoch: float, epoch: float, now: float) -> None:
    if until_epoch <= epoch:
        it.say("info", "hibernate: that time is over")
        return
    it.move("hibernate", now)
    it.idle.stop()
    it.hibernate_until_epoch, it.wake_at = until_epoch, now + until_epoch - epoch
