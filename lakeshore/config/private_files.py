"""Files that only their owner may read: logins and keys. Written whole or not at all, and never readable by others."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def write_private(path: Path, text: str, *, beside: str) -> None:
    """Put `text` in the place of what `path` held, mode 600, on the disk when this returns. OSError when it cannot.

    `beside` is the name, in the same directory, under which it is written first. A directory that is missing is made,
    for its owner alone. Where `path` is a link, its target is replaced: whoever keeps their files elsewhere goes on to.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(beside)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in it durable, as far as its file system can."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:  # some network file systems sync no directories
        pass
    finally:
        os.close(fd)


def readable_by_others(about: os.stat_result) -> bool:
    """Whether group or others may read or write it."""
    return bool(stat.S_IMODE(about.st_mode) & 0o077)
