"""Unpacks the archive: once, atomically, into the user's cache; where that cannot be trusted, into a private directory.

Run by `_start.py` from inside the archive, only when there is no whole tree yet. Rules: a tree appears under its name
complete or not at all; a tree in use is never pruned; whatever goes wrong (no home, a read-only or full disk, no right
to execute) the program still starts; nothing is created where it would not be used.

A first run does not wait for the disk: the tree says in which boot of the machine it was written. After another boot it
is compared with the archive once, file by file, and synced. Where boots have no names it is synced at once.
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
from typing import Any

OWN = ("lakeshore/", "dreamlake/")
NATIVE = "lakeshore/_vendor/_native/"
PACKED = "lakeshore/_vendor/_packed.zip.bz2"
TEMPORARY = "lakeshore-run-"
UNUSED_AFTER = 30 * 86400  # seconds
PATIENCE = 60  # seconds to wait for another first run, which may have been stopped
KEPT = re.compile(r"(msgpack|nacl)/|_cffi_backend")  # of the wheels of compiled modules, without
AT_ONCE = re.compile(r"/_vendor/(click|yaml|msgpack|h11|cloudpickle)/")  # what commands and calls load
NOT_KEPT = ("/", ".c", ".h", ".pyi", ".pyx", ".pxd")


class Unusable(Exception):
    """Why the cache cannot be used. `said` is for the user; empty where there is nothing for them to mend."""

    def __init__(self, said: str = "") -> None:
        super().__init__(said)
        self.said = said


def prepare(archive: str, root: str, content: str, platform: str, start: Any) -> tuple[str, int | None]:
    """The directory to import from, and the lock that keeps it. `start` is what `_start.py` defines."""
    try:
        return cached(archive, root, content, platform, start)
    except Unusable as problem:
        if problem.said:
            talk(
                f"{problem.said}; unpacking to a temporary directory for this run, which is slow. Mend it, or set "
                "XDG_CACHE_HOME to a directory that only you can write"
            )
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
        above = nearest(base)
        if not os.path.islink(above) and not os.path.isdir(above):
            raise Unusable  # a home such as /dev/null
        problem = start.unsafe_above(os.path.join(above, "x"))
        if not problem:
            make_private(base)
            problem = start.unsafe_above(root)
        if problem:
            raise Unusable(f"{problem}, so {base} is not used as a cache")
        if nothing_runs(base) and not nothing_runs(tempfile.gettempdir()):
            raise Unusable  # compiled modules could not be loaded from there
        with locked(os.path.join(base, f".{content}.lock")):
            if not os.path.lexists(root):
                publish(archive, root, content, platform, start)
            problem = start.unsafe(root)
            if problem:
                raise Unusable(f"{problem}: remove it to have a cache again")
            lock = start.hold(root)
            if lock < 0:  # it lost files, it is from before the machine went down, or another Python unpacked it
                unpack(archive, root, content, platform, start, kept=True)
                lock = start.hold(root)
    except OSError as failure:
        said = f"no room to unpack in {base}" if failure.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise Unusable(said) from failure
    if lock < 0:
        raise Unusable(f"{root} does not stay as it was written")
    prune(base, root)
    return root, lock


def nothing_runs(folder: str) -> bool:
    """Whether it is mounted noexec, so that compiled modules cannot be loaded. False where that is not told."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


def nearest(path: str) -> str:
    """The deepest part of it that exists, as a link if it is one."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


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
    """An exclusive lock file for the block, gone after it. After `PATIENCE`, and where there are no locks, without."""

    def __init__(self, path: str) -> None:
        self.path, self.fd = path, -1

    def __enter__(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                time.sleep(0.02)
                continue
            except OSError:
                pass
            if os.fstat(fd).st_nlink:
                self.fd = fd
                return
            os.close(fd)  # whoever had it has just removed it

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            os.unlink(self.path)
            os.close(self.fd)


def publish(archive: str, root: str, content: str, platform: str, start: Any) -> None:
    """Unpack under another name and rename. A tree that somebody else puts there meanwhile stays."""
    fresh = tempfile.mkdtemp(prefix=f".{content}.", dir=os.path.dirname(root))
    try:
        unpack(archive, fresh, content, platform, start)
        try:
            os.rename(fresh, root)
        except OSError as failure:
            if failure.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if not start.boot():
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
            unpack(archive, root, content, platform, start)
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


def unpack(archive: str, root: str, content: str, platform: str, start: Any, *, kept: bool = False) -> None:
    """Write the archive's tree below `root`, then the marker. `kept`: a tree that others may be using is compared with
    the archive and completed. Raises OSError.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            if f'CONTENT = "{content}"'.encode() not in opened.read("lakeshore/_start.py"):
                raise SystemExit("lakeshore: the file was replaced while it started: start it again")
            now = start.boot()
            since, tags = known(os.path.join(root, start.MARKER)) if kept else (now, [])
            tags = sorted({*tags, start.python_tag()})
            files = dict(packed(opened) if start.SCREENS else members(opened, platform, tags))
    except (zipfile.BadZipFile, KeyError, EOFError) as problem:
        raise SystemExit(f"lakeshore: {archive} is damaged ({problem}): get it again") from problem
    doubtful = since not in ("", now)  # the machine went down before this was surely on the disk
    folders = sorted({parent for name in files for parent in parents(name)})
    watched = [folder for folder in folders if folder.count("/") < 3 or "/_vendor/" not in folder]
    for folder in folders:
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    for folder in watched:  # made now: compiling on first import must not change the folder's time
        os.makedirs(os.path.join(root, folder, "__pycache__"), exist_ok=True)
    if doubtful:
        forget_compiled(root)
    store = complete if kept else write
    written = [path for name, body in files.items() if store((path := os.path.join(root, name)), body)]
    if sys.dont_write_bytecode:
        compile_own(root, written)
    if not now or since != now:
        for path in written if kept and not doubtful else [os.path.join(root, name) for name in files]:
            sync(path)
        since = ""
    for folder in watched:
        os.utime(os.path.join(root, folder), (start.STAMP, start.STAMP))
    # Where a file system keeps no times a removed file cannot be seen; that must not cost an unpacking at every start.
    keeps = all(os.stat(os.path.join(root, folder)).st_mtime == start.STAMP for folder in watched)
    text = start.marker(content, since, tags, watched if keeps else []).encode()
    marker = os.path.join(root, start.MARKER)
    if os.path.exists(marker):  # those that run from here hold a lock on this very file
        with open(marker, "r+b") as file:
            file.write(text)
            file.truncate()
    else:
        write(marker, text)
    if not since:
        sync(marker)


def known(marker: str) -> tuple[str, list[str]]:
    """The boot in which a tree was written ("?" when its marker is not whole) and the interpreters that it serves."""
    try:
        with open(marker, encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 20).split("\n")
    except OSError:
        return "?", []
    whole = len(lines) > 3 and lines[-1] == "end"
    return (lines[1], lines[2].split()) if whole else ("?", [])


def members(opened: zipfile.ZipFile, platform: str, tags: list[str]) -> list[tuple[str, bytes]]:
    """(name, body) of what runs here: our packages, the pure code, and the modules of the wheels for `tags`. Licences
    and metadata stay in the archive.
    """
    found = []
    folders = tuple(f"{NATIVE}{platform}/{tag}/" for tag in [*tags, "abi3"])
    for info in opened.infolist():
        name = info.filename
        if (
            info.is_dir()
            or not name.startswith(OWN)
            or ".." in name.split("/")
            or ".dist-info/" in name
            or name == PACKED
        ):
            continue
        if not name.startswith(NATIVE):
            found.append((name, opened.read(info)))
        elif name.startswith(folders):
            with zipfile.ZipFile(io.BytesIO(opened.read(info))) as wheel:
                folder = os.path.dirname(name)
                kept = [part for part in wheel.namelist() if KEPT.match(part) and not part.endswith(NOT_KEPT)]
                found += [(f"{folder}/{part}", wheel.read(part)) for part in kept]
    return found


def packed(opened: zipfile.ZipFile) -> list[tuple[str, bytes]]:
    """(name, body) of what only screens need."""
    try:
        import bz2  # wall: a Python may lack it
    except ImportError:
        raise SystemExit(
            "lakeshore: this Python was built without bzip2, in which the screens are packed: use another one"
        ) from None
    folder = os.path.dirname(PACKED)
    with zipfile.ZipFile(io.BytesIO(bz2.decompress(opened.read(PACKED)))) as screens:
        return [(f"{folder}/{name}", screens.read(name)) for name in screens.namelist()]


def parents(name: str) -> list[str]:
    steps = name.split("/")[:-1]
    return ["/".join(steps[: end + 1]) for end in range(len(steps))]


def write(path: str, body: bytes) -> bool:
    """A new file, where nobody looks yet. True."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)
    return True


def complete(path: str, body: bytes) -> bool:
    """Whole or not at all: somebody may be reading the tree that is completed. Whether it was not right already."""
    try:
        with open(path, "rb") as file:
            if file.read() == body:
                return False
    except FileNotFoundError:
        pass
    beside = f"{path}.{os.getpid()}.new"
    try:
        write(beside, body)
        os.replace(beside, path)
    except OSError:
        if os.path.exists(beside):
            os.unlink(beside)
        raise
    return True


def forget_compiled(root: str) -> None:
    """What Python compiled was never synced, and it would not notice half of a file."""
    for folder, _, names in os.walk(root):
        if os.path.basename(folder) == "__pycache__":
            for name in names:
                os.unlink(os.path.join(folder, name))


def compile_own(root: str, paths: list[str]) -> None:
    """Modules are compiled when they are first imported; where Python may not store that (as images often say in
    PYTHONDONTWRITEBYTECODE), ours are compiled now, and what is `AT_ONCE`: else each start would compile these again.
    """
    for path in paths:
        name = path[len(root) :]
        if name.endswith(".py") and ("/_vendor/" not in name or AT_ONCE.search(name)):
            try:
                py_compile.compile(path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
            except py_compile.PyCompileError:
                continue  # the import says it better


def sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
