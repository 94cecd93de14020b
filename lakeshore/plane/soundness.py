"""Whether a database's files are what was written; damage is told when they are opened, with what to do (K-32).

SQLite takes the first frame of its WAL whose checksum fails for the end of the log: so it must, for a power cut may
have torn the last transaction. But each commit is synced before the next begins, so whole commits behind that place say
that what was acknowledged is damaged. Then nothing is opened: the commits behind would be lost without a word.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from pathlib import Path

from .contract import UnfitPlane

LOOK_S = 0.3
"""So long a start looks at the pages of a database; a large one is not seen whole."""

_WAL_HEAD = struct.Struct(">8I")
_FRAME_HEAD = struct.Struct(">6I")
_MAGIC = 0x377F0682
_TORN = 1
"""So many commits a power cut can leave behind a frame that is not whole: the one that nobody was told of."""


def check_files(path: str) -> None:
    """Look at a database and its WAL before they are opened. Raises UnfitPlane; nothing is changed."""
    wal = Path(f"{path}-wal")
    if _size(wal) <= _WAL_HEAD.size:
        return
    if _size(Path(path)) == 0:
        raise UnfitPlane(
            f"{path} is empty or gone, while {wal} holds commits of it; restore both from a backup, "
            "or move the WAL away to begin anew"
        )
    seen = None
    while (found := _unread(wal)) is not None and found[1] > _TORN:
        if found == seen:  # and not what another process writes meanwhile
            at, commits = found
            raise UnfitPlane(
                f"{wal} is damaged at byte {at}: {commits} commits from there on cannot be read. Restore a backup; "
                f"or, to go on without them, keep a copy of the file and then run: truncate -s {at} {wal}"
            )
        seen = found


def check_pages(conn: sqlite3.Connection, path: str) -> None:
    """Look at the database's pages for a moment. Raises UnfitPlane when one is damaged."""
    deadline = time.monotonic() + LOOK_S
    conn.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        (said,) = conn.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as exc:
        if "interrupted" in str(exc):
            return
        raise
    except sqlite3.DatabaseError as exc:
        said = str(exc)
    finally:
        conn.set_progress_handler(None, 0)
    if said != "ok":
        raise UnfitPlane(damaged(path, said))


def damaged(path: str, why: str) -> str:
    """What to say of a database that cannot be believed."""
    return f"{path} is damaged ({why}); restore a backup, or get out what can be read with: sqlite3 {path} .recover"


def _unread(wal: Path) -> tuple[int, int] | None:
    """Where the WAL stops being readable, and how many commits of the same log there are from that place on."""
    try:
        raw = wal.read_bytes()
    except OSError:  # SQLite will say why
        return None
    if len(raw) <= _WAL_HEAD.size:
        return None
    magic, _version, page, _round, salt0, salt1, *sums = _WAL_HEAD.unpack_from(raw)
    words = struct.Struct(">II" if magic & 1 else "<II")
    if magic & ~1 != _MAGIC or _checksum(words, raw[:24], 0, 0) != tuple(sums):
        # The head is written and synced alone, in one sector: no power cut tears it.
        page = _page_of(Path(str(wal).removesuffix("-wal")))
        return 0, _TORN + len(_commits(raw, page, _WAL_HEAD.size, None))
    one, two = sums
    at = _WAL_HEAD.size
    while at + _FRAME_HEAD.size + page <= len(raw):
        _number, _pages, *salts, sum0, sum1 = _FRAME_HEAD.unpack_from(raw, at)
        if salts != [salt0, salt1]:
            break
        one, two = _checksum(words, raw[at : at + 8], one, two)
        one, two = _checksum(words, raw[at + _FRAME_HEAD.size : at + _FRAME_HEAD.size + page], one, two)
        if (one, two) != (sum0, sum1):
            break
        at += _FRAME_HEAD.size + page
    return at, len(_commits(raw, page, at, [salt0, salt1]))


def _commits(raw: bytes, page: int, at: int, salts: list[int] | None) -> list[int]:
    """Where the frames that commit are, from `at` on."""
    found = []
    for place in range(at, len(raw) - _FRAME_HEAD.size - page + 1, _FRAME_HEAD.size + page):
        _number, pages, *these, _sum0, _sum1 = _FRAME_HEAD.unpack_from(raw, place)
        if pages and salts in (None, these):
            found.append(place)
    return found


def _page_of(database: Path) -> int:
    with database.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
    return 65536 if size == 1 else max(size, 512)


def _checksum(words: struct.Struct, data: bytes, one: int, two: int) -> tuple[int, int]:
    for left, right in words.iter_unpack(data):
        one = (one + left + two) & 0xFFFFFFFF
        two = (two + right + one) & 0xFFFFFFFF
    return one, two


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
