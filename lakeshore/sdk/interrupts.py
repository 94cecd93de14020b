"""Stops a body that is running: at its deadline, when its claim is lost or cancelled, when its worker must go.

A body is stopped by an exception in its own thread, so that its `finally` blocks run. Only the watchdog thread decides
and fires. In the main thread it fires with a signal, whose handler raises: that also ends a sleep, a read or a wait. In
another thread it uses the interpreter's asynchronous exception, which is seen when the body runs Python code again.
A signal that comes just before a sleep begins does not end it: one whose handler has not raised is sent again.
A body that has not ended after the grace period is stopped once more; what is still there after another one is stuck,
and `on_stuck` is called (a worker process replaces itself then; in a program of the user's nothing else can be done).
K-11, K-35.
"""

from __future__ import annotations

import _thread
import ctypes
import logging
import queue
import signal
import threading
from collections.abc import Callable
from time import monotonic  # the watchdog goes on when a body breaks the module's own
from types import FrameType, TracebackType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)

GRACE_S = 5.0
_UNSEEN_S = 0.05
"""Until a signal is sent again whose handler has not raised; then twice as long each time, so that a body which is deaf
to signals is not kept from its system calls.
"""
_SIGNAL = signal.SIGURG  # ignored by default, so that one which comes late does nothing
_IDLE_S = 3600.0


class Interruption(KeyboardInterrupt):  # event loops let a KeyboardInterrupt through, and `except Exception` does too
    """Raised in a body that must end."""


class Interrupter:
    """Stops the bodies that one thread runs, one after the other. Enter it in that thread.

    Its watchdog is a thread from then on, or (`at_once` false: one short body, nearly always left alone) from the first
    thing that it has to do. `start` and `finish` frame a body; `interrupt` may be called by any thread and by a signal
    handler.
    """

    def __init__(
        self, *, grace_s: float = GRACE_S, on_stuck: Callable[[str], None] | None = None, at_once: bool = True
    ) -> None:
        self.grace_s = grace_s
        self._at_once = at_once
        self._asleep = threading.Lock()
        """Until it is taken there is no watchdog."""
        self._on_stuck = on_stuck
        self._lock = threading.RLock()  # held by the body's thread where nothing may be raised in it
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # put() is reentrant
        self._thread_id = 0
        self._serial = 0
        self._running = 0  # the serial of the body that may be interrupted, 0 for none
        self._held = False  # nothing may be raised now
        self._raised = 0  # the serial of the body in which this stop of it was raised
        self._wanted: tuple[int, str] | None = None
        self._deadline: tuple[int, float] | None = None
        self._looks_at = 0.0  # when the watchdog looks at the deadline again
        self._async_set = False
        self._by_signal = False
        self._previous: Any = None

    def __enter__(self) -> Interrupter:
        self._thread_id = threading.get_ident()
        if threading.current_thread() is threading.main_thread() and signal.getsignal(_SIGNAL) is signal.SIG_DFL:
            self._previous = signal.signal(_SIGNAL, self._on_signal)
            self._by_signal = True
        if self._at_once and self._asleep.acquire(blocking=False):
            threading.Thread(target=self._watch, name="lakeshore-watchdog", daemon=True).start()
        return self

    def _send(self, message: Callable[[], None]) -> None:
        """To the watchdog, which begins with the first message where it did not at once. No lock is waited for: this
        may be in a signal handler, which is why it is no `threading.Thread`.
        """
        self._inbox.put(message)
        if self._asleep.acquire(blocking=False):
            _thread.start_new_thread(self._watch, ())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
        self._inbox.put(None)
        if self._by_signal:
            signal.signal(_SIGNAL, self._previous)
            self._by_signal = False

    @property
    def busy(self) -> bool:
        """Whether a body runs."""
        return self._running != 0

    # -- the body's thread

    def start(self, timeout_s: float | None = None) -> int:
        """A body begins; its serial number. It is interrupted after `timeout_s` seconds."""
        serial = self._serial + 1
        self._wanted = None
        self._deadline = None if timeout_s is None else (serial, monotonic() + timeout_s)
        self._serial = self._running = serial
        # The watchdog writes when it will look and then reads the deadline; here it is the other way round.
        if self._deadline is not None and (self._deadline[1] < self._looks_at or not self._asleep.locked()):
            self._send(_nothing)
        return serial

    def finish(self) -> None:
        """The body has ended: nothing is raised here any more. May be called twice."""
        while True:
            try:
                with self._lock:
                    self._running = 0
                    self._deadline = None
                    self._clear()
            except Interruption:
                continue
            return

    def shielded(self, call: Callable[..., T], *args: Any) -> T:
        """`call(*args)` without an interruption inside it; one that came meanwhile is raised before or after."""
        with self._lock:
            self._held = True
            try:
                if self._async_set:
                    self._clear()
                if self._wanted is not None and self.why() is not None:
                    self._raise()
                value = call(*args)
            finally:
                self._held = False
        if self._wanted is not None and self.why() is not None:
            self._raise()
        return value

    def _raise(self) -> NoReturn:
        self._raised = self._running
        raise Interruption

    def why(self) -> str | None:
        """What the last body was interrupted for: `timeout`, or what `interrupt` was given."""
        wanted = self._wanted
        return wanted[1] if wanted is not None and wanted[0] == self._serial else None

    def _clear(self) -> None:
        if self._async_set:
            self._async_set = False
            _raise_in(self._thread_id, None)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._held and self._running and self._raised != self._running and self.why() is not None:
            self._raise()

    # -- any thread

    def interrupt(self, serial: int, why: str) -> None:
        """Stop the body of that number, if it is still running. In the body's own thread `why` is set at once, so that
        a body which has not begun yet need not begin.
        """

        def want() -> None:
            if serial == self._serial and self.why() is None:
                self._wanted = (serial, why)

        if threading.get_ident() == self._thread_id:
            want()
            want = _nothing
        self._send(want)

    def interrupt_current(self, why: str) -> None:
        """Stop the body that is running now."""
        self.interrupt(self._serial, why)

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the watchdog's thread: for a signal handler, which must take no lock."""
        self._send(call)

    # -- the watchdog

    def _watch(self) -> None:
        serial, times, again_at = 0, 0, 0.0  # the body that is being stopped
        unseen_s, unseen_at = 0.0, 0.0
        while True:
            now = monotonic()
            deadline, wanted = self._deadline, self._wanted
            if deadline is not None and deadline[1] <= now and self.why() is None:
                self._wanted = wanted = (deadline[0], "timeout")
            if wanted is not None and wanted[0] == self._running:
                if serial != wanted[0]:
                    serial, times, again_at = wanted[0], 0, now
                if now >= again_at:
                    times, again_at = times + 1, now + self.grace_s
                    unseen_s, unseen_at = _UNSEEN_S, now + _UNSEEN_S
                    self._stop(serial, wanted[1], times)
                elif now >= unseen_at and not self._is_seen(serial):
                    unseen_s, unseen_at = unseen_s * 2, now + unseen_s * 2
                    self._signal()
                looks_at = again_at if self._is_seen(serial) else min(again_at, unseen_at)
            else:
                looks_at = now + _IDLE_S if deadline is None or deadline[1] <= now else deadline[1]
            self._looks_at = looks_at
            if self._deadline is not deadline:
                continue
            try:
                message = self._inbox.get(timeout=max(0.0, looks_at - monotonic()))
            except queue.Empty:
                continue
            if message is None:
                return
            try:
                message()
            except Exception:
                log.exception("the worker's watchdog failed to act")

    def _stop(self, serial: int, why: str, times: int) -> None:
        if times > 2 and self._on_stuck is not None:
            self._on_stuck(why)
            return
        self._raised = 0
        self._fire(serial, forced=times > 1)

    def _is_seen(self, serial: int) -> bool:
        """Whether no signal need be sent again to the body of that number."""
        return not self._by_signal or self._raised == serial

    def _signal(self) -> None:
        signal.pthread_kill(self._thread_id, _SIGNAL)

    def _fire(self, serial: int, *, forced: bool) -> None:
        if self._by_signal:
            self._signal()
            if not forced:
                return
        if self._lock.acquire(blocking=False):
            try:
                if self._running == serial:
                    self._async_set = True
                    _raise_in(self._thread_id, Interruption)
            finally:
                self._lock.release()


def _nothing() -> None:
    """Wakes the watchdog, which looks at the deadline again."""


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), what)
