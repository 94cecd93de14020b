"""This machine's own queues: the file that callers and workers share where no control plane is named."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from lakeshore.plane.contract import Submission
from lakeshore.plane.database import SCHEMA_VERSION
from lakeshore.plane.inbox import peek
from lakeshore.plane.statements import SQL

from . import database, disk
from .finding import Asked, Finding, failure, ok, warning

SUBJECT = "local queues"
LONG_WAL = 64 * 2**20


def check(asked: Asked) -> Iterator[Finding]:
    """The file, its disk, who uses it, what waits in it."""
    home = Path(asked.environ.get("LAKESHORE_HOME") or "~/.lakeshore").expanduser().absolute()
    path = home / "dispatch.sqlite"
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        yield from _unused(home)
        return
    except OSError as error:
        yield failure(SUBJECT, f"{path}: {error.strerror}", "look at its owner and mode, or set LAKESHORE_HOME")
        return
    yield _access(path)
    yield disk.file_system("local disk", home, "LAKESHORE_HOME")
    beside = path.with_name(path.name + ".d")
    living, dead = _holders(beside / "workers")
    yield database.schema("local schema", path, SCHEMA_VERSION, in_use=bool(living))
    if database.wal_bytes(path) > LONG_WAL:
        yield warning(
            "local WAL",
            f"{database.wal_bytes(path) / 2**20:,.0f} MiB have not been folded into the file",
            "a reader that never ends keeps it long: end what has the file open, or start one more process",
        )
    bells = _orphans(beside / "bells")
    seen = f"{len(living)} processes have it open"
    if dead or bells:
        seen += f"; {len(dead)} locks and {bells} bells of dead ones, which the next to open it removes"
    yield ok("local users", seen)
    yield from _work(path, living)


def _unused(home: Path) -> Iterator[Finding]:
    nearest = home
    while not nearest.exists():
        nearest = nearest.parent
    if nearest.is_dir() and os.access(nearest, os.W_OK):
        yield ok(SUBJECT, f"none yet, in {home}")
    else:
        yield failure(
            SUBJECT, f"{home} cannot be made: {nearest} is not a directory that you can write", "set LAKESHORE_HOME"
        )


def _access(path: Path) -> Finding:
    found = path.stat()
    mode = stat.S_IMODE(path.parent.stat().st_mode)
    seen = f"{path}, in a directory of mode {mode:o}"
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return failure(SUBJECT, f"{seen}, not writable by you", "look at owner and mode, or set LAKESHORE_HOME")
    if found.st_uid not in (os.geteuid(), 0):
        return warning(SUBJECT, f"{seen}, owned by uid {found.st_uid}", "use it as its owner, or set LAKESHORE_HOME")
    if mode & 0o022:
        return failure(SUBJECT, seen, f"others can put work into it, which runs as you: chmod 700 {path.parent}")
    return ok(SUBJECT, seen)


def _holders(directory: Path) -> tuple[list[str], list[str]]:
    """Ids of the processes that have the plane open, and of those whose lock file was left behind."""
    living, dead = [], []
    for path in directory.glob("*.lock"):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            dead.append(path.stem)
        except BlockingIOError:
            living.append(path.stem)
        except OSError:
            continue  # it has just gone
    return living, dead


def _orphans(directory: Path) -> int:
    """How many bells nobody listens to any more: they carry the pid of who hung them."""
    orphans = 0
    for path in directory.glob("*.bell"):
        pid = path.name.split("-")[1]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            orphans += 1
        except (PermissionError, ValueError):
            continue
    return orphans


def _work(path: Path, living: list[str]) -> Iterator[Finding]:
    try:
        conn = database.look(path)
        try:
            mail = _mail(path, conn)  # before the rows: what is put in meanwhile is counted there
            conn.execute("BEGIN")
            tallies = conn.execute(SQL.tallies).fetchall()
            left = [
                item for item in mail if not conn.execute(SQL.row_for_report, {"ns": item.ns, "id": item.id}).fetchall()
            ]
            holders = {session for (session,) in conn.execute(SQL.holders)}
        finally:
            conn.close()
    except sqlite3.Error:  # the line about the schema says more
        return
    queued = Counter({(ns, queue): n for ns, queue, state, n in tallies if state == "queued"})
    queued.update((item.ns, item.queue) for item in left)
    running = sum(n for *_, state, n in tallies if state == "running")
    lost = holders.difference(living)
    seen = f"{sum(queued.values()):,} queued, {running:,} running"
    if lost and not living:
        seen = f"{seen}; what {len(lost)} dead workers ran waits to run again"
        yield warning("local work", seen, _start(queued or {("default", "default"): 0}))
    elif queued and not living:
        yield warning("local work", f"{seen}, and nobody takes them", _start(queued))
    else:
        yield ok("local work", seen)


def _mail(path: Path, conn: sqlite3.Connection) -> list[Submission]:
    (number,) = conn.execute("PRAGMA application_id").fetchone()
    with contextlib.suppress(OSError):
        return peek(path.with_name(path.name + ".d") / "inbox", number)
    return []


def _start(queued: Mapping[tuple[str, str], int]) -> str:
    ns, queue = max(queued, key=lambda place: queued[place])
    where = [] if ns == "default" else ["--namespace", ns]
    return f"start a worker: {shlex.join(['lakeshore', 'worker', 'start', '--queue', queue, *where])}"
