"""What a directory lies on: its file system, its free space, how long a sync takes."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lakeshore.plane.database import NETWORK_FILE_SYSTEMS, file_system_of

from .finding import Finding, failure, ok, warning

_SYNCS = 5
_SLOW_SYNC_S = 0.02
_PASSING = ("tmpfs", "ramfs")


def file_system(subject: str, directory: Path, variable: str) -> Finding:
    """Whether SQLite can live there. `variable` names another place."""
    found = file_system_of(directory)
    if found is None:
        return ok(subject, f"{directory}: its file system is not told here")
    point, kind = found
    seen = f"{kind}, mounted at {point}"
    if kind in NETWORK_FILE_SYSTEMS:
        return failure(subject, seen, f"SQLite's locks do not hold on it: set {variable} to a local disk")
    if kind.startswith("fuse"):
        return warning(subject, seen, f"few of these hold SQLite's locks: set {variable} to a local disk")
    if kind in _PASSING:
        return warning(subject, seen, f"it is lost when the machine stops: set {variable} to a disk")
    return ok(subject, seen)


def space(subject: str, directory: Path, reserve: int) -> Finding:
    """Whether there is more than the reserve below which new work is refused, in bytes."""
    free = shutil.disk_usage(directory).free
    seen = f"{free / 2**30:,.1f} GiB free"
    if free < reserve:
        return failure(
            subject, seen, f"new submits are refused below {reserve / 2**30:g} GiB: free some space, or move it"
        )
    if free < 3 * reserve:
        return warning(subject, seen, f"new submits are refused below {reserve / 2**30:g} GiB: free some space soon")
    return ok(subject, seen)


def sync(subject: str, directory: Path) -> Finding:
    """How long a small write takes to be safe: what every acknowledged submit waits for."""
    try:
        times = list(_sync_times(directory))
    except OSError as error:
        return failure(subject, f"cannot write there: {error.strerror or error}", "see the lines about its directory")
    middle = statistics.median(times)
    seen = f"{middle * 1000:.2g} ms to sync a small write (median of {len(times)}, longest {max(times) * 1000:.2g} ms)"
    if middle > _SLOW_SYNC_S:
        return warning(subject, seen, "each batch of submits waits that long: a faster disk makes all of it faster")
    return ok(subject, seen)


def _sync_times(directory: Path) -> Iterator[float]:
    flush = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".doctor-") as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            flush(file.fileno())
            yield time.perf_counter() - began
