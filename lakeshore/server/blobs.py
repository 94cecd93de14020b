"""Payloads in files: their keys, their signed URLs, and writing them once.

A key is `payloads/<namespace>/<YYYY>/<MM>/<DD>/<job>/<kind>[.<sha256…16>]`, made here; the part of the digest is there
when whoever asked named it, so that a second attempt's other result is another file. A URL is signed over method, key,
size, sha256, type and expiry with a key derived from the secrets key: it is the credential of that one transfer, and
neither namespace nor root can be left by it. A blob is created and never replaced: the same content again is fine,
other content is a conflict.
Reference: get-started/payloads; S-252…S-261, S-771.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import trio

from ..plane.blobs import Blobs, start_writing
from ..plane.contract import INLINE_BYTES, BlobRef, Payload, SyncFailed
from ..wire.messages import INLINE_THRESHOLD_BYTES, MAX_PAYLOAD_BYTES
from .http import HttpError
from .http.messages import BodyChunks

URL_TTL_S: Final = 900.0
BUCKET: Final = "local"
_PREFIX: Final = "payloads/"
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_WRITE_AT_ONCE: Final = 2 * 1024 * 1024
_PIECES_AT_ONCE: Final = 4096
"""A million pieces of two bytes would take seventy times their size."""
_REMEMBERED: Final = 1024
_NEW_S: Final = 10.0
_MOST_FRESH: Final = 4 * 1024 * 1024
_MOST_SPENT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What an operator may set: up to how many bytes a stored payload leaves inside an answer, how many one may have,
    and for how many seconds a URL is good (S-698…S-700).
    """

    inline_bytes: int = INLINE_THRESHOLD_BYTES
    most_bytes: int = MAX_PAYLOAD_BYTES
    url_ttl_s: float = URL_TTL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a signed URL allows: one method on one key until `expires` (Unix seconds)."""

    method: str
    key: str
    expires: int
    size: int | None = None
    sha256: str | None = None
    content_type: str | None = None

    def query(self) -> dict[str, str]:
        """The fields that travel in the query, without the signature."""
        fields: dict[str, str] = {"op": "put" if self.method == "PUT" else "get", "expires": str(self.expires)}
        if self.size is not None:
            fields["size"] = str(self.size)
        if self.sha256 is not None:
            fields["sha256"] = self.sha256
        if self.content_type is not None:
            fields["type"] = self.content_type
        return fields


class BlobStore:
    """The blob directory of a plane, for payloads that travel beside a call."""

    def __init__(
        self, blobs: Blobs, key: bytes, *, sizes: Sizes | None = None, now: Callable[[], float] = time.time
    ) -> None:
        assert blobs.root is not None, "a server's plane is on disk"
        self.blobs = blobs
        self.sizes = sizes or Sizes()
        self.root: Path = blobs.root
        self._key = key
        self._now = now
        self._parts = 0
        self._written: dict[str, tuple[int, str, float]] = {}
        self._fresh: dict[str, bytes] = {}
        self._fresh_bytes = 0
        self._spent: deque[str] = deque(maxlen=_MOST_SPENT)

    # --- keys

    def new_key(self, ns: str, job_id: str, kind: str, sha256: str | None) -> str:
        """The key of an upload. HttpError 422 for a name that cannot be in a key."""
        for field, value in (("jobId", job_id), ("kind", kind)):
            if not _SEGMENT.fullmatch(value):
                raise HttpError(422, f"{field}: use 1 to 100 letters, digits, '.', '_' and '-'", field=field)
        day = datetime.fromtimestamp(self._now(), UTC).strftime("%Y/%m/%d")
        return _by_digest(f"{_PREFIX}{ns}/{day}/{job_id}/{kind}", sha256)

    def check_key(self, ns: str, key: str, field: str) -> Path:
        """The file of a key of this namespace. HttpError 403 for another's, 422 for what is no key."""
        if not key.startswith(f"{_PREFIX}{ns}/"):
            status = 403 if key.startswith(_PREFIX) else 422
            raise HttpError(status, f"{field}: the key must begin with {_PREFIX}{ns}/", field=field)
        try:
            return self.blobs.path(key)
        except ValueError as error:
            raise HttpError(422, f"{field}: not a payload key", field=field) from error

    def check_size(self, size: int) -> None:
        """HttpError 413 for a payload over the cap."""
        if size > self.sizes.most_bytes:
            raise _too_large(size, self.sizes.most_bytes)

    # --- signed URLs

    def sign(
        self,
        method: str,
        key: str,
        *,
        size: int | None = None,
        sha256: str | None = None,
        content_type: str | None = None,
    ) -> tuple[str, int]:
        """A relative URL and when it ends (Unix seconds)."""
        grant = Grant(
            method=method,
            key=key,
            expires=int(self._now() + self.sizes.url_ttl_s),
            size=size,
            sha256=sha256,
            content_type=content_type,
        )
        query = urlencode({**grant.query(), "sig": self._signature(grant)})
        return f"/v1/blobs/{quote(key)}?{query}", grant.expires

    def verify(self, method: str, key: str, query: dict[str, str]) -> Grant:
        """What a URL allows. HttpError 403."""
        try:
            grant = Grant(
                method=method,
                key=key,
                expires=int(query.get("expires", "")),
                size=int(query["size"]) if "size" in query else None,
                sha256=query.get("sha256"),
                content_type=query.get("type"),
            )
        except ValueError as error:
            raise HttpError(403, "bad signature", hint="ask for a URL: payloads/presign") from error
        given = query.get("sig", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._signature(grant).encode()):
            raise HttpError(403, "bad signature", hint="ask for a URL: payloads/presign")
        if grant.expires < self._now():
            raise HttpError(403, "the URL has expired", hint="ask for a new one: payloads/presign")
        return grant

    def _signature(self, grant: Grant) -> str:
        fields = grant.query()
        text = "\n".join((grant.method, grant.key, *(f"{name}={fields[name]}" for name in sorted(fields))))
        return hmac.digest(self._key, text.encode(), "sha256").hex()

    # --- files

    async def receive(self, grant: Grant, chunks: BodyChunks, *, by_content: bool = False) -> tuple[BlobRef, bool]:
        """Write an upload; its reference, and whether it is new. HttpError 409, 413, 422, 507.

        `by_content`: its digest is added to the key, as to that of an upload whose digest was named before.
        """
        path = self.blobs.path(grant.key)
        self._parts += 1
        upload = _Upload(self.blobs, path.with_name(f".{path.name[:100]}.{os.getpid()}.{self._parts}.upload"))
        pending: list[bytes] = []
        size = held = 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if grant.size is not None and size > grant.size:
                    raise HttpError(422, f"size: {grant.size} bytes were announced, more came", field="size")
                pending.append(chunk)
                held += len(chunk)
                if held >= _WRITE_AT_ONCE or len(pending) == _PIECES_AT_ONCE:
                    if len(pending) == _PIECES_AT_ONCE:
                        pending = [b"".join(pending)]
                    await trio.to_thread.run_sync(upload.add, pending)
                    pending, held = [], 0
            if grant.size is not None and size != grant.size:
                raise HttpError(422, f"size: {grant.size} bytes were announced, {size} came", field="size")
            with trio.CancelScope(shield=True):
                ref, new, data = await trio.to_thread.run_sync(self._finish, upload, pending, grant, by_content)
        except OSError as error:
            raise _not_stored(error) from error
        finally:
            upload.close()
        if new and data is not None:
            self._hand_over(ref.key, data)
        return ref, new

    def _finish(
        self, upload: _Upload, pending: list[bytes], grant: Grant, by_content: bool
    ) -> tuple[BlobRef, bool, bytes | None]:
        """All of it is here: write what is left, check it, and give it its name; its bytes, unless a part of them has
        been written before. In a thread.
        """
        self._reuse_pages()
        whole = upload.size == 0
        upload.add(pending)
        data = b"".join(pending) if whole else None  # the disk is still busy with it
        sha256 = upload.digest.hexdigest()
        if grant.sha256 is not None and sha256 != grant.sha256:
            raise HttpError(422, "sha256: the content has another digest than was announced", field="sha256")
        upload.sync()
        key = _by_digest(grant.key, sha256 if by_content else None)
        new = self._publish(upload.partial, key, upload.size, sha256)
        if new is None:
            raise HttpError(409, "the key holds other content already", field="key", hint="presign another upload")
        if new:
            self._remember(key, upload.size, sha256)
        return BlobRef(key=key, size=upload.size, sha256=sha256), new, data

    def _publish(self, partial: Path, key: str, size: int, sha256: str) -> bool | None:
        """True when the name is new, False when it holds the same already, None when it holds something else."""
        new, path = True, self.blobs.path(key)
        try:
            os.link(partial, path)
        except FileExistsError:
            if _measure(path) != (size, sha256):
                return None
            new = False
        self.blobs.keep_name(key)
        return new

    def _remember(self, key: str, size: int, sha256: str) -> None:
        """What was written here a moment ago is not read again to be named; later, and a second time, it is."""
        if len(self._written) >= _REMEMBERED:
            self._written.clear()
        self._written[key] = (size, sha256, time.monotonic())

    async def keep(self, ns: str, invocation_id: str, kind: str, data: bytes) -> Payload:
        """`data` itself when it is small, else the reference of the file that now holds it. HttpError 413, 507."""
        if len(data) < INLINE_BYTES:
            return data
        self.check_size(len(data))
        ref = await trio.to_thread.run_sync(self._keep, ns, invocation_id, kind, data)
        self._hand_over(ref.key, data)
        return ref

    def _hand_over(self, key: str, data: bytes) -> None:
        """Whoever waits for what was stored a moment ago is given it from here, once; everybody else from its file."""
        if len(data) > _WRITE_AT_ONCE:
            return
        self._drop_fresh(key)
        self._fresh[key] = data
        self._fresh_bytes += len(data)
        while self._fresh_bytes > _MOST_FRESH:
            self._drop_fresh(next(iter(self._fresh)))

    def take_fresh(self, key: str) -> bytes | None:
        """A payload that was stored a moment ago and not asked for since."""
        data = self._drop_fresh(key)
        if data is not None:
            self._spent.append(key)
        return data

    def _drop_fresh(self, key: str) -> bytes | None:
        data = self._fresh.pop(key, None)
        if data is not None:
            self._fresh_bytes -= len(data)
        return data

    def _reuse_pages(self) -> None:
        """What was handed over from memory needs no cached file: its pages are what the next file is written into."""
        while self._spent:
            with contextlib.suppress(IndexError, OSError):  # another thread took it; or it is gone: this is advice
                self.blobs.uncache(self._spent.popleft())

    def _keep(self, ns: str, invocation_id: str, kind: str, data: bytes) -> BlobRef:
        self._reuse_pages()
        digest = hashlib.sha256(data).hexdigest()
        key = f"{_PREFIX}{ns}/inline/{digest[:2]}/x{invocation_id}.{digest[:16]}.{kind}"
        try:
            with contextlib.suppress(FileNotFoundError):
                if self._claim(key, self.blobs.path(key)) == (len(data), digest):
                    self.blobs.keep_name(key)
                    return BlobRef(key=key, size=len(data), sha256=digest)
            return self.blobs.put(key, data, digest)
        except OSError as error:
            raise _not_stored(error) from error

    async def check(self, ns: str, key: str, size: int, sha256: str | None, field: str) -> BlobRef:
        """A reference that a caller sent: its key is this namespace's, the blob is there and is what it says.

        HttpError 403, 413, 422.
        """
        path = self.check_key(ns, key, f"{field}.key")
        self.check_size(size)
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise HttpError(422, f"{field}.sha256: must be 64 hex digits", field=f"{field}.sha256")
        try:
            known = self._just_written(key)
            there, digest = await trio.to_thread.run_sync(self._claim, key, path) if known is None else known
        except FileNotFoundError:
            raise HttpError(
                422, f"{field}.key: no such payload", field=f"{field}.key", hint="upload it first"
            ) from None
        if there != size:
            raise HttpError(422, f"{field}.size: the payload has {there} bytes", field=f"{field}.size")
        if sha256 is not None and digest != sha256:
            raise HttpError(422, f"{field}.sha256: the payload has another digest", field=f"{field}.sha256")
        return BlobRef(key=key, size=size, sha256=digest)

    def _just_written(self, key: str) -> tuple[int, str] | None:
        """Size and digest of a blob that is too new to be collected: nothing needs to be asked of the disk."""
        written = self._written.get(key)
        if written is None or time.monotonic() - written[2] >= _NEW_S:
            return None
        self._written.pop(key, None)  # a thread may have taken it meanwhile
        return written[0], written[1]

    def _claim(self, key: str, path: Path) -> tuple[int, str]:
        """Size and digest of a blob that a row is about to name."""
        self.blobs.touch(key)
        written = self._written.pop(key, None)
        if written is None:
            return _measure(path)
        return written[0], written[1]


class _Upload:
    """A file that is being written, without its name yet. Its methods block, but for `close`."""

    __slots__ = ("_blobs", "_fd", "digest", "partial", "size")

    def __init__(self, blobs: Blobs, partial: Path) -> None:
        self._blobs = blobs
        self._fd = -1
        self.partial = partial
        self.digest = hashlib.sha256()
        self.size = 0

    def add(self, chunks: list[bytes]) -> None:
        """Write them, and hash them while the disk is busy."""
        if self._fd < 0:
            self._fd = self._blobs.create(self.partial)
        began = self.size
        for chunk in chunks:
            self.size += len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._fd, view) :]
        start_writing(self._fd, began, self.size - began)
        for chunk in chunks:
            self.digest.update(chunk)

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise SyncFailed(f"syncing a payload failed: {error}") from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                self.partial.unlink()


def _by_digest(key: str, sha256: str | None) -> str:
    return key if sha256 is None else f"{key}.{sha256[:16]}"


def _too_large(size: int, limit: int) -> HttpError:
    return HttpError(
        413,
        f"a payload of {size} bytes is over the limit of {limit} bytes ({limit / 2**20:g} MiB)",
        hint="put the data into a storage and pass its address",
        limit=limit,
    )


def _not_stored(error: OSError) -> HttpError:
    why = f"the payload could not be stored: {error.strerror or error}"
    return HttpError(507, why, hint="free some space on the server's disk, then send it again")


def valid_sha256(text: str) -> bool:
    """Whether it is a digest in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def _measure(path: Path) -> tuple[int, str]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_WRITE_AT_ONCE):
            digest.update(data)
        return file.tell(), digest.hexdigest()
