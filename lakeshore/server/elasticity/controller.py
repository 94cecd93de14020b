"""The loop: every few seconds it looks at each queue and pool, and launches or ends one daemon at most for each.

A launch and an end may take minutes: each is a task of its own, and its decision is written down once it is known what
came of it. Meanwhile its rows say that a daemon is on its way (after a restart of the server, too), and its mark that
another one leaves. What failed is written as `tick_noop` with the reason, and waits longer each time before it is tried
again.

A daemon that is to be ended gets no more work, then the writer goes round, and only if it holds nothing by then it is
ended: what it was handed meanwhile keeps it.
Reference: get-started/scaling-rules, "Tick lifecycle"; S-508…S-513, S-525…S-531, S-534, S-535, S-760, S-790, S-822.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import trio

from ...plane.contract import PlaneError
from ...wire.values import value
from ..dispatcher import Dispatcher
from ..execs import Execs
from ..http import HttpError
from ..launching import Launched, LaunchSpec
from ..records import Records, WorkerRow
from ..records.elasticity import ElasticityRow
from ..render import iso
from ..workers import Workers
from .backoff import Backoff, Failure
from .culling import in_order
from .folding import Folding
from .policy import Decision, Signals, Streak, decide
from .settings import Settings
from .tracker import Key, LaunchTracker
from .units import Unit
from .view import View
from .wanted import CannotLaunch, launch_of, name_of

log = logging.getLogger(__name__)

ACTOR: Final = "<elasticity>"
"""Who it was, in the audit."""
_AT_ONCE: Final = 10
"""Units that are looked at before others get their turn."""


class Hands(Protocol):
    """Who makes and ends daemons: `server/launching.py`. Both raise HttpError."""

    async def launch(self, ns: str, wanted: LaunchSpec, *, actor: str = ...) -> Sequence[Launched]: ...
    async def end(self, ns: str, worker_id: str, *, actor: str = ...) -> bool: ...


@value
class _Step:
    """What a look makes of a unit, before it is known what comes of it."""

    unit: Unit
    seen: Signals
    decision: Decision


class Controller:
    """Run `run()` in the server's nursery. `clock` is Unix time in seconds."""

    def __init__(
        self,
        settings: Settings,
        hands: Hands,
        records: Records,
        dispatcher: Dispatcher,
        workers: Workers,
        execs: Execs,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.last_tick_at: float | None = None
        """When every namespace had been looked at, in Unix seconds."""
        self._hands, self._records, self._dispatcher = hands, records, dispatcher
        self._workers, self._execs, self._clock = workers, execs, clock
        self._tracker = LaunchTracker(trio.current_time)
        self._launches, self._ends = Backoff(trio.current_time), Backoff(trio.current_time)
        self._folding = Folding()
        self._streaks: dict[Key, Streak] = {}
        self._coming: dict[Key, set[str]] = {}
        """The daemons that each unit waits for."""
        self._ending: set[Key] = set()

    def last_launch_failure(self, ns: str, names: Iterable[str]) -> Failure | None:
        """The last one of a queue, or of its pool, since it worked."""
        found = (self._launches.last((ns, name)) for name in names)
        return next((failure for failure in found if failure is not None), None)

    async def run(self) -> None:
        """Look, every `tick_s` seconds, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self.settings.tick_s)
                await self.tick(nursery)

    async def tick(self, nursery: trio.Nursery) -> None:
        """Look at everything once; what is begun goes on in `nursery`."""
        looked_at: set[Key] = set()
        for ns in [row.name for row in self._records.namespaces() if self.settings.covers(row.name)]:
            try:
                view = self._view(ns)
                if any(unit.is_elastic for unit in view.units):
                    looked_at |= {unit.key for unit in view.units}
                    await self._look(view, nursery)
            except Exception:  # of what its users and daemons say: the others' queues, and the server, go on
                log.exception("the queues of %s could not be looked after, and will be", ns)
        self._forget_all_but(looked_at)
        self.last_tick_at = self._clock()

    async def _look(self, view: View, nursery: trio.Nursery) -> None:
        told: list[ElasticityRow] = []
        for number, unit in enumerate(view.units):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            self._note_arrivals(view, unit)
            seen = view.signals(unit)
            decision, streak = self._decided(unit, seen)
            step = _Step(unit=unit, seen=seen, decision=decision)
            done = self._end_lost(view, step, nursery) or self._act(view, step, nursery)
            if done.action == "tick_noop":
                told.append(self._row(replace(step, decision=done)))
            self._streaks[unit.key] = streak.acted(done.action)
        await self._write(told)

    def _decided(self, unit: Unit, seen: Signals) -> tuple[Decision, Streak]:
        if unit.spec is None:
            return Decision(action="tick_noop", reason=unit.problem), Streak()
        return decide(unit.spec, seen, self._streaks.get(unit.key, Streak()))

    # --- what is begun; of what cannot be, why

    def _act(self, view: View, step: _Step, nursery: trio.Nursery) -> Decision:
        if step.decision.action == "scale_up":
            return self._launch_one(step, nursery)
        if step.decision.action == "scale_down":
            return self._end_one(view, step, nursery)
        return step.decision

    def _launch_one(self, step: _Step, nursery: trio.Nursery) -> Decision:
        unit = step.unit
        name = name_of(unit, secrets.token_hex(3))
        try:
            wanted = launch_of(unit, name)
        except CannotLaunch as error:
            return _not_done(str(error))
        failure = self._launches.waiting(unit.key)
        if failure is not None:
            until = iso(failure.at + failure.waits_s)
            return _not_done(f"{step.decision.reason} — no launch before {until}: {failure.error}")
        self._tracker.begin(unit.key, name)
        nursery.start_soon(self._launch, step, wanted)
        return step.decision

    def _end_one(self, view: View, step: _Step, nursery: trio.Nursery) -> Decision:
        failure = self._ends.waiting(step.unit.key)
        if failure is not None:
            until = iso(failure.at + failure.waits_s)
            return _not_done(f"{step.decision.reason} — none is ended before {until}: {failure.error}")
        eligible, why = view.eligible(step.unit)
        if not eligible:
            return _not_done(f"{step.decision.reason} — {why}")
        self._start_ending(step, in_order(eligible, step.unit.queues)[0], nursery)
        return step.decision

    def _end_lost(self, view: View, step: _Step, nursery: trio.Nursery) -> Decision | None:
        """A machine of ours whose daemon is gone is of no use: it comes before anything else."""
        unit = step.unit
        lost = view.lost(unit) if unit.is_elastic else []
        if not lost or self._ends.waiting(unit.key) is not None:
            return None
        row, came = lost[0], view.came(lost[0])
        reason = f"daemon {row.label} {'is gone' if came else 'never came'}: its machine goes, too"
        if not came:
            self._failed_launch(unit, f"{row.label} never said hello")
        decision = Decision(action="scale_down", reason=reason)
        self._start_ending(replace(step, decision=decision), row, nursery)
        return decision

    def _start_ending(self, step: _Step, row: WorkerRow, nursery: trio.Nursery) -> None:
        self._ending.add((row.ns, row.id))
        nursery.start_soon(self._end, step, row)

    def _note_arrivals(self, view: View, unit: Unit) -> None:
        """A daemon that was waited for and serves makes good what failed before it; one that is forgotten failed."""
        awaited = self._coming.get(unit.key, set())
        if awaited & {row.id for row in view.serving(unit)}:
            self._launches.worked(unit.key)
        for id_ in awaited:
            if self._records.worker(unit.ns, id_) is None:
                self._failed_launch(unit, f"daemon {id_} was forgotten before it said hello")
        self._coming[unit.key] = {row.id for row in view.coming(unit)}

    # --- what is done

    async def _launch(self, step: _Step, wanted: LaunchSpec) -> None:
        unit, seen = step.unit, step.seen
        try:
            made = await self._hands.launch(unit.ns, wanted, actor=ACTOR)
        except (HttpError, PlaneError) as error:
            failure = self._failed_launch(unit, _words(error))
            why = f"{step.decision.reason} — launch failed: {failure.error}; next try in {failure.waits_s:g} s"
            await self._write([self._row(replace(step, decision=_not_done(why)))])
            return
        finally:
            self._tracker.resolve(unit.key, str(wanted.name))
        self._launches.accepted(unit.key)
        log.info("%s of %s: launched %s", unit.name, unit.ns, ", ".join(one.label for one in made))
        after = replace(seen, in_flight=seen.in_flight + len(made))
        which: dict[str, Any] = {"provider": wanted.provider}
        for one in made:
            which |= {"worker": one.worker, "label": one.label, **({"note": one.note} if one.note else {})}
        await self._write([self._row(step, after, which)])

    async def _end(self, step: _Step, row: WorkerRow) -> None:
        unit, seen, key = step.unit, step.seen, (row.ns, row.id)
        self._workers.keep_idle(*key)
        try:
            kept = await self._why_kept(step, row)
            ended_machine = False if kept else await self._hands.end(*key, actor=ACTOR)
        except (HttpError, PlaneError) as error:
            failure = self._ends.failed(unit.key, _words(error), self._clock())
            log.warning("%s of %s: %s could not be ended: %s", unit.name, unit.ns, row.label, failure.error)
            kept = f"{row.label} could not be ended: {failure.error}; next try in {failure.waits_s:g} s"
        finally:
            self._ending.discard(key)
            self._workers.let_work(*key)
        if kept:
            await self._write([self._row(replace(step, decision=_not_done(f"{step.decision.reason} — {kept}")))])
            return
        self._ends.worked(unit.key)
        log.info("%s of %s: ended %s: %s", unit.name, unit.ns, row.label, step.decision.reason)
        served = row.state == "active"
        after = replace(seen, daemon_count=seen.daemon_count - served, leaving=max(seen.leaving - (not served), 0))
        which = {"worker": row.id, "label": row.label, "terminated": ended_machine}
        await self._write([self._row(step, after, which)])

    async def _why_kept(self, step: _Step, row: WorkerRow) -> str:
        """Why a daemon stays after all. It gets no work by now: what it was handed before is seen behind a commit."""
        for _ in range(2):  # a patient verb goes behind the others of its batch
            await self._dispatcher.writer.write(_nothing)
        view = self._view(row.ns)
        now = self._records.worker(row.ns, row.id)
        if now is None:
            return f"{row.label} has left by itself"
        if now.state != row.state:
            return f"{row.label} is {now.state} now"
        if view.is_busy(row.id):
            return f"{row.label} was given work meanwhile"
        if row.state == "active" and step.unit.spec and view.signals(step.unit).daemon_count < step.unit.spec.least:
            return f"others have left meanwhile, and {row.label} is needed for min={step.unit.spec.least}"
        return ""

    def _failed_launch(self, unit: Unit, error: str) -> Failure:
        failure = self._launches.failed(unit.key, error, self._clock())
        log.warning("%s of %s: no daemon: %s; next try in %g s", unit.name, unit.ns, error, failure.waits_s)
        return failure

    # --- what is written down

    def _row(self, step: _Step, after: Signals | None = None, which: Mapping[str, Any] | None = None) -> ElasticityRow:
        unit, decision = step.unit, step.decision
        return ElasticityRow(
            ns=unit.ns,
            queue=unit.name,
            action=decision.action,
            reason=f"{decision.reason} ({unit.note})" if unit.note else decision.reason,
            before=step.seen.told(),
            after={**(after or step.seen).told(), **(which or {})},
            at=self._clock(),
        )

    async def _write(self, rows: Iterable[ElasticityRow]) -> None:
        due = [one for row in rows for one in self._folding.take(row)]
        if due:
            try:
                await self._records.elasticity.put(due)
            except PlaneError as error:  # a full disk, say: what was done is done
                log.warning("what the elasticity controller decided could not be written down: %s", error)

    def _view(self, ns: str) -> View:
        return View(self._records, self._dispatcher, self._execs, self._tracker, self._ending, ns, self._clock())

    def _forget_all_but(self, keys: set[Key]) -> None:
        for kept in (self._streaks, self._coming):
            for key in kept.keys() - keys:
                del kept[key]
        for book in (self._folding, self._launches, self._ends):
            book.keep(keys)


def _not_done(why: str) -> Decision:
    return Decision(action="tick_noop", reason=why)


def _words(error: HttpError | PlaneError) -> str:
    if isinstance(error, PlaneError):
        return str(error)
    return f"{error.error} ({error.hint})" if error.hint else error.error


def _nothing(_: Any) -> None:
    return None
