"""Names on the disk: a file or directory that was made is still found after a power cut (K-29).

A sync of a file keeps its bytes, not its name: that is in its directory, which has a sync of its own. So has the name
of that directory, all the way up to the first one that was there before.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_MOST_KNOWN = 10_000


def sync_directory(directory: Path) -> None:
    """Make every name in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directories(path: Path) -> None:
    """Make a private directory and what is missing above it, each one durable in its parent."""
    missing = []
    at = path
    while not at.exists():
        missing.append(at)
        at = at.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
        sync_directory(directory.parent)
    if not path.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(path))


def keep_names(*directories: Path) -> None:
    """Make the names in these directories durable; one that we may not read is for its owner to keep."""
    for directory in dict.fromkeys(directories):
        with contextlib.suppress(PermissionError):
            sync_directory(directory)


class KeptDirectories:
    """The directories below a root whose names this process knows to be durable."""

    def __init__(self, root: Path, *, sync: bool) -> None:
        self._root = root
        self._sync = sync
        self._known: set[Path] = set()

    def keep(self, directory: Path) -> None:
        """Make the name of a directory that is there durable, and those above it, whoever made them."""
        if not self._sync:
            return
        new = []
        while directory != self._root and directory not in self._known:
            sync_directory(directory.parent)
            new.append(directory)
            directory = directory.parent
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known.update(new)

    def forget(self, directory: Path) -> None:
        """It was removed; when it is made again, its name is new."""
        self._known.discard(directory)
