"""Keeps worker processes running in the foreground, and takes them down with itself.

    a child dies                  another one takes its place, after an exponential back-off; it starts afresh once a
                                  child has lived for a minute. Not after exit 0 (done) or 2 (it cannot start, or the
                                  server refuses its token: it says so), nor after three quick exits 1 in a row
    first SIGINT, SIGTERM, SIGHUP passed on as TERM: the running job finishes, then the worker exits
    second, or --kill-timeout     TERM again: the worker stops the body and gives the job back
    third, or two seconds later   KILL
    we are killed with -9         the minder does the same

A child that died is reaped a moment later: until then its guardian, which is not its parent, can read how it ended.

A supervised worker's terminal is ours: Ctrl-C reaches it once, through us. Reference: cli/examples/daemons-and-exec.md.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from .exits import ExitCode
from .minder import GIVE_BACK_S, Minder

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STEADY_S = 60.0
FINAL = (ExitCode.OK, ExitCode.USAGE)
QUICK_S = 5.0
REFUSALS = 3
UNREAPED_S = 0.25


@dataclass(slots=True, kw_only=True)
class Slot:
    """The place of one worker: the process in it, or when the next one starts."""

    child: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0
    reap_at: float | None = None
    """When the process in it, which is dead, is reaped."""
    failures: int = 0
    refusals: int = 0
    """How often in a row a worker failed right after its start."""
    code: int | None = None
    """How the last process ended, once no other is to follow."""


def pause(failures: int) -> float:
    """Seconds before the next start, after so many quick deaths in a row (1, 2, …)."""
    return min(FIRST_PAUSE_S * 2.0 ** (failures - 1), LONGEST_PAUSE_S)


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """`procs` processes of `argv`. `once`: each runs a single time. `say` tells the person what happens."""

    argv: Sequence[str]
    env: Mapping[str, str]
    procs: int = 1
    once: bool = False
    kill_timeout: float = 15.0
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _slots: list[Slot] = field(default_factory=list)
    _asked: list[int] = field(default_factory=list)
    _kill_at: float | None = None
    _in_vain: bool = False
    """Whether a worker said that none can work as they are."""
    _urged: int = 0

    def run(self) -> int:
        """Supervise until all is done; the exit code: the worker's own, or 130 after Ctrl-C. OSError when nothing can
        be started.
        """
        self._slots = [Slot() for _ in range(self.procs)]
        minder = Minder(grace_s=self.kill_timeout)
        try:
            with _signals() as woken:
                while self._turn(minder):
                    _sleep(woken, self._next_due())
                    self._take(woken)
        finally:
            self._end_all(minder)
            minder.close()
        if signal.SIGINT in self._asked and not self.once:
            return ExitCode.INTERRUPTED
        codes = [slot.code or 0 for slot in self._slots]
        return next((code for code in codes if code), ExitCode.OK)

    # -- one turn of the loop

    def _turn(self, minder: Minder) -> bool:
        """Look at every slot; whether anything is left to do."""
        now = self.clock()
        for slot in self._slots:
            if slot.child is not None and self._is_over(slot, slot.child, now):
                minder.forget(slot.child)
                self._ended(slot, slot.child.returncode, now)
            if slot.child is None and slot.code is None and now >= slot.due:
                slot.started = now
                slot.child = minder.start(self.argv, env=self.env)
        if self._kill_at is not None and now >= self._kill_at:
            self._urge()
        return any(slot.code is None for slot in self._slots)

    def _is_over(self, slot: Slot, child: subprocess.Popen[bytes], now: float) -> bool:
        """Whether the child is dead and reaped."""
        if slot.reap_at is None:
            how = _status(child.pid)
            slot.reap_at = None if how is None else now if how in FINAL else now + UNREAPED_S
        if hasattr(os, "waitid") and not self._urged and (slot.reap_at is None or now < slot.reap_at):
            return False
        over = child.poll() is not None
        slot.reap_at = None if over else slot.reap_at
        return over

    def _ended(self, slot: Slot, returned: int, now: float) -> None:
        child, slot.child = slot.child, None
        assert child is not None
        code = 128 - returned if returned < 0 else returned
        if self.once or self._asked or self._in_vain or code in FINAL:
            told_to = (self._asked and not self.once) or self._in_vain
            slot.code = ExitCode.OK if told_to and returned == -signal.SIGTERM else code
            if code == ExitCode.USAGE and self.procs > 1:
                self._stop_the_others()
            return
        quick = code == ExitCode.FAILED and now - slot.started < QUICK_S
        slot.refusals = slot.refusals + 1 if quick else 0
        if slot.refusals == REFUSALS:
            slot.code = code
            self.say(
                f"worker {child.pid} exited with {code}, as the {REFUSALS - 1} before it did, within {QUICK_S:g} s; "
                "not starting another: mend what it says above"
            )
            return
        slot.failures = 1 if now - slot.started >= STEADY_S else slot.failures + 1
        wait = pause(slot.failures)
        slot.due = now + wait
        how = f"was killed by {_name(-returned)}" if returned < 0 else f"exited with {code}"
        self.say(f"worker {child.pid} {how}; starting another in {wait:g} s")

    def _stop_the_others(self) -> None:
        """What one cannot start with, no other can."""
        self._in_vain = True
        for slot in self._slots:
            if slot.child is None and slot.code is None:
                slot.code = ExitCode.USAGE
        self._signal(signal.SIGTERM)

    # -- going down

    def _take(self, woken: int) -> None:
        with suppress(BlockingIOError):
            for number in os.read(woken, 256):
                if number == signal.SIGCHLD:
                    continue
                self._asked.append(number)
                self._urge()

    def _urge(self) -> None:
        """The next step on the way down."""
        self._urged += 1
        now = self.clock()
        for slot in self._slots:
            if slot.child is None and slot.code is None:
                slot.code = ExitCode.OK
        if self._urged == 1:
            running = sum(slot.child is not None for slot in self._slots)
            self.say(f"draining {running} worker{'s' if running != 1 else ''}; once more to stop what runs")
            self._signal(signal.SIGTERM)
            self._kill_at = now + self.kill_timeout
        elif self._urged == 2:
            self.say("stopping the running job and giving it back")
            self._signal(signal.SIGTERM)
            self._kill_at = now + GIVE_BACK_S
        else:
            self._signal(signal.SIGKILL)
            self._kill_at = None

    def _signal(self, number: int) -> None:
        for slot in self._slots:
            if slot.child is not None:
                slot.child.send_signal(number)

    def _next_due(self) -> float | None:
        times = [slot.due for slot in self._slots if slot.child is None and slot.code is None]
        times += [slot.reap_at for slot in self._slots if slot.reap_at is not None]
        if self._kill_at is not None:
            times.append(self._kill_at)
        return max(min(times) - self.clock(), 0.0) if times else None

    def _end_all(self, minder: Minder) -> None:
        """Whatever went wrong in here, no child stays."""
        self._signal(signal.SIGKILL)
        for slot in self._slots:
            if slot.child is not None:
                slot.child.wait()
                minder.forget(slot.child)


def _status(pid: int) -> int | None:
    """The exit code of a child that has ended, negative for a signal; it is not reaped by the question."""
    if not hasattr(os, "waitid"):
        return None
    told = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if told is None:
        return None
    return told.si_status if told.si_code == os.CLD_EXITED else -told.si_status


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _sleep(woken: int, seconds: float | None) -> None:
    select.select([woken], [], [], seconds)


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that becomes readable, with the numbers in it, when a signal arrives."""

    def noted(_number: int, _frame: FrameType | None) -> None:
        """The number has gone to the pipe."""

    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, noted) for number in heard}
    old = signal.set_wakeup_fd(writer)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
