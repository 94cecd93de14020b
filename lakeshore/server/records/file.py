"""A small SQLite file of the server: its schema, its soundness, and how a batch commits (K-29, K-30).

A batch is one synced transaction. A verb that refuses says so before it writes and spoils nothing; when SQLite itself
fails, everything is rolled back and the verbs run one by one. Nobody is answered before COMMIT has returned.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...plane.contract import PlaneError, SyncFailed, UnfitPlane
from ...plane.migrations import NewerSchema, migrate
from ...plane.plane import failure_of
from ...plane.soundness import check_files, check_pages
from ..http import HttpError

log = logging.getLogger(__name__)

Verb = Callable[[sqlite3.Connection], Any]


class RecordsError(Exception):
    """The records cannot be opened; the message says why and what to do."""


class File:
    """One open file, whose package has `migrations.sql`. `shrinks`: its free pages can be given back.

    Raises RecordsError.
    """

    def __init__(self, path: Path, *, package: str, schema: str, version: int, shrinks: bool = False) -> None:
        self.path = path
        self.conn = open_file(path, package=package, schema=schema, version=version, shrinks=shrinks)
        self.commit_s = 0.0
        """Seconds that the last COMMIT took, alone."""

    def close(self) -> None:
        """Close it. What was committed stays."""
        self.conn.close()

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Read on the writing connection: before anybody writes in a thread."""
        return self.conn.execute(statement, values or {}).fetchall()

    def batch(self, verbs: Sequence[Verb]) -> list[Any]:
        """Every verb in one transaction; per verb its answer, or the exception that refused it. Raises SyncFailed."""
        try:
            return self._commit(verbs)
        except SyncFailed:
            raise
        except sqlite3.Error as error:
            if len(verbs) == 1:
                return [failure_of(error)]
        except Exception as error:  # it may have written: nothing of this batch stands, the others run without it
            if len(verbs) == 1:
                log.exception("a verb of %s broke", self.path.name)
                return [error]
        return [self.batch((verb,))[0] for verb in verbs]

    def _commit(self, verbs: Sequence[Verb]) -> list[Any]:
        conn = self.conn
        conn.execute("BEGIN IMMEDIATE")
        try:
            answers: list[Any] = []
            for verb in verbs:
                try:
                    answers.append(verb(conn))
                except (PlaneError, HttpError) as error:
                    answers.append(error)
            before = time.perf_counter()
            conn.execute("COMMIT")
            self.commit_s = time.perf_counter() - before
        except BaseException as error:
            if conn.in_transaction:  # SQLITE_FULL and its like roll back by themselves
                conn.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError) and "disk I/O error" in str(error):
                raise SyncFailed(f"the disk under {self.path} failed: {error}") from error
            raise
        return answers


def open_file(path: Path, *, package: str, schema: str, version: int, shrinks: bool = False) -> sqlite3.Connection:
    """Open, check and migrate a file that one server writes. Raises RecordsError."""
    try:
        check_files(str(path))
        conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        path.chmod(0o600)
        if shrinks:
            conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("PRAGMA synchronous = FULL")
        conn.execute("PRAGMA fullfsync = 1")
        migrate(conn, str(path), package=package, schema=schema, version=version)
        check_pages(conn, str(path))
    except UnfitPlane as error:
        raise RecordsError(str(error)) from error
    except NewerSchema as error:
        conn.close()
        raise RecordsError(str(error)) from error
    except (sqlite3.Error, OSError) as error:
        raise RecordsError(
            f"cannot open {path}: {error}; check that it is writable by you, or restore it from a backup"
        ) from error
    return conn
