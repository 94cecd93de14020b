"""How a database file comes to today's schema: forward only, every step of the way in one transaction.

A new file gets `schema` of `statements.sql` at once. An older one gets the steps of `migrations.sql` beside it, whose
headings `-- to: 2`, `-- to: 3` … name the version that each one makes. A step that was released is never changed; a
change of `schema` comes with its step, and both must lead to the same tables and indexes. An older program that has the
file open goes on with its own statements, so a step adds, and takes away only what no released statement names.
"""

from __future__ import annotations

import pkgutil
import re
import sqlite3
from collections.abc import Iterator

_HEADING = re.compile(r"^-- to: (\d+)$", re.MULTILINE)


class NewerSchema(Exception):
    """The file was written by a newer version; the message says so and what to do."""


def migrate(conn: sqlite3.Connection, path: str, *, package: str, schema: str, version: int) -> None:
    """Bring the file behind `conn` to `version`, whose schema is `schema`. Raises NewerSchema, sqlite3.Error.

    On any error nothing is changed.
    """
    if _version_of(conn, path, version) == version:
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it meanwhile.
        found = _version_of(conn, path, version)
        if found == 0:
            _run(conn, schema)
        elif found < version:
            steps = steps_of(package)
            for step in range(found + 1, version + 1):
                _run(conn, steps[step])
        conn.execute(f"PRAGMA user_version = {version}")
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def steps_of(package: str) -> dict[int, str]:
    """The steps of a package's database, by the version that each one makes."""
    text = pkgutil.get_data(package, "migrations.sql")
    if text is None:
        raise FileNotFoundError(f"migrations.sql of {package} is missing from this installation; reinstall lakeshore")
    parts = _HEADING.split(text.decode())[1:]
    return {int(number): body for number, body in zip(parts[::2], parts[1::2], strict=True)}


def _version_of(conn: sqlite3.Connection, path: str, known: int) -> int:
    found = int(conn.execute("PRAGMA user_version").fetchone()[0])
    if found > known:
        raise NewerSchema(
            f"{path} was written by a newer Lakeshore (schema {found}, this one knows {known}); upgrade lakeshore"
        )
    return found


def _run(conn: sqlite3.Connection, script: str) -> None:
    # Not executescript(): that commits first.
    for statement in _statements(script):
        conn.execute(statement)


def _statements(script: str) -> Iterator[str]:
    held = ""
    for line in script.splitlines():
        held += line + "\n"
        if sqlite3.complete_statement(held):
            yield held
            held = ""
    if held.strip():
        yield held
