"""Makes the third-party code that travels in the archive importable. A no-op in a checkout and in an installed package.

Rule: beside somebody's own code ours stands at the end of `sys.path`, so that their versions win. Only our own program,
which runs nobody else's code, puts it first: a host's old `trio` or `click` must not break it.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_MARKER = os.path.join(os.path.dirname(_HERE), ".lakeshore")
_lock: int | None = None


def _native(vendor: str) -> list[str]:
    """The directories of compiled modules for this interpreter; without them msgpack is pure and nacl is missing."""
    if sys.implementation.name != "cpython":
        return []
    system = os.uname()
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}"
    base = os.path.join(vendor, "_native", f"{system.sysname.lower()}_{system.machine}")
    return [path for path in (os.path.join(base, version), os.path.join(base, "abi3")) if os.path.isdir(path)]


def _hold() -> int | None:
    """A shared lock on the unpacked tree, so that it is not pruned while this process uses it."""
    import fcntl  # wall: only inside an unpacked archive

    try:
        lock = os.open(_MARKER, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def extend_path(*, first: bool = False, lock: int | None = None) -> None:
    """Append (for our own program: put first, after our root) `_vendor` and this interpreter's native modules. Once.

    `lock` is one that the program holds on its tree already; it takes the place of ours.
    """
    global _lock  # noqa: PLW0603  (the lock lives as long as the process)
    vendor = os.path.join(_HERE, "_vendor")
    if vendor in sys.path and not first:
        return
    if os.path.isdir(vendor):
        paths = [*_native(vendor), vendor]
        if lock is not None and _lock is not None:
            os.close(_lock)
        _lock = lock if lock is not None else _lock or _hold()
    elif hasattr(globals()["__loader__"], "archive"):  # imported from inside the archive: compiled modules cannot be
        paths = [vendor]
    else:
        return
    if not first:
        sys.path.extend(paths)
        return
    others = [entry for entry in sys.path if entry not in paths]
    at = others.index(os.path.dirname(_HERE)) + 1
    sys.path[:] = [*others[:at], *paths, *others[at:]]
