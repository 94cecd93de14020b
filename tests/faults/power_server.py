"""The server for a test of power cuts, as it is or lying about one kind of sync: `power_server.py LIE ARGUMENTS...`."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from lakeshore.plane import blobs, database, journal, plane
from lakeshore.server import serve

LIES = ("database", "journal", "payloads", "names")


def lie(about: str) -> None:
    """From now on this process acknowledges without one kind of sync."""
    if about == "database":
        database.SYNCHRONOUS["power"] = "OFF"
    elif about == "journal":
        journal.Journal.sync = lambda _self: None  # type: ignore[method-assign]  # that is the lie
    elif about == "payloads":
        blobs._sync_file = lambda _fd, _path: None
    elif about == "names":
        sync = os.fsync
        os.fsync = lambda fd: None if os.path.isdir(f"/proc/self/fd/{fd}") else sync(fd)  # type: ignore[assignment,arg-type]
    elif about != "nothing":
        raise SystemExit(f"no such lie: {about}")


def fold_often() -> None:
    """Checkpoints after a few pages, so that a short run has many."""
    connect = plane.connect

    def connect_so(path: str, **how: Any) -> sqlite3.Connection:
        conn = connect(path, **how)
        conn.execute("PRAGMA wal_autocheckpoint = 60")
        return conn

    plane.connect = connect_so


if __name__ == "__main__":
    fold_often()
    lie(sys.argv[1])
    sys.exit(serve.main(sys.argv[2:]))
