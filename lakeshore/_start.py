"""Enters the one-file archive: finds its unpacked tree, decides whether that is trusted and whole, and holds it.

`build_pyz.py` fills in `CONTENT`. Every start of the archive compiles this file, so it holds what a warm start needs;
unpacking is in `_bootstrap.py`.

Rule: code is imported from the cache only if the effective user owns it, nobody else may write it or any directory
above it, and no link leads to it.
"""

import os
import stat
import sys

TYPE_CHECKING = False  # `typing` costs as much as all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONTENT = ""
SCREENS = False  # which tree `_bootstrap.py` unpacks: the program's, or the one of `_screens.py`
MARKER = ".lakeshore"  # in an unpacked tree, its last file: see `marker`
STAMP = 315532800  # the time of every directory of a whole tree (1980-01-01, the oldest that a zip can hold)
BOOT = "/proc/sys/kernel/random/boot_id"


def cache_root() -> str:
    """Where this archive's tree lies when it is unpacked; "" when the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(home(), ".cache")
    if not os.path.isabs(base):
        return ""
    return os.path.join(os.path.realpath(base), "lakeshore", CONTENT + "-" + platform())


def home() -> str:
    """The user's home; not HOME where that is somebody else's, as under a `sudo` that keeps it."""
    path = os.path.expanduser("~")
    try:
        others = os.stat(path).st_uid != os.geteuid()
    except OSError:
        return path
    if others:
        import pwd  # wall: hardly anybody needs it

        try:
            return pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            pass
    return path


def platform() -> str:
    """`linux_x86_64`, `linux_aarch64`, `darwin_arm64`: the folder of native modules."""
    system = os.uname()
    return system.sysname.lower() + "_" + system.machine


def python_tag() -> str:
    """`cp311`, `cp314t`: the folder in it for this interpreter, as wheels name it. Others than CPython have none."""
    if sys.implementation.name != "cpython":
        return sys.implementation.name
    return f"cp{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}"


def boot() -> str:
    """Which run of the machine's kernel this is; "" where that is not told."""
    try:
        fd = os.open(BOOT, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 64).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def unsafe_above(path: str) -> str:
    """Why a directory above `path` lets somebody else put code there; "" when none does. No links lead to `path`."""
    while path != "/":
        path = os.path.dirname(path)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            return path + " is not a directory"
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user (uid {found.st_uid})"
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:  # in a sticky one nobody moves what is ours
            return path + " is writable by others"
    return ""


def unsafe(root: str) -> str:
    """Why nothing may be imported from `root`; "" when it may. Raises OSError where it does not exist."""
    found = os.lstat(root)
    if not stat.S_ISDIR(found.st_mode):
        return root + " is not a directory"
    if found.st_uid != os.geteuid():
        return f"{root} belongs to another user (uid {found.st_uid})"
    if found.st_mode & 0o777 != 0o700:
        return f"{root} has mode {found.st_mode & 0o777:o}, not 700"
    return unsafe_above(root)


def marker(content: str, since: str, tags: "list[str]", folders: "list[str]") -> str:
    """What `MARKER` holds. `since`: the boot in which it was written, "" once all of it is surely on the disk; `tags`:
    the interpreters whose compiled modules are there; `folders`: those whose times show that a file was removed.
    """
    return "\n".join([content, since, " ".join(tags), *folders, "end"])


def hold(root: str) -> int:
    """A shared lock on a whole tree, kept until the process ends, so that it is not pruned; -1 when it is not whole for
    this interpreter, or the machine may have lost some of it when it went down.
    """
    import fcntl  # wall: needed after the tree is known to be there
    import time  # wall: as above

    try:
        lock = os.open(os.path.join(root, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)  # somebody is removing it
        return -1
    except OSError:
        pass  # a file system without locks: then nobody can prune either
    lines = os.read(lock, 1 << 20).decode("utf-8", "replace").split("\n")
    found = os.fstat(lock)
    try:
        whole = len(lines) > 3 and lines[-1] == "end" and found.st_nlink > 0
        whole = whole and python_tag() in lines[2].split() and lines[1] in ("", boot())
        whole = whole and all(os.stat(root + "/" + folder).st_mtime == STAMP for folder in lines[3:-1])
    except OSError:
        whole = False
    if not whole:
        os.close(lock)
        return -1
    if time.time() - found.st_mtime > 86400:
        try:  # noqa: SIM105  (contextlib is an import that no start can afford)
            os.utime(lock)  # last use, to the day: what pruning goes by
        except OSError:
            pass
    return lock


def unpacked(beside: str = "") -> "tuple[str, int]":
    """The tree of this archive and a lock on it, when it is trusted and whole; else its place and -1. `beside` is added
    to its name: see `_screens.py`.
    """
    root = cache_root()
    root = root and root + beside
    try:
        return root, -1 if not root or unsafe(root) else hold(root)
    except OSError:
        return root, -1


def enter(archive: str, run: "Callable[[str], dict[str, Any]]") -> None:
    """Make `lakeshore` importable from the unpacked archive, unpacking it where that has not happened.

    `run` gives what a file in the archive defines, without importing it.
    """
    root, lock = unpacked()
    if lock < 0:
        from types import SimpleNamespace  # wall: the first start alone

        root, lock = run("lakeshore/_bootstrap.py")["prepare"](
            archive, root, CONTENT, platform(), SimpleNamespace(**globals())
        )
    sys.path[:] = [root] + [entry for entry in sys.path if os.path.abspath(entry) not in (root, archive)]
    from lakeshore import _self, _vendored  # wall: they come from the unpacked tree

    _self.started_from(archive)
    _vendored.extend_path(first=True, lock=lock)
