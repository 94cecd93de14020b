"""The commits that calls were made in, brought to this host for their jobs.

A job has no credential, so its daemon fetches the archive that the call's Envelope names, once a host, and tells the
job where it is: its unpacked tree, or, where the job is another user's or runs elsewhere, the archive in the job's own
directory. Whether it is needed the job finds out (`sdk/code_mount.py`): an archive that cannot be had fails no job that
does without, and is told to the one that does not.
Reference: docs/adr/0020-a-workers-own-code-comes-first.md.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import trio

from ..archives.errors import ArchiveError
from ..archives.shelf import Shelf, Shelved, shelf_directory
from ..archives.stamp import MARK, MAX_BYTES, Stamp, check_digest, read_stamp
from ..net.backoff import full_jitter
from ..net.errors import NetError
from ..wire import Envelope
from ..wire.errors import WireError
from .payloads import PASSING
from .runners.process import JobCode
from .transport import Transport, TransportError

FETCH_S: Final = 60.0
URL_S: Final = 900
AGAIN_S: Final = 30.0
"""An archive that could not be had is asked for again after that."""
_MOST_FAILED: Final = 256
log = logging.getLogger("nymph.code")


class Code:
    """Over one daemon's line to its server. LAKESHORE_CODE=off: nothing is fetched; the jobs are told of it, and of
    `first`, for whoever calls says something of their environment, too.
    """

    def __init__(self, transport: Transport, environ: Mapping[str, str]) -> None:
        self._transport = transport
        said = environ.get("LAKESHORE_CODE", "").strip().lower()
        self._rule = said if said in ("off", "first") else ""
        self._environ = environ
        self._shelf: Shelf | None = None
        self._turns: dict[str, trio.Lock] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    async def of(self, args: bytes | Path) -> JobCode | None:
        """For the call with this Envelope; None when it carries no stamp."""
        if isinstance(args, bytes) and MARK not in args:
            return None
        if self._rule == "off":
            return JobCode(rule=self._rule)
        try:
            stamp = await trio.to_thread.run_sync(_stamp_in, args)
            if stamp is None:
                return None
            found = await self._had(stamp)
        except (ArchiveError, OSError) as error:
            log.warning("the code of a call cannot be had: %s", error)
            return JobCode(error=str(error), rule=self._rule)
        return JobCode(tree=found.tree, archive=found.archive, rule=self._rule)

    async def _had(self, stamp: Stamp) -> Shelved:
        shelf = self._shelf = self._shelf or Shelf(shelf_directory(self._environ))
        found = await _find(shelf, stamp)
        if found is not None:
            return found
        turn = self._turns.setdefault(stamp.sha256, trio.Lock())
        try:
            async with turn:
                return await _find(shelf, stamp) or await self._fetched(shelf, stamp)
        finally:
            if turn.statistics().tasks_waiting == 0:
                self._turns.pop(stamp.sha256, None)

    async def _fetched(self, shelf: Shelf, stamp: Stamp) -> Shelved:
        until, why = self._failed.get(stamp.sha256, (0.0, ""))
        if trio.current_time() < until:
            raise ArchiveError(why)
        file = await trio.to_thread.run_sync(shelf.new_file)
        try:
            await self._download(stamp, file)
            found = await trio.to_thread.run_sync(lambda: shelf.put(stamp, file, keep=True))
        except ArchiveError as error:
            if len(self._failed) >= _MOST_FAILED:
                self._failed.clear()
            self._failed[stamp.sha256] = trio.current_time() + AGAIN_S, str(error)
            raise
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(shelf.drop, file)
        found.close()
        log.info("fetched the code of commit %s", stamp.commit[:12])
        return found

    async def _download(self, stamp: Stamp, file: Path) -> None:
        last = "the server did not answer"
        with trio.move_on_after(FETCH_S):
            waits = full_jitter(random.random, base=0.1, cap=5.0)
            while True:
                try:
                    sha256 = await self._streamed(stamp, file)
                except (TransportError, NetError) as error:
                    last = str(error)
                    if isinstance(error, TransportError) and error.status not in PASSING:
                        raise ArchiveError(last) from error
                    await trio.sleep(next(waits))
                else:
                    check_digest(stamp, sha256)
                    return
        raise ArchiveError(f"it did not arrive within {FETCH_S:g} s: {last}")

    async def _streamed(self, stamp: Stamp, file: Path) -> str:
        ns = quote(self._transport.namespace, safe="")
        most, size, digest = stamp.size or MAX_BYTES, 0, hashlib.sha256()
        url = f"/v1/namespaces/{ns}/code-archives/{quote(stamp.key)}"
        if stamp.storage is not None:
            asked = {"key": stamp.key, "operation": "get", "expiresIn": URL_S}
            place = f"/v1/namespaces/{ns}/storages/{quote(stamp.storage, safe='')}/presign"
            url = str((await self._transport.post(place, asked, timeout_s=FETCH_S))["url"])
        with file.open("wb") as into:
            async with self._transport.streamed(url, timeout_s=FETCH_S) as answer:
                async for piece in answer:
                    size += len(piece)
                    if size > most:
                        raise ArchiveError(f"more than its {most} bytes came")
                    digest.update(piece)
                    into.write(piece)
        return digest.hexdigest()


async def _find(shelf: Shelf, stamp: Stamp) -> Shelved | None:
    """With its archive: a worker of this account leaves its files alone on the same shelf."""
    found = await trio.to_thread.run_sync(shelf.find, stamp)
    if found is None:
        return None
    found.close()  # it was used now: that keeps it for longer than the job takes to begin
    return found if found.archive.exists() else None


def _stamp_in(args: bytes | Path) -> Stamp | None:
    if isinstance(args, Path):
        args = _marked(args)
    try:
        envelope = Envelope.from_bytes(args)
    except WireError:
        return None  # whoever runs it says so
    said: Any = envelope.cfg.get("code")
    return None if said is None or envelope.fn.get("kind") != "ref" else read_stamp(said)


def _marked(path: Path) -> bytes:
    """A file's bytes, if a stamp may be among them."""
    with path.open("rb") as file:
        if path.stat().st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                if mapped.find(MARK) >= 0:
                    return mapped[:]
    return b""
