"""A look at a SQLite file of ours that leaves no trace beside it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from lakeshore.plane.contract import UnfitPlane
from lakeshore.plane.soundness import check_files, check_pages

from .finding import Finding, failure, ok, warning


def wal_bytes(path: Path) -> int:
    """How much of a database is in its WAL."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def look(path: Path) -> sqlite3.Connection:
    """A read-only connection. Raises sqlite3.Error."""
    # A reader of a database in WAL mode would make the two files beside it. Where they are not needed it must not.
    quiet = "" if wal_bytes(path) else "&immutable=1"
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro{quiet}", uri=True, isolation_level=None, timeout=2)


def schema(subject: str, path: Path, known: int, *, in_use: bool) -> Finding:
    """Whether this version can use the file. `in_use`: its writer lives, so that its WAL is not looked through."""
    try:
        if not in_use:
            check_files(str(path))
        conn = look(path)
        try:
            (found,) = conn.execute("PRAGMA user_version").fetchone()
            check_pages(conn, str(path))
        finally:
            conn.close()
    except UnfitPlane as error:
        return failure(subject, str(error), "make a copy of the directory before anything else")
    except sqlite3.Error as error:
        return failure(subject, f"cannot open {path}: {error}", "look at its owner and mode, or restore a backup")
    sizes = f"{path.stat().st_size / 2**20:,.1f} MiB and {wal_bytes(path) / 2**20:,.1f} in its WAL"
    seen = f"{path.name}: schema {found}, {sizes}"
    if found > known:
        return failure(
            subject, seen, f"a newer Lakeshore wrote it; this one knows schema {known}: upgrade this program"
        )
    if found < known:
        return warning(
            subject, seen, f"the next start brings it to schema {known}, for good: `lakeshore backup` it before"
        )
    return ok(subject, seen)
