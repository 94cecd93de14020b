"""Directories of forgotten jobs, emptied, for the next ones: most of what a job costs the keeper is the making of its
directory and its four files, and a rename is a tenth of that.

Only what is as it was made comes back: four plain files without another name, and nobody has what they printed into
open any more (a lease tells), so that nothing is printed into a later job's output. What a directory holds when it is
taken again is overwritten, or empty.
"""

from __future__ import annotations

import fcntl
import os
import stat

from .protocol import EXIT, JOB, SHELF, STDERR, STDOUT

MOST = 64
NEW_EXIT = f"{EXIT}.new"
_KNOWN = ({STDOUT, STDERR, JOB, EXIT}, {STDOUT, JOB, EXIT})


class Shelf:
    """That of a keeper; relative to its directory."""

    def __init__(self) -> None:
        self._spare: list[str] = []
        self._next = 0
        self._works = hasattr(fcntl, "F_SETLEASE")
        try:
            os.mkdir(SHELF, 0o700)
        except FileExistsError:
            self.clear()
            os.mkdir(SHELF, 0o700)

    def take(self, directory: str) -> bool:
        """Make a job's directory of one that is spare; False when none is."""
        while self._spare:
            try:
                os.rename(self._spare.pop(), directory)
            except OSError:
                continue
            return True
        return False

    def put(self, directory: str) -> bool:
        """Take a forgotten job's; False when it cannot be used again, and is to be removed."""
        if not self._works or len(self._spare) >= MOST:
            return False
        try:
            names = set(os.listdir(directory))
            if names not in _KNOWN or not all(_emptied(f"{directory}/{name}") for name in names - {JOB, EXIT}):
                return False
            os.rename(f"{directory}/{EXIT}", f"{directory}/{NEW_EXIT}")
            self._next += 1
            name = f"{SHELF}/{self._next}"
            os.rename(directory, name)
        except OSError:
            return False
        self._spare.append(name)
        return True

    def clear(self) -> None:
        """Nothing stays of it."""
        try:
            for name in os.listdir(SHELF):
                place = f"{SHELF}/{name}"
                for file in os.listdir(place):
                    os.unlink(f"{place}/{file}")
                os.rmdir(place)
            os.rmdir(SHELF)
        except OSError:
            return
        self._spare.clear()


def _emptied(path: str) -> bool:
    """False when it is not what it was, or somebody still prints into it. OSError when it cannot be told."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or stat.S_IMODE(found.st_mode) != 0o600:
            return False
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # refused while another has it open
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        if found.st_size:
            os.ftruncate(fd, 0)
        return True
    finally:
        os.close(fd)
