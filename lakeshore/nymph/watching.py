"""Tells when something in a directory changes, so that what a job writes is read at once and a quiet job costs nothing.

On Linux by inotify, one for the whole daemon. It is a hint: other hosts' writes to a shared file system, and systems
without inotify, are found by looking again after a while.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

_CHANGES: Final = 0x00000002 | 0x00000100 | 0x00000080  # IN_MODIFY, IN_CREATE, IN_MOVED_TO
_NONBLOCK: Final = os.O_NONBLOCK | os.O_CLOEXEC
_HEAD: Final = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Bell:
    """Rings for one reader."""

    def __init__(self) -> None:
        self._rung = trio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Until it has rung since the last time, or for so long; whether it has."""
        with trio.move_on_after(seconds):
            await self._rung.wait()
        rung = self._rung.is_set()
        if rung:
            self._rung = trio.Event()
        return rung


class Watcher:
    """For one trio run. `hints` is whether the system tells of changes."""

    def __init__(self) -> None:
        self._fd = -1
        self._bells: dict[int, list[Bell]] = {}
        self._began = False

    @property
    def hints(self) -> bool:
        return self._fd >= 0

    @contextmanager
    def watching(self, directory: Path, bell: Bell) -> Iterator[bool]:
        """Ring `bell` when something in `directory` is written or appears; False where nothing will tell."""
        self._begin()
        number = -1
        if self._fd >= 0:
            number = _libc.inotify_add_watch(self._fd, os.fsencode(directory), ctypes.c_uint32(_CHANGES))
        if number < 0:
            yield False
            return
        self._bells.setdefault(number, []).append(bell)
        try:
            yield True
        finally:
            left = self._bells[number]
            left.remove(bell)
            if not left:
                del self._bells[number]
                if self._fd >= 0:
                    _libc.inotify_rm_watch(self._fd, number)

    def _begin(self) -> None:
        if self._began:
            return
        self._began = True
        if sys.platform.startswith("linux"):
            self._fd = _libc.inotify_init1(_NONBLOCK)
        if self._fd >= 0:
            trio.lowlevel.spawn_system_task(self._hear)

    async def _hear(self) -> None:
        try:
            while True:
                await trio.lowlevel.wait_readable(self._fd)
                try:
                    data = os.read(self._fd, 1 << 16)
                except BlockingIOError:
                    continue
                at = 0
                while at < len(data):
                    number, _mask, _cookie, length = _HEAD.unpack_from(data, at)
                    at += _HEAD.size + length
                    for bell in self._bells.get(number, ()):
                        bell.ring()
                    if number < 0:  # more has happened than the system remembers
                        for bells in self._bells.values():
                            for bell in bells:
                                bell.ring()
        finally:
            os.close(self._fd)
            self._fd = -1
