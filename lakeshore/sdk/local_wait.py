"""The wait for one result of the plane on this machine, and the call that is a submit and a wait in one.

Nobody is told of such a call before its result, which is on disk, and its row with it: so it needs no sync of its own
(K-29), and no look before a bell rings. When there is no result soon, or none at all, it is synced like any submit:
it is a long wait then, or its id is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgpack

from ..plane.bells import Bell
from ..plane.contract import Ended, Submission
from . import outcomes
from .hints import unused_login
from .open_plane import OpenPlane

SOON_S = 0.01
Look = Callable[[], Ended]


def result(state: OpenPlane, inv_id: str, look: Look, timeout: float | None) -> bytes:
    """The packed result, once it is there. Raises what `Dispatch.result` does."""
    until = deadline(timeout)
    ended = look()
    if not ended.terminal:
        with state.bells.listen("done") as bell:
            ended = _waited(state, bell, look(), look, until, timeout)
    return _result_of(state, ended)


def call(state: OpenPlane, item: Submission, look: Look, timeout: float | None) -> bytes | None:
    """Submit and wait; None, and nothing done, when the submit is not one that can be left in the inbox."""
    until = deadline(timeout)
    with state.bells.listen("done") as bell:
        mark = state.leave((item,))
        if mark is None:
            return None
        ended = None
        try:
            state.ring_work(item.ns, item.queue)
            bell.wait(min(SOON_S, until - time.monotonic()))
            ended = look()
        finally:
            if ended is None or not ended.terminal:
                state.keep_mail(mark)
        ended = _waited(state, bell, ended, look, until, timeout)
    return _result_of(state, ended)


def deadline(timeout: float | None) -> float:
    """When a wait of so many seconds that begins now is over."""
    return float("inf") if timeout is None else time.monotonic() + timeout


def _waited(state: OpenPlane, bell: Bell, ended: Ended, look: Look, until: float, timeout: float | None) -> Ended:
    """The ending, after `ended` was seen since the bell listens."""
    while not ended.terminal:
        if ended.state != "pending":
            raise outcomes.not_there(ended.id, ended.state)
        left = until - time.monotonic()
        if left <= 0:
            hint = None if state.workers is None else unused_login()
            raise outcomes.still(ended.id, str(ended.row_state), timeout, hint)
        bell.wait(left)
        ended = look()
    return ended


def _result_of(state: OpenPlane, ended: Ended) -> bytes:
    if ended.state != "succeeded":
        raise outcomes.failure(ended.id, ended.state, msgpack.unpackb(ended.error) if ended.error else None)
    return state.fetch(ended.result, f"the result of {ended.id}")
