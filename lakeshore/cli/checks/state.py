"""The state directory of `lakeshore serve`, where there is one on this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from lakeshore.plane.database import SCHEMA_VERSION
from lakeshore.server.execs.store import SCHEMA_VERSION as EXECS_VERSION
from lakeshore.server.here import default_directory
from lakeshore.server.records.store import SCHEMA_VERSION as RECORDS_VERSION

from . import database, disk
from .finding import Asked, Finding, failure, ok, warning

SUBJECT = "state"
RESERVE = 1024**3  # what `lakeshore serve` keeps free by default
SECRETS = ("admin.token", "secrets.key", "secrets.key.next")


def check(asked: Asked) -> Iterator[Finding]:
    """Owner and mode, its disk, who holds it, its databases."""
    root = (
        asked.state_dir.expanduser() if asked.state_dir is not None else default_directory(asked.environ)
    ).absolute()
    try:
        found = root.stat()
    except FileNotFoundError:
        yield ok(SUBJECT, f"no server has run here yet ({root} does not exist)")
        return
    except OSError as error:
        yield failure(SUBJECT, f"{root}: {error.strerror}", "run this as the server's user")
        return
    if not stat.S_ISDIR(found.st_mode):
        yield failure(SUBJECT, f"{root} is not a directory", "choose another with --state-dir or LAKESHORE_STATE_DIR")
        return
    yield _access(root, found)
    yield from _secrets(root)
    yield disk.file_system("state disk", root, "LAKESHORE_STATE_DIR")
    yield disk.space("state space", root, RESERVE)
    if os.access(root, os.W_OK):
        yield disk.sync("state sync", root)
    holder = holder_of(root / "server.lock")
    yield ok("server lock", "no server runs from it" if holder is None else f"held by pid {holder}")
    files = (("lakeshore.db", SCHEMA_VERSION), ("records.db", RECORDS_VERSION), ("execs.db", EXECS_VERSION))
    for name, known in files:
        if (root / name).exists():
            yield database.schema("state schema", root / name, known, in_use=holder is not None)


def _access(root: Path, found: os.stat_result) -> Finding:
    mode = stat.S_IMODE(found.st_mode)
    seen = f"{root}, mode {mode:o}, owned by uid {found.st_uid}"
    if found.st_uid != os.geteuid():
        if os.geteuid() == 0:
            return warning(SUBJECT, seen, f"you are root: run the server as uid {found.st_uid}, or give it to root")
        return failure(SUBJECT, seen, f"you are uid {os.geteuid()}: run as its owner, or choose another --state-dir")
    if mode & 0o022:
        return failure(SUBJECT, seen, f"others can replace what is in it: chmod 700 {root}")
    if mode & 0o077:
        return warning(SUBJECT, seen, f"others can look into it: chmod 700 {root}")
    if not os.access(root, os.W_OK):
        return failure(SUBJECT, f"{seen}, not writable", "a read-only disk? mount it for writing, or choose another")
    return ok(SUBJECT, seen)


def _secrets(root: Path) -> Iterator[Finding]:
    for name in SECRETS:
        try:
            mode = stat.S_IMODE((root / name).stat().st_mode)
        except OSError:
            continue  # made by the first start
        if mode & 0o077:
            yield failure("secrets", f"{root / name} has mode {mode:o}", f"others can read it: chmod 600 {root / name}")


def holder_of(lock: Path) -> str | None:
    """The pid of the server that holds this lock, as text; None when nobody does.

    The kernel is asked, the lock is not tried: a server that starts at that moment would find it taken.
    """
    try:
        inode = lock.stat().st_ino
        pid = lock.read_text("ascii", "replace").strip()
    except OSError:
        return None
    try:
        held = Path("/proc/locks").read_text("ascii", "replace").splitlines()
    except OSError:  # not Linux
        return pid if pid.isdigit() and _lives(int(pid)) else None
    if not any(line.split()[5].rsplit(":", 1)[-1] == str(inode) for line in held if len(line.split()) > 5):
        return None
    return pid or "unknown"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
