"""The policies: what was seen of a queue or pool, and what may be, make one decision. Pure.

    fixed                never anything
    fully_elastic        as many daemons as calls wait, within the bounds
    max_count            the same; without a `max` none at all
    pool_with_threshold  more when the daemons were busy for two looks, fewer when they were idle for two

Three things are not in the documented arithmetic, which would stand still or swing without them: below `min` a daemon
is launched whatever the utilization is; where calls wait and nobody serves them, nobody is busy either, and that asks
for a first daemon; and the last one stays while calls wait.
Reference: get-started/scaling-rules, "Policy rules"; S-517…S-524, S-671.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from ...wire.values import value
from .spec import Spec

WINDOW: Final = 2
"""Looks in a row that a utilization must be high, or low."""

Action: TypeAlias = Literal["scale_up", "scale_down", "tick_noop"]


@value
class Signals:
    """What was seen. `in_flight`: daemons that are launched and do not serve yet. `leaving`: machines that take no more
    work and are still there; they count against `max` alone.
    """

    daemon_count: int = 0
    utilization: float = 0.0
    pending: int = 0
    in_flight: int = 0
    leaving: int = 0

    def told(self) -> dict[str, Any]:
        """As an event shows it."""
        shown: dict[str, Any] = {
            "daemon_count": self.daemon_count,
            "utilization": round(self.utilization, 3),
            "pending": self.pending,
            "in_flight": self.in_flight,
        }
        return {**shown, "leaving": self.leaving} if self.leaving else shown


@value
class Streak:
    """How many looks in a row the utilization was high, and low."""

    above: int = 0
    below: int = 0

    def acted(self, action: Action) -> Streak:
        """After a daemon was launched, or ended: two more looks are needed."""
        if action == "scale_up":
            return Streak(above=0, below=self.below)
        return Streak(above=self.above, below=0) if action == "scale_down" else self


@value
class Decision:
    """One of them a look. A reason names no figure that changes from look to look: those are in the signals."""

    action: Action
    reason: str


def decide(spec: Spec, seen: Signals, streak: Streak) -> tuple[Decision, Streak]:
    """What to do, and the streak that this look made. `Streak.acted` once it was done."""
    if spec.kind == "fixed":
        return _nothing("fixed: no-op"), Streak()
    if spec.kind == "pool_with_threshold":
        return _by_threshold(spec, seen, streak)
    return _by_pending(spec, seen), Streak()


def can_spare(spec: Spec, seen: Signals) -> bool:
    """Whether a queue or pool could lose one of its daemons and would not want it back."""
    if spec.kind == "fixed":
        return False
    return seen.daemon_count > (_least(spec, seen) if spec.kind == "pool_with_threshold" else target_of(spec, seen))


def target_of(spec: Spec, seen: Signals) -> float:
    """How many daemons the calls that wait are worth."""
    return max(min(seen.pending, spec.most), spec.least)


def _by_pending(spec: Spec, seen: Signals) -> Decision:
    target, count = target_of(spec, seen), seen.daemon_count
    if target > count + seen.in_flight:
        return _up(spec, seen, "more calls wait than there are daemons" if target > spec.least else _below(spec))
    if count > target:
        return Decision(action="scale_down", reason="fewer calls wait than there are daemons")
    if target > count:
        return _nothing("the daemons that are missing are on their way")
    if seen.pending > spec.ceiling:
        return _nothing(f"at max={spec.ceiling:g}")
    return _nothing("as many daemons as calls wait" if seen.pending > spec.least else f"at min={spec.least}")


def _by_threshold(spec: Spec, seen: Signals, streak: Streak) -> tuple[Decision, Streak]:
    count = seen.daemon_count
    nobody = count == 0 and seen.in_flight == 0 and seen.pending > 0
    if seen.utilization >= spec.high or nobody:
        streak = Streak(above=streak.above + 1)
    elif seen.utilization <= spec.low:
        streak = Streak(below=streak.below + 1)
    else:
        streak = Streak()
    if count + seen.in_flight < spec.least:
        return _up(spec, seen, _below(spec)), streak
    if streak.above:
        what = "calls wait and nobody serves them" if nobody else f"utilization at or above {spec.high:g}"
        if streak.above < WINDOW:
            return _nothing(f"{what}, for {streak.above} of {WINDOW} ticks"), streak
        return _up(spec, seen, f"{what} for {WINDOW} ticks"), streak
    if streak.below:
        what = f"utilization at or below {spec.low:g}"
        if count <= _least(spec, seen):
            kept = f"at min={spec.least}" if count <= spec.least else "the last daemon stays while calls wait"
            return _nothing(f"{what}, {kept}"), streak
        if streak.below < WINDOW:
            return _nothing(f"{what}, for {streak.below} of {WINDOW} ticks"), streak
        return Decision(action="scale_down", reason=f"{what} for {WINDOW} ticks"), streak
    return _nothing(f"utilization between {spec.low:g} and {spec.high:g}"), streak


def _up(spec: Spec, seen: Signals, why: str) -> Decision:
    if seen.daemon_count + seen.in_flight >= spec.ceiling:
        return _nothing(f"{why}, at max={spec.ceiling:g}")
    if seen.daemon_count + seen.in_flight + seen.leaving >= spec.ceiling:
        return _nothing(f"{why}, at max={spec.ceiling:g} with the machines that are leaving")
    return Decision(action="scale_up", reason=why)


def _below(spec: Spec) -> str:
    return f"below min={spec.least}"


def _least(spec: Spec, seen: Signals) -> int:
    return max(spec.least, 1 if seen.pending else 0)


def _nothing(reason: str) -> Decision:
    return Decision(action="tick_noop", reason=reason)
