"""A disk that is as slow as one says: each fsync and fdatasync of a process takes so much longer, and is counted.

The product is not touched: slow_sync.c is compiled and preloaded into the process that is to be slowed. What it started
itself would be slowed too, and counted in the same book.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_BOOK = struct.Struct("=4Q")


class NoSlowDisk(Exception):
    """The shim cannot be made here; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Syncs:
    """What a process has synced so far, and the seconds that took, the added ones among them."""

    fsyncs: int
    fdatasyncs: int
    seconds: float

    @property
    def count(self) -> int:
        return self.fsyncs + self.fdatasyncs


def compiled(directory: Path) -> Path:
    """The shim, built in `directory`. Raises NoSlowDisk."""
    if not sys.platform.startswith("linux"):
        raise NoSlowDisk(f"slowing down syncs needs LD_PRELOAD as Linux has it, and this is {sys.platform}")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoSlowDisk("slowing down syncs needs a C compiler: no cc on the PATH (Debian: gcc and libc6-dev)")
    library = directory / "slow_sync.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoSlowDisk(f"{compiler} did not build {SOURCE.name}: {done.stderr.strip()}")
    return library


class SlowDisk:
    """One disk: the environment of the process that is to have it, how slow it is now, what was synced."""

    def __init__(self, library: Path, book: Path, added_ms: float = 0.0) -> None:
        book.write_bytes(bytes(_BOOK.size))
        self.environment = {"LD_PRELOAD": str(library), "SLOW_SYNC": str(book)}
        with book.open("r+b") as file:
            self._book = mmap.mmap(file.fileno(), _BOOK.size)
        self.slow_down(added_ms)

    def slow_down(self, added_ms: float) -> None:
        """From the next sync on each takes so much longer."""
        struct.pack_into("=Q", self._book, 0, round(added_ms * 1000))

    def syncs(self) -> Syncs:
        """What was synced since the process began."""
        _added, fsyncs, fdatasyncs, spent_ns = _BOOK.unpack_from(self._book)
        return Syncs(fsyncs=fsyncs, fdatasyncs=fdatasyncs, seconds=spent_ns / 1e9)
