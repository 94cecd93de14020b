"""What a body changed in its process, and a next body would trip over, is put back after it.

In any program: the working directory, signal handlers, the event loop policy (`Borrowed`: as they were before this
body). A worker process runs nothing but bodies: there also what it lives by is put back (`Owned`: as it was before the
first body): timers, the signal mask, the umask, standard files, clocks, and what was taken away from the import path,
the modules and the environment. What a body adds there stays: libraries add to them once, when they are first imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .interrupts import Interruption

_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGURG", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
# Those below `signal`'s own, which make enums of every argument and answer: that costs as much as a small job.
_raw = sys.modules.get("_signal")
_handler_of: Callable[[int], Any] = getattr(_raw, "getsignal", signal.getsignal)
_set_mask: Callable[[int, Any], Any] = getattr(_raw, "pthread_sigmask", signal.pthread_sigmask)
_BLOCK, _MASK = int(signal.SIG_BLOCK), int(signal.SIG_SETMASK)
_TIMER = signal.ITIMER_REAL  # the one of `alarm`
_CLOCKS = {
    name: getattr(time, name)
    for name in ("time", "monotonic", "perf_counter", "sleep", "time_ns", "monotonic_ns", "perf_counter_ns")
}
_TRIES = 3
_FAR = min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 8)


class Borrowed:
    """For one body in a program that is not ours."""

    __slots__ = ("_directory", "_handlers", "_policy")

    def __enter__(self) -> None:
        self._note()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped: Interruption | None = None
        for _ in range(_TRIES):
            try:
                self._put_back()
            except Interruption as interruption:
                stopped = interruption
            except BaseException:  # noqa: BLE001, S112  # a handler that the body left behind: it will be gone
                continue
            else:
                break
        if stopped is not None:
            raise stopped

    def _note(self) -> None:
        self._directory = _where()
        in_main = threading.get_ident() == threading.main_thread().ident
        self._handlers = tuple(map(_handler_of, _SIGNALS)) if in_main else ()
        self._policy = _policy()

    def _put_back(self) -> None:
        if self._directory is not None and _where() != self._directory:
            with contextlib.suppress(OSError):
                os.chdir(self._directory)
        if self._handlers and tuple(map(_handler_of, _SIGNALS)) != self._handlers:
            for number, handler in zip(_SIGNALS, self._handlers, strict=True):
                if handler is not None and _handler_of(number) is not handler:
                    signal.signal(number, handler)
        if _policy() is not self._policy:
            sys.modules["asyncio"].set_event_loop_policy(self._policy)


class Owned(Borrowed):
    """For all bodies of a worker process. They run in its main thread."""

    __slots__ = (
        "_data",
        "_environ",
        "_files",
        "_functions",
        "_hooks",
        "_lists",
        "_mask",
        "_modules",
        "_noted",
        "_recursion",
        "_standard",
        "_streams",
        "_umask",
        "_variables",
    )

    def __init__(self) -> None:
        self._noted = False

    def __enter__(self) -> None:
        if not self._noted:
            self._note()
            self._noted = True

    def _note(self) -> None:
        super()._note()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._mask = _set_mask(_BLOCK, ())
        self._streams = [sys.stdin, sys.stdout, sys.stderr]
        self._files = [_copy_of(fd) for fd in range(3)]
        self._standard = select.poll()
        for fd in range(3):
            self._standard.register(fd, 0)  # of no interest but whether it is open
        self._hooks = (sys.excepthook, sys.unraisablehook)
        self._recursion = sys.getrecursionlimit()
        self._lists: tuple[list[Any], ...] = (
            list(sys.path),
            list(sys.meta_path),
            list(sys.path_hooks),
        )
        self._environ = os.environ
        self._data = getattr(os.environ, "_data", os.environ)
        self._variables = dict(os.environ)
        self._modules = dict(sys.modules)
        self._functions = self._modules.get("lakeshore.sdk.functions")

    def _put_back(self) -> None:
        """Each check is one that an innocent body pays for: a few microseconds in all."""
        if signal.getitimer(_TIMER)[0]:  # before its handler
            signal.setitimer(_TIMER, 0)
        _set_mask(_MASK, self._mask)
        super()._put_back()
        os.umask(self._umask)
        if (
            time.monotonic is not _CLOCKS["monotonic"]
            or time.time is not _CLOCKS["time"]
            or time.sleep is not _CLOCKS["sleep"]
        ):
            vars(time).update(_CLOCKS)
        sockets = sys.modules.get("socket")
        if sockets is not None and sockets.getdefaulttimeout() is not None:
            sockets.setdefaulttimeout(None)
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
        if (sys.excepthook, sys.unraisablehook) != self._hooks:
            sys.excepthook, sys.unraisablehook = self._hooks
        path, finders, hooks = self._lists
        if sys.path != path or sys.meta_path != finders or sys.path_hooks != hooks:
            _put_back_items(sys.path, path)
            _put_back_items(sys.meta_path, finders)
            _put_back_items(sys.path_hooks, hooks)
        if os.environ is not self._environ:
            os.environ = self._environ  # noqa: B003  # the very object, not its contents
        if len(self._data) < len(self._variables):
            for variable, value in self._variables.items():
                os.environ.setdefault(variable, value)
        if sys.modules.get("lakeshore.sdk.functions") is not self._functions or "builtins" not in sys.modules:
            self._put_back_modules()
        self._put_back_standard_files()

    def _put_back_modules(self) -> None:
        for name, module in self._modules.items():
            if name.partition(".")[0] == "lakeshore":
                sys.modules[name] = module  # not a second one beside it, whose classes are others
            else:
                sys.modules.setdefault(name, module)

    def _put_back_standard_files(self) -> None:
        """Never leave their numbers free: the next file or connection would take them, and be printed into."""
        for fd, event in self._standard.poll(0):
            if event & select.POLLNVAL:
                _reopen(fd, self._files[fd])
        if [sys.stdin, sys.stdout, sys.stderr] != self._streams:
            sys.stdin, sys.stdout, sys.stderr = self._streams
        for fd, stream in enumerate(self._streams):
            if stream is not None and stream.closed:
                self._streams[fd] = _opened(fd)
                sys.stdin, sys.stdout, sys.stderr = self._streams


def _where() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _policy() -> Any:
    events = sys.modules.get("asyncio.events")
    return None if events is None else vars(events).get("_event_loop_policy")


def _put_back_items(now: list[Any], before: list[Any]) -> None:
    if any(item not in now for item in before):
        now[:] = [*before, *(item for item in now if item not in before)]


def _copy_of(fd: int) -> int:
    """A copy of a standard file, out of the way of who closes all that may be open; -1 where it was closed before."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FAR)
    except OSError:
        return -1


def _reopen(fd: int, copy: int) -> None:
    try:
        os.dup2(copy, fd)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != fd:
            os.dup2(nowhere, fd)
            os.close(nowhere)


def _opened(fd: int) -> Any:
    buffering = 1 if fd == 2 else -1
    errors = "backslashreplace" if fd else None
    return open(fd, "w" if fd else "r", buffering=buffering, errors=errors, closefd=False)
