"""Archives of code that the control plane keeps itself: `code/<namespace>/<sha256>` of the state directory.

A file is named by its content and belongs to one namespace; it is on the disk before the row that names it, and goes
after it. It stays while a row does: the retention of payloads does not touch it. A row goes when its namespace does,
when somebody removes it, and, where the state is larger than --keep-bytes, when nobody has pushed, asked for or fetched
it for a week, the longest unused first. Nothing is ever unpacked here.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import trio

from ..archives.stamp import key_of, sha256_of
from ..plane.contract import SyncFailed
from ..plane.directories import make_directories, sync_directory
from ..plane.locks import files_lock
from .http import HttpError
from .http.messages import BodyChunks
from .records import CodeRepoRow, Records
from .records.commits import Statement

OWN: Final = ""
"""The storage of a row whose archive is here."""
GRACE_S: Final = 24 * 3600.0
"""A file that was written since is never taken for garbage."""
_WRITE_AT_ONCE: Final = 2 * 1024 * 1024
_PIECES_AT_ONCE: Final = 1024
"""Whoever sends a body byte by byte keeps no more of them waiting."""
log = logging.getLogger(__name__)


class CodeArchives:
    """Those of one server, whose state directory is `state`."""

    def __init__(self, records: Records, state: Path, *, now: Callable[[], float] = time.time) -> None:
        self._records = records
        self._state = state
        self._root = state / "code"
        self._now = now
        self._parts = 0
        for partial in self._root.glob("*/.*.upload"):  # of a server that was killed
            partial.unlink(missing_ok=True)

    def path(self, row: CodeRepoRow) -> Path | None:
        """The file of a row, None where its archive is in a storage."""
        sha256 = sha256_of(row.archive_key) if row.storage == OWN else None
        return None if sha256 is None else self._root / row.ns / sha256

    def find(self, ns: str, key: str) -> CodeRepoRow | None:
        """The row whose archive here has this key."""
        rows = self._records.code_repos.of(ns)
        return next((row for row in rows if row.storage == OWN and row.archive_key == key), None)

    def used(self, row: CodeRepoRow) -> bool:
        """Somebody needs it; whether its file is there."""
        path = self.path(row)
        if path is None:
            return True
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    async def receive(
        self,
        chunks: BodyChunks,
        *,
        ns: str,
        remote: str,
        commit: str,
        ref: str | None,
        sha256: str | None,
        notes: tuple[Statement, ...],
    ) -> tuple[CodeRepoRow, bool]:
        """Keep an upload as the archive of a commit; its row, and whether there was none before. HttpError 413, 422,
        507. Where the commit has an archive already, that one stays.
        """
        self._parts += 1
        home = self._root / ns
        partial = home / f".{os.getpid()}.{self._parts}.upload"
        repos = self._records.code_repos
        try:
            await trio.to_thread.run_sync(make_directories, home)
            with contextlib.closing(_Writing(partial)) as file:
                pending, held = [], 0
                async for chunk in chunks:
                    pending.append(chunk)
                    held += len(chunk)
                    if held >= _WRITE_AT_ONCE or len(pending) == _PIECES_AT_ONCE:
                        await trio.to_thread.run_sync(file.write, [b"".join(pending)])
                        pending, held = [], 0
                await trio.to_thread.run_sync(file.write, pending)
                found = file.digest.hexdigest()
                if file.size == 0:
                    raise HttpError(422, "the archive is empty", field="body", hint="send its bytes as the body")
                if sha256 not in (None, found):
                    raise HttpError(422, f"sha256: what came has {found}", field="sha256", hint="send it again")
                async with repos.turn:
                    there = repos.get(ns, remote, commit)
                    if there is not None and await trio.to_thread.run_sync(self.used, there):
                        return there, False
                    row = CodeRepoRow(
                        ns=ns,
                        id=self._records.new_id(),
                        remote=remote,
                        commit_hash=commit,
                        ref=ref,
                        archive_key=key_of(commit, found),
                        storage=OWN,
                        created_at=self._now(),
                    )
                    with trio.CancelScope(shield=True):
                        await trio.to_thread.run_sync(file.publish, home / found)
                    if there is not None:  # its file is lost
                        await repos.remove(there)
                    await repos.add(row, *notes)
                    return row, True
        except OSError as error:
            why = f"the archive could not be stored: {error.strerror or error}"
            raise HttpError(507, why, hint="free some space on the server's disk, then send it again") from error

    async def remove(self, row: CodeRepoRow, *notes: Statement) -> None:
        """Forget one; its file goes with the last row that names it."""
        async with self._records.code_repos.turn:
            await self._records.code_repos.remove(row, *notes)
            await trio.to_thread.run_sync(self._drop, row, self._named())

    def bytes(self) -> int:
        """What they take. Blocks."""
        return sum(size for _used, size, _path in self._found())

    async def sweep(self, _now: float) -> int:
        """Delete the files that no row names any more: of namespaces that are gone, and of a server that was killed."""
        async with self._records.code_repos.turn:
            await trio.to_thread.run_sync(self._drop_orphans, self._named(), self._now() - GRACE_S)
        return 0

    async def shrink(self, excess: int, before: float) -> int:
        """Forget those that nobody has used since `before`, the longest unused first, until `excess` bytes are free; so
        many bytes that gave.
        """
        gone = 0
        for path, size in await trio.to_thread.run_sync(self._unused, before):
            if gone >= excess:
                break
            rows = [row for row in self._records.code_repos.of(path.parent.name) if self.path(row) == path]
            for row in rows:
                await self.remove(row)
            if rows:
                log.info("forgot the archive of %s, which nobody used for a week", rows[0].commit_hash)
                gone += size
        return gone

    def _named(self) -> set[Path]:
        return {path for row in self._records.code_repos.all() if (path := self.path(row)) is not None}

    def _drop(self, row: CodeRepoRow, named: set[Path]) -> None:
        path = self.path(row)
        if path is None or path in named:
            return
        with files_lock(self._state) as mine:
            if mine:  # else somebody copies it: the sweep deletes it later
                path.unlink(missing_ok=True)

    def _drop_orphans(self, named: set[Path], before: float) -> None:
        with files_lock(self._state) as mine:
            for path in self._files() if mine else ():
                if path not in named and path.stat().st_mtime < before:  # who removes one has the lock, too
                    path.unlink(missing_ok=True)

    def _unused(self, before: float) -> list[tuple[Path, int]]:
        return [(path, size) for used, size, path in sorted(self._found()) if used < before]

    def _found(self) -> Iterator[tuple[float, int, Path]]:
        """When it was used, its bytes, and where it is; one that is removed meanwhile is none."""
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                yield status.st_mtime, status.st_size, path

    def _files(self) -> Iterator[Path]:
        return (path for path in self._root.glob("*/*") if not path.name.startswith("."))


class _Writing:
    """A file without its name yet; it goes unless it was published. Its methods block."""

    def __init__(self, partial: Path) -> None:
        self._partial = partial
        self._fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            self.digest.update(chunk)
            self.size += len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._fd, view) :]

    def publish(self, path: Path) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SyncFailed(f"syncing an archive failed: {error}") from error
        self._partial.replace(path)
        sync_directory(path.parent)

    def close(self) -> None:
        os.close(self._fd)
        with contextlib.suppress(OSError):
            self._partial.unlink()
