"""The first contact: what is told, what comes back, when to try again (nymph/protocol, "Hello"; K-15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .. import told
from . import endings, events
from .answers import lose
from .instructions import SendHello
from .leaving import begin_drain
from .state import State

_FINAL: Final = frozenset({400, 401, 403, 404, 405, 410, 422, 426})
"""A hello that was answered so will not be answered otherwise."""


def booted(it: State, event: events.Booted, now: float) -> None:
    for found in event.adopted:
        job = it.held.adopt(found, it.polls.usable_until(now), now)
        if job.state == "ended":
            it.acks.put(job.pair, endings.ack_of(job))
    it.hello_at = now


def send_hello(it: State) -> None:
    """Say it; a poll waits until it is answered."""
    it.hello_out, it.hello_at = True, None
    adopted = () if it.greeted else tuple(job.pair for job in it.held.listed())
    it.out.append(SendHello(adopted=adopted, reenroll=it.reenrolling))


def hello_answered(it: State, event: events.HelloAnswered, now: float) -> None:
    _back(it, "HelloAnswered")
    reject = event.answer.get("reject")
    if reject is not None:
        said = reject if isinstance(reject, Mapping) else {"code": "rejected", "message": str(reject)}
        _refused(it, f"hello was rejected: {said.get('code')}: {said.get('message')}", now)
        return
    it.move("hello", now)
    it.greeted = True
    if event.answer.get("worker_id"):
        it.polls.worker_id = str(event.answer["worker_id"])
    it.polls.lease_s = told.positive(event.answer.get("lease_s")) or it.polls.lease_s
    it.backoff.reset()
    it.polls.not_before = now
    lose(it, event.answer.get("lost"), now)


def hello_failed(it: State, event: events.HelloFailed, now: float) -> None:
    _back(it, "HelloFailed")
    if event.status in _FINAL:
        _refused(it, f"hello was refused ({event.status}): {event.reason}", now)
    elif it.drain is None:
        wait = it.backoff.failed(event.rand)
        it.hello_at = now + wait
        it.say("warning", f"hello failed: {event.reason}; trying again in {wait:.1f} s")


def _refused(it: State, why: str, now: float) -> None:
    """Startup ends here; so do, at once, the jobs of an older daemon that nobody renews."""
    begin_drain(it, why, 1, now, grace_s=None if it.greeted else 0.0)


def _back(it: State, event: str) -> None:
    if not it.hello_out:
        raise it.illegal("an answer to a hello that is not out", event)
    it.hello_out = False
