"""Unpacks the archive: once, atomically, into the user's cache; where that cannot be trusted, into a private directory.

Run by `__main__.py` from inside the archive, only when there is no whole tree yet. Rules: a tree appears under its name
complete or not at all; a tree in use is never pruned; whatever goes wrong (no home, a read-only or full disk, no right
to execute) the program still starts.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import io
import os
import py_compile
import re
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

OWN = ("lakeshore/", "dreamlake/")
NATIVE = "lakeshore/_vendor/_native/"
TEMPORARY = "lakeshore-run-"
UNUSED_AFTER = 30 * 86400  # seconds
KEPT = re.compile(r"(msgpack|nacl)/|_cffi_backend|[^/]+\.dist-info/.*licen[cs]e", re.IGNORECASE)
NOT_KEPT = ("/", ".c", ".h", ".pyi", ".pyx", ".pxd")  # of the wheels of compiled modules


class Unusable(Exception):
    """Why the cache cannot be used. `said` is for the user; empty where there is nothing for them to mend."""

    def __init__(self, said: str = "") -> None:
        super().__init__(said)
        self.said = said


def prepare(archive: str, root: str, content: str, platform: str, start: Any) -> tuple[str, int | None]:
    """The directory to import from, and the lock that keeps it. `start` is the archive's `__main__`, for its checks."""
    try:
        return cached(archive, root, content, platform, start)
    except Unusable as problem:
        if problem.said:
            talk(f"{problem.said}; unpacking to a temporary directory for this run")
    try:
        return temporary(archive, content, platform, start)
    except OSError as problem:
        talk(
            f"cannot unpack ({problem}): running from the archive itself, without compiled modules. "
            "Free some space or set TMPDIR"
        )
        return archive, None


def talk(message: str) -> None:
    """To stderr: stdout belongs to the command."""
    sys.stderr.write(f"lakeshore: {message}\n")


def cached(archive: str, root: str, content: str, platform: str, start: Any) -> tuple[str, int]:
    """Unpack beside `root`, rename into place; a tree that lost files is completed in place. Raises Unusable."""
    if not root:
        raise Unusable
    base = os.path.dirname(root)
    try:
        make_private(base)
        problem = start.unsafe_above(root)
        if problem:
            raise Unusable(f"{problem}, so {base} is not used as a cache")
        if nothing_runs(base) and not nothing_runs(tempfile.gettempdir()):
            raise Unusable  # compiled modules could not be loaded from there
        if os.path.lexists(root):
            problem = start.unsafe(root)
            if problem:
                raise Unusable(f"{problem}: remove it to have a cache again")
            with locked(os.path.join(base, f".{content}.repair")):
                unpack(archive, root, content, platform, start, durable=True)
        else:
            publish(archive, root, content, platform, start)
    except OSError as failure:
        said = f"no room to unpack in {base}" if failure.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise Unusable(said) from failure
    lock = -1 if start.unsafe(root) else start.hold(root)
    if lock < 0:
        raise Unusable(f"{root} does not stay as it was written")
    prune(base, root)
    return root, lock


def nothing_runs(folder: str) -> bool:
    """Whether it is mounted noexec, so that compiled modules cannot be loaded. False where that is not told."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


def make_private(base: str) -> None:
    """Create what is missing of `base`, 0700 each, whatever the umask."""
    missing = []
    while not os.path.isdir(base):
        missing.append(base)
        base = os.path.dirname(base)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        os.chmod(path, 0o700)


class locked:  # noqa: N801  (reads as a verb: with locked(path))
    """An exclusive lock file for the block, or none where the file system has no locks."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError:
            return

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def publish(archive: str, root: str, content: str, platform: str, start: Any) -> None:
    """Unpack under another name and rename. Of two first runs at once the later one uses the earlier one's tree."""
    fresh = tempfile.mkdtemp(prefix=f".{content}.", dir=os.path.dirname(root))
    try:
        unpack(archive, fresh, content, platform, start, durable=True)
        try:
            os.rename(fresh, root)
        except OSError as failure:
            if failure.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync(os.path.dirname(root))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def temporary(archive: str, content: str, platform: str, start: Any) -> tuple[str, int]:
    """A fresh private directory for this run, removed at its end (later, if a child still uses it). Raises OSError."""
    failure: OSError = OSError(errno.EACCES, "no temporary directory that others cannot change")
    for folder in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108  (sticky, and ours inside is fresh and 0700)
        try:
            found = os.stat(folder)
            if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
                continue
            sweep(folder)
            root = os.path.realpath(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder))
        except OSError as problem:
            failure = problem
            continue
        try:
            unpack(archive, root, content, platform, start, durable=False)
        except OSError as problem:
            failure = problem
            shutil.rmtree(root, ignore_errors=True)
            continue
        lock = os.open(os.path.join(root, start.MARKER), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_SH)
        atexit.register(remove_if_unused, root, lock, os.getpid())
        return root, lock
    raise failure


def remove_if_unused(root: str, lock: int, owner: int) -> None:
    """At exit: remove the tree unless a child still runs from it (the next run in a temporary directory then does)."""
    if os.getpid() != owner:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    shutil.rmtree(root, ignore_errors=True)


def sweep(folder: str) -> None:
    """Remove temporary trees of ours that a killed run left behind."""
    for name in os.listdir(folder):
        if name.startswith(TEMPORARY):
            remove_unless_held(os.path.join(folder, name), older_than=3600)


def prune(base: str, keep: str) -> None:
    """Remove other versions that nobody holds or used for a month, and what killed unpackings left behind."""
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if re.fullmatch(r"[0-9a-f]{32}-\w+", name) and path != keep:
            remove_unless_held(path, older_than=UNUSED_AFTER)
        elif re.fullmatch(r"\.[0-9a-f]{32}\.\w{8}", name):
            remove_unless_held(path, older_than=3600)


def remove_unless_held(root: str, *, older_than: float) -> None:
    marker = os.path.join(root, ".lakeshore")
    try:
        found = os.lstat(marker if os.path.lexists(marker) else root)
        if (
            found.st_uid != os.geteuid()
            or not stat.S_ISDIR(os.lstat(root).st_mode)
            or time.time() - found.st_mtime < older_than
        ):
            return
        lock = os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) if os.path.lexists(marker) else None
    except OSError:
        return
    try:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(root, ignore_errors=True)
    except OSError:
        return  # in use
    finally:
        if lock is not None:
            os.close(lock)


def unpack(archive: str, root: str, content: str, platform: str, start: Any, *, durable: bool) -> None:
    """Write the archive's tree below `root`, then the marker. `durable`: compile our own code, sync. Raises OSError."""
    try:
        with zipfile.ZipFile(archive) as opened:
            if f'CONTENT = "{content}"'.encode() not in opened.read("__main__.py"):
                raise SystemExit("lakeshore: the file was replaced while it started: start it again")
            files = dict(members(opened, platform))
    except (zipfile.BadZipFile, KeyError, EOFError) as problem:
        raise SystemExit(f"lakeshore: {archive} is damaged ({problem}): get it again") from problem
    folders = sorted({parent for name in files for parent in parents(name)})
    for folder in folders:
        for path in (
            folder,
            f"{folder}/__pycache__",
        ):  # made now: compiling on first import must not change the folder's time
            os.makedirs(os.path.join(root, path), exist_ok=True)
    written = [write(os.path.join(root, name), body) for name, body in files.items()]
    if durable:
        written += [compiled for path in written if (compiled := compile_own(root, path))]
        with ThreadPoolExecutor(16) as pool:  # a disk commits many syncs at once
            list(pool.map(sync, written))
    for folder in folders:
        os.utime(os.path.join(root, folder), (start.STAMP, start.STAMP))
    watched = [folder for folder in folders if folder.count("/") < 3 or "/_vendor/" not in folder]
    # Where a file system keeps no times a removed file cannot be seen; that must not cost an unpacking at every start.
    keeps = all(os.stat(os.path.join(root, folder)).st_mtime == start.STAMP for folder in watched)
    marker = os.path.join(root, start.MARKER)
    text = "\n".join([content, *(watched if keeps else []), "end"]).encode()
    if os.path.exists(marker):  # completed in place: those that run from here hold a lock on this very file
        with open(marker, "r+b") as file:
            file.write(text)
            file.truncate()
    else:
        write(marker, text)
    if durable:
        sync(marker)


def members(opened: zipfile.ZipFile, platform: str) -> list[tuple[str, bytes]]:
    """(name, body) of what this platform needs: our packages, the pure code, and its wheels' modules."""
    found = []
    for info in opened.infolist():
        name = info.filename
        if info.is_dir() or not name.startswith(OWN) or ".." in name.split("/"):
            continue
        if not name.startswith(NATIVE):
            found.append((name, opened.read(info)))
        elif name.startswith(f"{NATIVE}{platform}/"):
            with zipfile.ZipFile(io.BytesIO(opened.read(info))) as wheel:
                folder = os.path.dirname(name)
                kept = [part for part in wheel.namelist() if KEPT.match(part) and not part.endswith(NOT_KEPT)]
                found += [(f"{folder}/{part}", wheel.read(part)) for part in kept]
    return found


def parents(name: str) -> list[str]:
    steps = name.split("/")[:-1]
    return ["/".join(steps[: end + 1]) for end in range(len(steps))]


def write(path: str, body: bytes) -> str:
    """Whole or not at all: somebody may be reading the tree that is completed."""
    beside = f"{path}.{os.getpid()}.new"
    try:
        with open(beside, "wb") as file:
            file.write(body)
        os.replace(beside, path)
    except OSError:
        if os.path.exists(beside):
            os.unlink(beside)
        raise
    return path


def compile_own(root: str, path: str) -> str | None:
    """Our own modules are compiled ahead; third-party ones when they are first imported."""
    if not path.endswith(".py") or "/_vendor/" in path[len(root) :]:
        return None
    try:
        return py_compile.compile(path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except py_compile.PyCompileError:
        return None  # the import says it better


def sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
