"""A copy of a state directory, made while its server runs; it is whole, checked, and there all at once or not at all.

Rows point to frames and payloads, never the other way, and both are on disk before the row that names them. So the
database is copied first, in one read transaction, and then what *that copy* names. In between nothing that it names may
be deleted: whoever copies holds `files.lock` shared, whoever deletes files takes it alone or leaves them for later.
A copy is a state directory: `lakeshore serve --state-dir COPY` serves it, `restore` checks it and copies it elsewhere.
Reference: docs/adr/0006-a-backup-is-a-state-directory.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from .._version import __version__
from ..archives.stamp import sha256_of
from ..plane import database
from ..plane.blobs import Blobs
from ..plane.journal import FrameDamaged, Journal, Location
from ..plane.locks import files_lock
from .execs import store as execs
from .records import store

_PLANE: Final = "lakeshore.db"
_RECORDS: Final = "records.db"
_EXECS: Final = "execs.db"
_LOGS: Final = ("logs", "exec-logs")
_SECRETS: Final = ("secrets.key", "secrets.key.next", "admin.token")
_ABOUT: Final = "backup.json"
_RECORD_HEAD: Final = 28
_READ_AT_ONCE: Final = 1024 * 1024


class BackupError(Exception):
    """The copy was not made; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a copy holds. `began_at`: what was acknowledged before is in it (Unix seconds)."""

    began_at: float
    invocations: int
    frames: int
    payloads: int
    bytes: int


def backup(state: Path, target: Path) -> Copied:
    """Copy the state directory to `target`, which must not exist. Raises BackupError."""
    _must_be_state(state)
    began_at = time.time()
    with _whole(target) as partial, _explained(f"cannot copy {state}"), files_lock(state, shared=True):
        for name in (_PLANE, _EXECS, _RECORDS):  # in this order: every namespace that the rows name is then there
            if (state / name).exists():
                _copy_database(state / name, partial / name)
        for name in _SECRETS:
            if (state / name).exists():
                _copy(state / name, partial / name)
        _copy_segments(state, partial)
        _copy_blobs(state, partial)
        _copy_logs(state, partial)
        _copy_releases(state, partial)
        _copy_archives(state, partial)
        return _finish(partial, began_at)


def restore(source: Path, target: Path) -> Copied:
    """Check a copy and make a state directory of it, which must not exist. Raises BackupError."""
    _must_be_state(source)
    try:
        about = json.loads((source / _ABOUT).read_text("utf-8"))
        began_at = float(about["began_at"])
    except (OSError, ValueError, TypeError, KeyError):
        raise BackupError(
            f"{source} is no finished backup: it has no readable {_ABOUT}; a state directory is copied with "
            "`lakeshore backup`"
        ) from None
    if (source / "server.lock").exists():
        raise BackupError(f"{source} has been served since it was made; copy it with `lakeshore backup --state-dir`")
    with _whole(target) as partial, _explained(f"cannot restore {source}"):
        for path in sorted(source.rglob("*")):
            into = partial / path.relative_to(source)
            if path.is_dir():
                into.mkdir(mode=0o700)
            elif path.name != _ABOUT:
                _copy(path, into)
        return _finish(partial, began_at)


def verify(directory: Path, began_at: float) -> Copied:
    """Check the databases, every frame's checksum and every payload's digest. Raises BackupError."""
    for name in (_PLANE, _EXECS, _RECORDS):
        if (directory / name).exists():
            with _opened(directory / name) as conn:
                said = [text for (text,) in conn.execute("PRAGMA quick_check")]
            if said != ["ok"]:
                raise BackupError(f"{name} is damaged: {said[0]}")
    with _opened(directory / _PLANE) as conn:
        frames = _check_frames(conn, directory)
        payloads = _check_payloads(conn, directory)
        (invocations,) = conn.execute("SELECT COUNT(*) FROM invocation").fetchone()
    for path in (directory / "releases").glob("*"):
        if _digest(path) != path.name:
            raise BackupError(f"the release {path.name} is not what its name says; push it again")
    for ns, sha256 in _archives(directory):
        path = directory / "code" / ns / sha256
        if not path.is_file() or _digest(path) != sha256:
            raise BackupError(f"the archive of code {sha256[:12]} of {ns} is missing or damaged; push it again")
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return Copied(began_at=began_at, invocations=invocations, frames=frames, payloads=payloads, bytes=size)


def _finish(partial: Path, began_at: float) -> Copied:
    """Check what was copied, then write down what it is, last."""
    done = verify(partial, began_at)
    path = partial / _ABOUT
    path.write_text(json.dumps({"lakeshore": __version__, **asdict(done)}, indent=1) + "\n", "utf-8")
    path.chmod(0o600)
    for folder in (partial, *(p for p in partial.rglob("*") if p.is_dir())):
        _sync(folder)
    _sync(path)
    return done


# --- one thing after the other


def _copy_database(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as into:
        target.chmod(0o600)
        with _opened(source) as conn:
            conn.backup(into)  # all pages in one step, which is one read transaction: writers go on meanwhile
        into.execute("PRAGMA journal_mode = DELETE")  # one file; a server makes it a WAL again


def _copy_segments(state: Path, partial: Path) -> None:
    (partial / "journal").mkdir(mode=0o700)
    with _opened(partial / _PLANE) as conn:
        ends = conn.execute("SELECT segment, MAX(offset + length) FROM frame GROUP BY segment").fetchall()
    for number, end in ends:
        name = f"journal/{number:010d}.frames"
        _copy(state / name, partial / name, most=end + _RECORD_HEAD)


def _copy_blobs(state: Path, partial: Path) -> None:
    (partial / "blobs").mkdir(mode=0o700)
    source, target = Blobs(state / "blobs"), Blobs(partial / "blobs")
    with _opened(partial / _PLANE) as conn:
        for key, _size, _sha256 in _payloads(conn):
            into = target.path(key)
            if into.exists():
                continue
            into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                os.link(source.path(key), into)  # a payload's file is never written again
            except FileNotFoundError as error:
                raise BackupError(f"the payload {key} is missing from {state}: {error.strerror}") from error
            except OSError:  # another file system, or one without links
                _copy(source.path(key), into)


def _copy_logs(state: Path, partial: Path) -> None:
    """As they are now: a log goes on while it is copied, and goes with its row; a record that is cut is not read."""
    for source in sorted(path for name in _LOGS for path in (state / name).glob("*/*")):
        target = partial / source.relative_to(state)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            _copy(source, target)


def _copy_releases(state: Path, partial: Path) -> None:
    """Those that the copied records name: a release's file is there before its row, and never goes."""
    if not (partial / _RECORDS).exists():
        return
    with _opened(partial / _RECORDS) as conn:
        if conn.execute("PRAGMA user_version").fetchone()[0] < 3:
            return
        for (sha256,) in conn.execute("SELECT sha256 FROM nymph_release"):
            (partial / "releases").mkdir(mode=0o700, exist_ok=True)
            _copy(state / "releases" / sha256, partial / "releases" / sha256)


def _copy_archives(state: Path, partial: Path) -> None:
    """Those that the copied records name: an archive's file is there before its row, and goes with the files' lock."""
    for ns, sha256 in _archives(partial):
        target = partial / "code" / ns / sha256
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not target.exists():
            try:
                _copy(state / "code" / ns / sha256, target)
            except FileNotFoundError as error:
                why = f"the archive of code {sha256[:12]} of {ns} is missing: {error.strerror}; push it again"
                raise BackupError(why) from error


def _archives(directory: Path) -> Iterator[tuple[str, str]]:
    """The archives of code in the directory itself that its records name: namespace and digest."""
    if not (directory / _RECORDS).exists():
        return
    with _opened(directory / _RECORDS) as conn:
        if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'code_repo'").fetchone() is None:
            return
        for ns, key in conn.execute("SELECT ns, archive_key FROM code_repo WHERE storage = ''").fetchall():
            sha256 = sha256_of(key)
            if sha256 is not None:
                yield ns, sha256


def _copy(source: Path, target: Path, most: int | None = None) -> None:
    """Copy a file, or its first `most` bytes, durably."""
    left = most
    with source.open("rb") as file, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as into:
        while data := file.read(_READ_AT_ONCE if left is None else min(_READ_AT_ONCE, left)):
            into.write(data)
            left = None if left is None else left - len(data)
        into.flush()
        os.fsync(into.fileno())


# --- checks


def _check_frames(conn: sqlite3.Connection, directory: Path) -> int:
    journal = Journal(directory / "journal", sync=False)
    count = 0
    try:
        for channel, seq, claim, segment, offset, length in conn.execute(
            "SELECT channel, seq, claim, segment, offset, length FROM frame"
        ):
            journal.read(channel, claim, seq, Location(segment=segment, offset=offset, length=length))
            count += 1
    except FrameDamaged as error:
        raise BackupError(f"{error}; what is damaged can be forgotten with `lakeshore jobs prune`") from error
    finally:
        journal.close()
    return count


def _check_payloads(conn: sqlite3.Connection, directory: Path) -> int:
    blobs = Blobs(directory / "blobs")
    count = 0
    for key, size, sha256 in _payloads(conn):
        digest = hashlib.sha256()
        try:
            with blobs.path(key).open("rb") as file:
                while data := file.read(_READ_AT_ONCE):
                    digest.update(data)
                found = file.tell()
        except FileNotFoundError:
            raise BackupError(f"the payload {key} is missing") from None
        if found != size or (sha256 is not None and digest.hexdigest() != sha256):
            raise BackupError(f"the payload {key} is not what its row says; its invocation can be pruned or retried")
        count += 1
    return count


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _payloads(conn: sqlite3.Connection) -> Iterator[tuple[str, int, str | None]]:
    yield from conn.execute("SELECT blob, size, sha256 FROM args WHERE blob IS NOT NULL")
    yield from conn.execute("SELECT blob, size, sha256 FROM result WHERE blob IS NOT NULL")


# --- around it


def _must_be_state(state: Path) -> None:
    if not (state / _PLANE).is_file():
        raise BackupError(f"{state} holds no {_PLANE}; name the state directory of your server with --state-dir")
    versions = (
        (_PLANE, database.SCHEMA_VERSION),
        (_EXECS, execs.SCHEMA_VERSION),
        (_RECORDS, store.SCHEMA_VERSION),
    )
    for name, known in versions:
        if not (state / name).exists():
            continue
        with _explained(f"cannot read {state}"), _opened(state / name) as conn:
            (found,) = conn.execute("PRAGMA user_version").fetchone()
        if found > known:
            raise BackupError(f"{name} was written by a newer Lakeshore (schema {found}, this one knows {known})")


@contextlib.contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A directory beside the target, which becomes the target at the end, or goes."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(f"{target} exists already; name a place that does not")
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _explained(f"cannot write {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir(mode=0o700)
        try:
            yield partial
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _sync(target.parent)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise BackupError(f"{what}: {error}") from error
    except OSError as error:
        raise BackupError(f"{what}: {error.strerror or error} ({error.filename})") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(database.connect_reader(str(path))) as conn:
        yield conn


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
