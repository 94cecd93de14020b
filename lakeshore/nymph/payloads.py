"""Arguments and results that are too large for a call: they travel beside it, by URLs that the server signs.

    fetch    POST …/payloads/presign {op: get, key}, GET the URL into a file; what was stored arrives, or nothing
    store    POST …/payloads/presign {op: put, size, sha256}, PUT; the reference goes where the bytes would have gone

Rules: 256 KiB go inline, 100 MiB is the most there is. A download has 60 s. A server that is away is asked again while
that lasts; an upload, whose work is done, is asked for until it is taken or refused. A URL of another server gets no
credential of ours. Reference: get-started/payloads; nymph/protocol; N-165…N-169, K-20.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import trio

from lakeshore.net.backoff import full_jitter
from lakeshore.net.errors import NetError
from lakeshore.wire.messages import INLINE_THRESHOLD_BYTES, MAX_PAYLOAD_BYTES

from .execs import PayloadError
from .transport import Transport, TransportError

FETCH_S: Final = 60.0
_SLACK_S: Final = 30.0
_BYTES_PER_S: Final = 1_000_000
"""A line that is slower than that is none."""
PASSING: Final = frozenset({None, 408, 425, 429, 500, 502, 503, 504, 507})
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Payloads:
    """Over one daemon's line to its server, in its namespace."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def _presign(self) -> str:
        return f"/v1/namespaces/{quote(self._transport.namespace, safe='')}/payloads/presign"

    async def fetch(self, ref: Mapping[str, Any], target: Path) -> None:
        """Download into a new file. PayloadError; then there is no file."""
        size = ref.get("size")
        if not isinstance(ref.get("key"), str):
            raise PayloadError("payload_ref names no key")
        if isinstance(size, int) and size > MAX_PAYLOAD_BYTES:
            raise PayloadError(f"a payload of {size} bytes: the limit is {MAX_PAYLOAD_BYTES} (100 MiB)")
        last: TransportError | None = None
        with trio.move_on_after(FETCH_S):
            waits = full_jitter(random.random, base=0.1, cap=5.0)
            while True:
                try:
                    await self._download(ref, target)
                except (TransportError, NetError) as error:
                    last = error if isinstance(error, TransportError) else TransportError(None, str(error))
                    if last.status not in PASSING:
                        raise PayloadError(f"the payload cannot be had: {last}") from error
                    await trio.sleep(next(waits))
                else:
                    return
        raise PayloadError(f"the payload did not arrive within {FETCH_S:g} s" + (f": {last}" if last else ""))

    async def store(self, source: Path | bytes, job_id: str, kind: str) -> dict[str, Any]:
        """Upload; the reference {key, size, sha256}. PayloadError when the server will not have it."""
        data = source if isinstance(source, bytes) else await trio.to_thread.run_sync(source.read_bytes)
        if len(data) > MAX_PAYLOAD_BYTES:
            raise PayloadError(f"a {kind} of {len(data)} bytes: the limit is {MAX_PAYLOAD_BYTES} (100 MiB)")
        digest = (await trio.to_thread.run_sync(hashlib.sha256, data)).hexdigest()
        asked = {"op": "put", "size": len(data), "jobId": job_id, "kind": kind, "sha256": digest}
        waits = full_jitter(random.random, base=0.1, cap=5.0)
        while True:
            try:
                signed = await self._transport.post(self._presign, asked)
                timeout_s = len(data) / _BYTES_PER_S + _SLACK_S
                await self._transport.put_bytes(str(signed["url"]), data, timeout_s=timeout_s)
            except TransportError as error:
                if error.status not in PASSING:
                    raise PayloadError(f"the {kind} was not taken: {error}") from error
                await trio.sleep(next(waits))
            else:
                return {"key": signed["key"], "size": len(data), "sha256": digest}

    async def beside(self, ending: Mapping[str, Any], job_id: str) -> dict[str, Any]:
        """The ending of a job, a result that is too large for its ack replaced by where it is; a failure when it is
        not taken.
        """
        told = dict(ending)
        if len(told.get("result_blob") or b"") <= INLINE_THRESHOLD_BYTES or told.get("state") != "succeeded":
            return told
        try:
            told["result_ref"] = await self.store(told.pop("result_blob"), job_id, "result")
        except PayloadError as error:
            told |= {"state": "failed", "error": {"type": "PayloadError", "message": str(error)}}
            told.pop("last_seq", None)
        return told

    async def _download(self, ref: Mapping[str, Any], target: Path) -> None:
        url = ref.get("url")
        if not isinstance(url, str):
            asked = {"op": "get", "key": ref["key"]}
            url = str((await self._transport.post(self._presign, asked, timeout_s=FETCH_S))["url"])
        digest, size = hashlib.sha256(), 0
        with _whole_or_none(target) as file:
            async with self._transport.streamed(url, timeout_s=FETCH_S) as answer:
                async for piece in answer:
                    size += len(piece)
                    if size > MAX_PAYLOAD_BYTES:
                        raise PayloadError(f"a payload of more than {MAX_PAYLOAD_BYTES} bytes (100 MiB)")
                    digest.update(piece)
                    file.write(piece)
            _check(ref, size, digest.hexdigest())


@contextmanager
def _whole_or_none(target: Path) -> Iterator[BinaryIO]:
    """A new file, that is gone again unless the block ends well."""
    with open(os.open(target, _NEW, 0o600), "wb") as file:
        try:
            yield file
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def _check(ref: Mapping[str, Any], size: int, digest: str) -> None:
    wanted = ref.get("sha256")
    if wanted is not None and str(wanted).lower() != digest:
        raise PayloadError(f"payload corrupt: sha256 mismatch (expected {wanted}, got {digest})")
    if isinstance(ref.get("size"), int) and ref["size"] != size:
        raise PayloadError(f"payload corrupt: {size} bytes came, {ref['size']} were stored")
