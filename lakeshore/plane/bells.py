"""Doorbells: hints that wake who waits, in this process or another one on the same file.

A bell never carries news, only a reason to look: the rows are the truth. A waiter listens first, looks again, and only
then sleeps, so nothing that happens in between is missed. On disk a bell is a FIFO per waiter; a file system without
FIFOs makes a waiter look at a slow pace instead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import itertools
import logging
import os
import select
import sys
import termios
import threading
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

PACE_S = 2.0
"""A waiter that hears nothing looks for itself this often."""
BLIND_PACE_S = 0.02
"""How often it looks where no bell can be hung."""
MOST_ROPES = 64
KEPT = 4
"""So many bells stay up when nobody listens."""
SETTLED_NS = 100_000_000
"""A directory's time tells its changes apart, but for those of one tick of the clock: so long ago, that has passed."""
_SUFFIX = ".bell"


class Bell(Protocol):
    """Something to sleep on. Use it as a context manager: it listens from `__enter__` on."""

    def __enter__(self) -> Bell: ...
    def __exit__(self, *_: object) -> None: ...
    def wait(self, timeout_s: float) -> None:
        """Sleep until rung, or for `timeout_s`, or for the pace at which to look anyway."""


class Bells(Protocol):
    """Names are any text, e.g. `work/default/gpu`, `done`, `frames/17`."""

    def listen(self, *names: str) -> Bell: ...
    def ring(self, *names: str) -> None:
        """Wake all who wait for one of these."""

    def ring_one(self, name: str, every: str) -> None:
        """Wake one of those who wait for `name`, if none has been woken that has not looked yet; and all of `every`."""

    def awaited(self, *names: str) -> bool:
        """Whether somebody may be waiting for one of these, who has not been rung yet."""

    def close(self) -> None:
        """Take down what is kept hung for the next listener."""


class MemoryBells:
    """Bells between the threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[threading.Event]] = {}

    def listen(self, *names: str) -> Bell:
        return _MemoryBell(self, names)

    def ring(self, *names: str) -> None:
        if not self._waiting:
            return
        with self._lock:
            for name in names:
                for event in self._waiting.get(name, ()):
                    event.set()

    def ring_one(self, name: str, every: str) -> None:
        if not self._waiting:
            return
        with self._lock:
            for event in self._waiting.get(name, ()):
                if not event.is_set():
                    event.set()
                    break
            for event in self._waiting.get(every, ()):
                event.set()

    def awaited(self, *names: str) -> bool:
        with self._lock:
            return any(not event.is_set() for name in names for event in self._waiting.get(name, ()))

    def close(self) -> None:
        """Nothing is kept."""


class _MemoryBell:
    def __init__(self, bells: MemoryBells, names: tuple[str, ...]) -> None:
        self._bells, self._names, self._event = bells, names, threading.Event()

    def __enter__(self) -> _MemoryBell:
        with self._bells._lock:
            for name in self._names:
                self._bells._waiting.setdefault(name, set()).add(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        with self._bells._lock:
            for name in self._names:
                waiting = self._bells._waiting[name]
                waiting.discard(self._event)
                if not waiting:
                    del self._bells._waiting[name]

    def wait(self, timeout_s: float) -> None:
        self._event.wait(max(0.0, min(timeout_s, PACE_S)))
        self._event.clear()


class FifoBells:
    """Bells between the processes that share a plane's directory.

    Hanging one costs more than a task does, so the last few stay up for who listens for the same names again.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self.directory = str(directory)
        self._idle: list[_FifoBell] = []
        self._ropes: dict[str, int] = {}
        """Write ends of the bells that were rung before."""
        self._there: dict[str, list[str]] = {}
        """The bells of each tag, as the directory was at `_there_at`, its time; None when that may have passed."""
        self._there_at: int | None = None
        self._ringing = threading.RLock()
        """A rope is let go by nobody while somebody pulls it: its descriptor may be another file's at once."""
        self._lock = threading.Lock()
        self._count = itertools.count()

    def listen(self, *names: str) -> Bell:
        with self._lock:
            for bell in self._idle:
                if bell.names == names:
                    self._idle.remove(bell)
                    return bell
        return _FifoBell(self, names, next(self._count))

    def ring(self, *names: str) -> None:
        with self._ringing:
            for file in self._hung(names):
                if self._is_silent(file):
                    self._strike(file)

    def ring_one(self, name: str, every: str) -> None:
        with self._ringing:
            for file in self._hung((name,)):
                if self._is_silent(file) and self._strike(file):
                    break
            for file in self._known((every,)):
                if self._is_silent(file):
                    self._strike(file)

    def awaited(self, *names: str) -> bool:
        with self._ringing:
            return any(self._is_silent(file) for file in self._hung(names))

    def _hung(self, names: Iterable[str]) -> list[str]:
        changed_at = os.stat(self.directory).st_mtime_ns
        if changed_at != self._there_at:
            self._look(changed_at)
        return self._known(names)

    def _known(self, names: Iterable[str]) -> list[str]:
        if not self._there:
            return []
        tags = {_tag(name) for name in names}
        return [file for tag in tags for file in self._there.get(tag, ())]

    def _look(self, changed_at: int) -> None:
        hung = os.listdir(self.directory)
        if len(self._ropes) > MOST_ROPES:
            self._let_go(set(self._ropes).difference(hung))
        self._there = {}
        for file in hung:
            self._there.setdefault(file.split("-", 1)[0], []).append(file)
        self._there_at = changed_at if time.time_ns() - changed_at > SETTLED_NS else None

    def _is_silent(self, file: str) -> bool:
        """Whether a bell waits for its ring: one that rings already is heard, and then its owner looks."""
        rope = self._rope(file)
        if rope is None:
            return False
        unheard = bytearray(4)
        try:
            fcntl.ioctl(rope, termios.FIONREAD, unheard)
        except OSError:
            return True
        return not int.from_bytes(unheard, sys.byteorder)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for bell in idle:
            bell.take_down()
        with self._ringing:
            self._let_go(set(self._ropes))

    def _rope(self, file: str) -> int | None:
        rope = self._ropes.get(file)
        if rope is None:
            path = f"{self.directory}/{file}"
            try:
                rope = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as exc:
                if exc.errno == errno.ENXIO:  # its process is gone, or just made it and will look again
                    _remove_if_orphaned(path)
                return None
            self._ropes[file] = rope
        return rope

    def _strike(self, file: str) -> bool:
        rope = self._rope(file)
        if rope is None:
            return False
        try:
            os.write(rope, b"!")
        except BlockingIOError:
            pass  # a full pipe has been rung often enough
        except OSError:
            self._let_go({file})  # its listener has left
            return False
        return True

    def _let_go(self, files: Iterable[str]) -> None:
        for file in files:
            rope = self._ropes.pop(file, None)
            if rope is not None:
                os.close(rope)

    def put_back(self, bell: _FifoBell) -> None:
        """A listener has left."""
        with self._lock:
            self._idle.append(bell)
            eldest = self._idle.pop(0) if len(self._idle) > KEPT else None
        if eldest is not None:
            eldest.take_down()


class _FifoBell:
    def __init__(self, bells: FifoBells, names: tuple[str, ...], number: int) -> None:
        self._pid = os.getpid()
        unique = f"{self._pid}-{number}-{id(bells):x}"
        self.names = names
        self._bells = bells
        self._paths = [f"{bells.directory}/{_tag(name)}-{unique}-{i}{_SUFFIX}" for i, name in enumerate(names)]
        self._fds: list[int] = []
        self._blind = False
        self._up = False

    def __enter__(self) -> _FifoBell:
        for fd in self._fds:  # rung since its last listener left: the news is looked at after this
            _silence(fd)
        if not self._fds:
            self._hang()
        return self

    def __exit__(self, *_: object) -> None:
        if self._blind:
            self.take_down()
            return
        for fd in self._fds:
            os.write(fd, b"-")  # nobody waits here: whoever rings need not stop for it
        self._bells.put_back(self)

    def _hang(self) -> None:
        self._up = True
        try:
            for path in self._paths:
                os.mkfifo(path, 0o600)
                self._fds.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as exc:
            log.debug("no doorbell at %s (%s); looking every %s s instead", self._paths, exc, BLIND_PACE_S)
            self._blind = True

    def take_down(self) -> None:
        """Nobody listens any more."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self._up = False

    def __del__(self) -> None:
        # An interrupt came between the hanging and the listening, or the leaving and the putting back.
        if getattr(self, "_up", False) and self._pid == os.getpid():  # a child's are its parent's
            self.take_down()

    def wait(self, timeout_s: float) -> None:
        if self._blind:
            time.sleep(max(0.0, min(timeout_s, BLIND_PACE_S)))
            return
        poller = select.poll()
        for fd in self._fds:
            poller.register(fd, select.POLLIN)
        for fd, _event in poller.poll(max(0.0, min(timeout_s, PACE_S)) * 1000):
            _silence(fd)


def _silence(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while len(os.read(fd, 4096)) == 4096:
            pass


@functools.lru_cache(maxsize=64)
def _tag(name: str) -> str:
    """Part of a file's name. Two names with one tag ring each other's bells, which costs a look."""
    return f"{zlib.crc32(name.encode()):08x}"


def _remove_if_orphaned(path: str) -> None:
    pid = int(os.path.basename(path).split("-")[1])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        with contextlib.suppress(OSError):
            os.unlink(path)
    except PermissionError:
        return
