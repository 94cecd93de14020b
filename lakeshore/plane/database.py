"""Opens the SQLite file of a plane: its floor, its pragmas, its schema and where it refuses to live (K-31, K-33)."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Literal

from .contract import UnfitPlane
from .migrations import NewerSchema, migrate
from .soundness import check_files, check_pages, damaged
from .statements import SQL

Durability = Literal["power", "process", "none"]
SCHEMA_VERSION = 6
"""Of `schema` in statements.sql. A change there raises it and adds the step to migrations.sql."""
BUSY_S = 30.0
"""So long a writer waits for another process."""
WAL_BYTES = 16 * 1024 * 1024
"""What a burst made longer is cut back to this once the WAL starts again."""
FLOOR = (3, 35, 0)
"""RETURNING came with 3.35; partial indexes and upserts are older."""

SYNCHRONOUS: dict[str, str] = {"power": "FULL", "process": "NORMAL", "none": "OFF"}
"""SQLite's word for each durability."""
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "glusterfs", "fuse.sshfs", "beegfs"}
)


def connect(path: str, *, durability: Durability, shared: bool) -> sqlite3.Connection:
    """A connection for writing. `shared`: several processes write this file, so checkpoints are not automatic.

    Raises UnfitPlane with what to do.
    """
    if sqlite3.sqlite_version_info < FLOOR:
        raise UnfitPlane(
            f"SQLite {sqlite3.sqlite_version} is too old: {'.'.join(map(str, FLOOR))} is needed; "
            "use a newer Python build, or one linked to a newer SQLite"
        )
    if path != ":memory:":
        refuse_network_file_system(Path(path).parent)
    if not shared and durability == "power":
        check_files(path)
    try:
        conn = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=BUSY_S, cached_statements=256
        )
        conn.execute("PRAGMA temp_store = MEMORY")
        if path != ":memory:":
            conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _switch_to_wal(conn)
        conn.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        conn.execute("PRAGMA fullfsync = 1")
        conn.execute("PRAGMA checkpoint_fullfsync = 1")
        conn.execute(f"PRAGMA wal_autocheckpoint = {0 if shared else 1000}")
        conn.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        conn.execute("PRAGMA cache_size = -16384")
        if not shared:
            check_pages(conn, path)
        migrate(conn, path, package=__package__, schema=SQL.schema, version=SCHEMA_VERSION)
    except NewerSchema as exc:
        conn.close()
        raise UnfitPlane(str(exc)) from exc
    except sqlite3.OperationalError as exc:
        raise UnfitPlane(_explain(path, exc)) from exc
    except sqlite3.DatabaseError as exc:
        raise UnfitPlane(damaged(path, str(exc))) from exc
    return conn


def number_of(conn: sqlite3.Connection) -> int:
    """What tells this database from another one at the same place; made where it has none, and synced whatever the
    durability of this connection is: what others leave in the inbox is for this number. Raises sqlite3.Error.
    """
    (found,) = conn.execute("PRAGMA application_id").fetchone()
    if not found:
        (usual,) = conn.execute("PRAGMA synchronous").fetchone()
        conn.execute("PRAGMA synchronous = FULL")
        conn.execute("BEGIN IMMEDIATE")
        try:
            (found,) = conn.execute("PRAGMA application_id").fetchone()
            if not found:  # no other process has made one meanwhile
                found = int.from_bytes(os.urandom(4), "big") >> 1 or 1
                conn.execute(f"PRAGMA application_id = {found}")
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
        conn.execute(f"PRAGMA synchronous = {usual}")
    return int(found)


def connect_reader(path: str) -> sqlite3.Connection:
    """A read-only connection to an existing file."""
    conn = sqlite3.connect(
        f"file:{_uri_path(path)}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    conn.execute("PRAGMA query_only = 1")
    return conn


def _switch_to_wal(conn: sqlite3.Connection) -> None:
    # Processes that open a new file at once meet here, and for this switch SQLite does not wait by itself.
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            conn.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _uri_path(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _explain(path: str, exc: sqlite3.Error) -> str:
    directory = os.path.dirname(path) or "."
    if "readonly" in str(exc) or "unable to open" in str(exc):
        return (
            f"cannot write {path} ({exc}): check that {directory} exists, is writable by you and is not mounted "
            "read-only, or name another place (LAKESHORE_HOME, or --state-dir for the server)"
        )
    if "I/O error" in str(exc):
        return damaged(path, str(exc))
    return f"cannot open {path}: {exc}"


def refuse_network_file_system(directory: Path) -> None:
    """SQLite's WAL needs shared memory, which network file systems do not give."""
    found = file_system_of(directory)
    if found is not None and found[1] in NETWORK_FILE_SYSTEMS:
        raise UnfitPlane(
            f"{os.path.realpath(directory)} is on a network file system ({found[1]} at {found[0]}), where SQLite's "
            "locks and shared memory do not hold; set LAKESHORE_HOME (or --state-dir) to a directory on a local disk"
        )


def file_system_of(directory: Path) -> tuple[str, str] | None:
    """(mount point, kind) of what a directory lies on; None where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    target = os.path.realpath(directory)
    best, kind = "", ""
    for line in mounts:
        fields = line.split(" ")
        point = fields[1].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return (best, kind) if kind else None
