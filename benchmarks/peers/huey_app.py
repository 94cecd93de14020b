"""Huey's tasks on one SQLite file. HUEY_FILE names it; HUEY_FSYNC=1: synchronous=FULL (also what Huey does when nothing
is said: SQLite's own default), 0: synchronous=OFF.
"""

from __future__ import annotations

import os

from huey import SqliteHuey

_FSYNC = os.environ["HUEY_FSYNC"] == "1"
huey = SqliteHuey("bench", filename=os.environ["HUEY_FILE"], fsync=_FSYNC)
unattended = SqliteHuey("unattended", filename=os.environ["HUEY_FILE"], fsync=_FSYNC)


@huey.task()
def add(a: int, b: int) -> int:
    """The smallest task."""
    return a + b


@huey.task()
def size(data: bytes) -> int:
    """A large argument, a small answer."""
    return len(data)


@unattended.task()
def never(a: int, b: int) -> int:
    """Submitted, and run by nobody."""
    return a + b
