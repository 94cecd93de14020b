"""Nymph releases: the files that daemons update themselves to, by their content, in `releases/` of the state directory.

A file is named by its sha256 and never changed: the same content again is the same release, whose label, target and
version are then what was said last. The version is what the archive's own `lakeshore/_version.py` says, unless the
upload names one; the file is read, never run. Target is `any`: one file fits every platform.
What a version names: the newest release of that version, else the newest with that label.
Reference: cli/examples, "nymph push"; S-682…S-687, S-804, S-819.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import trio

from ..plane.contract import SyncFailed
from ..plane.directories import make_directories, sync_directory
from .http import HttpError
from .records import Records, ReleaseRow

MAX_BYTES: Final = 256 * 1024 * 1024
ANY_TARGET: Final = "any"
PATH: Final = "/v1/admin/nymph-releases"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_VERSION: Final = re.compile(rb'^__version__ = "([0-9][0-9A-Za-z.+-]{0,63})"', re.MULTILINE)
_WRITE_AT_ONCE: Final = 2 * 1024 * 1024
_PIECES_AT_ONCE: Final = 1024
"""Whoever sends a body byte by byte keeps no more of them waiting."""
_SOURCE_BYTES: Final = 64 * 1024


class Releases:
    """The releases of one server. `public_url` is the address under which others reach it, if that is known."""

    def __init__(
        self, records: Records, root: Path, *, public_url: str | None, now: Callable[[], float] = time.time
    ) -> None:
        self._records = records
        self._root = root
        self._public = public_url.rstrip("/") if public_url else None
        self._now = now
        self._parts = 0
        for partial in root.glob(".*.upload"):  # of a server that was killed
            partial.unlink(missing_ok=True)

    def all(self) -> list[ReleaseRow]:
        """Every release, newest first."""
        return self._records.releases.all()

    def find(self, named: str) -> ReleaseRow | None:
        """The release of this sha256, version or label."""
        known = self._records.releases.get(named)
        return known if known is not None else self._records.releases.newest(named)

    def path(self, row: ReleaseRow) -> Path:
        """Its file."""
        return self._root / row.sha256

    def url(self, row: ReleaseRow) -> str:
        """Where it is fetched from, below the server's address."""
        return f"{PATH}/{row.sha256}"

    def full_url(self, row: ReleaseRow) -> str | None:
        """The same, whole, where the server knows its own address (LAKESHORE_PUBLIC_URL)."""
        return None if self._public is None else self._public + self.url(row)

    async def receive(
        self,
        chunks: AsyncIterator[bytes],
        *,
        label: str,
        target: str,
        version: str | None,
        sha256: str | None,
        actor: str,
    ) -> tuple[ReleaseRow, bool]:
        """Keep an upload; the release, and whether its content is new. HttpError 413, 422, 507."""
        self._parts += 1
        partial = self._root / f".{os.getpid()}.{self._parts}.upload"
        digest, size, held = hashlib.sha256(), 0, 0
        pending: list[bytes] = []
        try:
            await trio.to_thread.run_sync(make_directories, self._root)
            with contextlib.closing(_Writing(partial)) as file:
                async for chunk in chunks:
                    pending.append(chunk)
                    size += len(chunk)
                    held += len(chunk)
                    if held >= _WRITE_AT_ONCE or len(pending) == _PIECES_AT_ONCE:
                        await trio.to_thread.run_sync(file.write, [b"".join(pending)], digest)
                        pending, held = [], 0
                await trio.to_thread.run_sync(file.write, pending, digest)
                found = digest.hexdigest()
                if size == 0:
                    raise HttpError(422, "the file is empty", field="body", hint="send its bytes as the body")
                if sha256 not in (None, found):
                    raise HttpError(422, f"sha256: what came has {found}", field="sha256", hint="send the file again")
                said = version or await trio.to_thread.run_sync(version_of, partial)
                is_new = self._records.releases.get(found) is None
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(file.publish, self._root / found)
        except OSError as error:
            why = f"the release could not be stored: {error.strerror or error}"
            raise HttpError(507, why, hint="free some space on the server's disk, then send it again") from error
        row = ReleaseRow(sha256=found, label=label, target=target, version=said, bytes=size, created_at=self._now())
        note = self._records.note(actor, "", "nymph_release.push", found)
        await self._records.releases.put(row, note)
        return row, is_new


class _Writing:
    """A file without its name yet; it goes unless it was published. Its methods block."""

    def __init__(self, partial: Path) -> None:
        self._partial = partial
        self._fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, chunks: list[bytes], digest: hashlib._Hash) -> None:
        for chunk in chunks:
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._fd, view) :]

    def publish(self, path: Path) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SyncFailed(f"syncing a release failed: {error}") from error
        self._partial.replace(path)
        sync_directory(path.parent)

    def close(self) -> None:
        os.close(self._fd)
        with contextlib.suppress(OSError):
            self._partial.unlink()


def version_of(path: Path) -> str | None:
    """The version that our own archive says it is; None for any other file."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("lakeshore/_version.py") as source:
            found = _VERSION.search(source.read(_SOURCE_BYTES))
    except (OSError, KeyError, ValueError, NotImplementedError, RuntimeError, EOFError, zipfile.BadZipFile):
        return None
    return None if found is None else found.group(1).decode()


def valid_sha256(text: str) -> bool:
    """Whether it is a digest in lower-case hex."""
    return _SHA256.fullmatch(text) is not None
