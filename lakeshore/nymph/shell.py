"""The trio shell: performs what the core instructs, and tells it what happened.

Rules: whatever happens is told by `tell`, from any task; the core answers at once, and what it instructs is started,
never awaited. A jump of the clocks is told first. Nothing is told after the last instruction.
Reference: DESIGN §5; docs/adr/0010.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import trio

from .clocks import Watch, now
from .core import events, instructions
from .core.core import Core
from .core.events import Event
from .core.instructions import Instruction

TICK_S: Final = 5.0
"""The longest nap: so soon is it noticed that the host slept, for the clock of naps stood still meanwhile."""
log = logging.getLogger("nymph.core")


class Machine(Protocol):
    """A core, or a `Recorder` of one."""

    def handle(self, event: Event, now: float) -> tuple[Instruction, ...]: ...


Performer = Callable[[Any], None]


class Shell:
    """One daemon's loop. `performers` is filled by whoever builds it: instruction -> what starts it."""

    def __init__(self, core: Core, machine: Machine | None = None, watch: Watch | None = None) -> None:
        self.core = core
        self._machine: Machine = machine or core
        self._watch = watch or Watch()
        self._performers: dict[type, Performer] = {
            instructions.SetTimer: self._set_timer,
            instructions.Say: _say,
            instructions.Exit: self._leave,
            instructions.Restart: self._leave,
        }
        self._timer: float | None = None
        self._nap = trio.CancelScope()
        self._left = trio.Event()
        self.last: instructions.Exit | instructions.Restart | None = None
        """How it ended."""

    def perform_with(self, performers: Mapping[type, Performer]) -> None:
        """Who performs what."""
        self._performers.update(performers)

    def tell(self, event: Event) -> None:
        """Something has happened."""
        jumped = self._watch.look()
        if jumped is not None:
            self._handle(jumped)
        self._handle(event)

    def may_begin(self, invocation_id: str, claim: int) -> bool:
        """See `Core.may_begin`."""
        return self.core.may_begin(invocation_id, claim, now())

    async def run(self, booted: events.Booted, then: Callable[[], None]) -> instructions.Exit | instructions.Restart:
        """From its boot to its last instruction. `then` follows what `booted` tells of."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            self._handle(booted)
            then()
            await self._left.wait()
            nursery.cancel_scope.cancel()
        assert self.last is not None, "it has left"
        return self.last

    def _handle(self, event: Event) -> None:
        if self.last is not None:
            return
        for one in self._machine.handle(event, now()):
            self._performers[type(one)](one)

    def _set_timer(self, one: instructions.SetTimer) -> None:
        self._timer = one.at
        self._nap.deadline = trio.current_time() + self._nap_s()

    def _nap_s(self) -> float:
        return TICK_S if self._timer is None else min(TICK_S, max(0.0, self._timer - now()))

    async def _keep_time(self) -> None:
        while True:
            self._nap = trio.CancelScope(deadline=trio.current_time() + self._nap_s())
            with self._nap:
                await trio.sleep(math.inf)
            jumped = self._watch.look()
            if jumped is not None:
                self._handle(jumped)
            if self._timer is not None and now() >= self._timer:
                self._timer = None
                self._handle(events.TimerFired())

    def _leave(self, one: instructions.Exit | instructions.Restart) -> None:
        self.last = one
        self._left.set()


_LEVELS: Final = {"trace": 5, "debug": 10, "info": 20, "warning": 30, "error": 40}


def _say(one: instructions.Say) -> None:
    log.log(_LEVELS.get(one.level, logging.INFO), "%s", one.message)
