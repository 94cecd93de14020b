"""How fast a queue hands out: `rate_limit` calls a second, evenly, at most a tenth of a second's worth at once.

A row keeps one instant, `at`: when it would be even if every call had come in its turn (GCRA). It is wall-clock time.
An instant that lies further ahead than this rate leads is of another rate, or of a clock that was put back: it is
forgotten. Pure.
"""

from __future__ import annotations

import math

_AT_ONCE_S = 0.1
_ROUNDING_S = 1e-6
"""Epoch seconds in a float are exact to a quarter of that."""


def allowed(rate: float, at: float | None, now: float) -> int:
    """How many calls may be handed out now."""
    turn, slack = _shape(rate)
    return max(0, math.floor((now + slack - _even(at, now, turn, slack) + _ROUNDING_S) / turn + 1))


def after(rate: float, at: float | None, now: float, n: int) -> float:
    """The row's instant once `n` calls were handed out."""
    turn, slack = _shape(rate)
    return _even(at, now, turn, slack) + n * turn


def opens_at(rate: float, at: float | None, now: float) -> float:
    """When the next call may be handed out, epoch seconds; not after `now`: at once."""
    turn, slack = _shape(rate)
    return _even(at, now, turn, slack) - slack


def _shape(rate: float) -> tuple[float, float]:
    """A call's turn, and how far ahead of it a call may come, in seconds."""
    turn = 1.0 / rate
    return turn, max(0.0, _AT_ONCE_S - turn)


def _even(at: float | None, now: float, turn: float, slack: float) -> float:
    return now if at is None or at < now or at > now + slack + turn + 2 * _ROUNDING_S else at
