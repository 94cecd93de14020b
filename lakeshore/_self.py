"""Where this very Lakeshore lies, for the processes that it starts: they run the same version, whatever came since.

Rule: a child is never found by name on PATH.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_started: tuple[str, tuple[int, int, int, int]] | None = None


def _identity(path: str) -> tuple[int, int, int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def started_from(archive: str) -> None:
    """Note the one-file archive that this process runs, so that `program` can name it."""
    global _started  # noqa: PLW0603  (one process runs one archive)
    path = os.path.realpath(archive)
    _started = (path, _identity(path))


def started_path() -> str | None:
    """The path of the one-file archive that this process was started from, whatever lies there by now; else None."""
    return None if _started is None else _started[0]


def archive() -> str | None:
    """The path of the one-file archive that this process was started from, while that file is unchanged; else None."""
    if _started is None:
        return None
    try:
        same = _identity(_started[0]) == _started[1]
    except OSError:
        return None
    return _started[0] if same else None


def python_path() -> list[str]:
    """What PYTHONPATH a spawned interpreter needs to import our two packages: one directory, or the archive."""
    return [os.path.dirname(_HERE)]


def import_path(python: str, before: str) -> str | None:
    """PYTHONPATH with our packages in it, so that the interpreter needs nothing installed; None to leave it.

    A directory of installed packages goes last, so that it shadows nothing of the user's PYTHONPATH, and only to
    another interpreter than the one that it was installed for.
    """
    from shutil import which  # wall: `lakeshore --help` starts nothing

    ours = python_path()
    entries = [entry for entry in before.split(os.pathsep) if entry]
    installed = all(os.path.basename(entry) in ("site-packages", "dist-packages") for entry in ours)
    if installed and (which(python) or python) == sys.executable:
        return None
    ours = [entry for entry in ours if entry not in entries]
    return os.pathsep.join([*entries, *ours] if installed else [*ours, *entries]) if ours else None


def program() -> list[str]:
    """The arguments that start this same Lakeshore: the interpreter, then the archive, or our package's `__main__.py`.

    The latter where there is no archive, it was replaced meanwhile, or its name is an argument (`nymph`). Neither needs
    PYTHONPATH.
    """
    path = archive()
    if path is None or os.path.basename(path) == "nymph":
        path = os.path.join(_HERE, "__main__.py")
    return [sys.executable, path]
