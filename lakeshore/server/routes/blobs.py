"""Uploads and downloads by signed URL: the signature is the credential of that one transfer.

What comes out is never a page of ours: an attachment, not sniffed, in a sandbox.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import trio

from ...wire.messages import OCTETS
from ..app import App
from ..http import HttpError, Request, Response, StreamResponse
from ..http.messages import HeaderList
from ..render import answer
from .answers import RAW, BlobStored
from .stated import route

log = logging.getLogger(__name__)

_PIECE: Final = 1024 * 1024
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")  # no file has a position of more digits
_SAFE: Final = (
    ("content-type", OCTETS),
    ("content-disposition", "attachment"),
    ("x-content-type-options", "nosniff"),
    ("content-security-policy", "sandbox"),
    ("accept-ranges", "bytes"),
    ("cache-control", "private, no-store"),
)


@route({200: BlobStored, 201: BlobStored}, body=RAW, refuses=(400, 403, 409, 413, 422))
async def put(app: App, request: Request) -> Response:
    """PUT /v1/blobs/<key>?<signature>: create it; the same content again is fine."""
    grant = app.blobs.verify("PUT", request.params["key"], request.query)
    announced = request.content_length
    if announced is not None and grant.size is not None and announced != grant.size:
        raise HttpError(422, f"size: {grant.size} bytes were announced, Content-Length is {announced}", field="size")
    limit = app.blobs.sizes.most_bytes if grant.size is None else grant.size + 1
    ref, new = await app.blobs.receive(grant, request.stream(limit))
    body = {"key": ref.key, "size": ref.size, "sha256": ref.sha256}
    return answer(request, body, status=201 if new else 200)


@route({200: RAW, 206: RAW}, refuses=(403, 404, 416))
async def get(app: App, request: Request) -> Response | StreamResponse:
    """GET /v1/blobs/<key>?<signature>: the whole blob, or one range of it."""
    grant = app.blobs.verify("GET", request.params["key"], request.query)
    if request.method == "GET" and request.header("range") is None:
        fresh = app.blobs.take_fresh(grant.key)
        if fresh is not None:
            return Response(headers=_described(grant.sha256), body=fresh)
    return await send_file(request, app.blobs.blobs.path(grant.key), "payload", size=grant.size, sha256=grant.sha256)


async def send_file(request: Request, path: Path, what: str, *, size: int | None, sha256: str | None) -> StreamResponse:
    """A file, or one range of it. `size` is what was stored. HttpError 404, 416."""
    try:
        fd = await trio.to_thread.run_sync(_open, path)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise HttpError(404, f"no such {what}", field="key") from error
    try:
        there = _size(fd, path, what, size)
        start, end, partial = _range(request.header("range"), there)
        headers = _described(sha256)
        if partial:
            headers = (*headers, ("content-range", f"bytes {start}-{end - 1}/{there}"))
        status = 206 if partial else 200
    except BaseException:
        os.close(fd)
        raise
    if request.method == "HEAD":
        os.close(fd)
        return StreamResponse(status=status, headers=headers, chunks=_pieces(-1, end, end), content_length=end - start)
    return StreamResponse(status=status, headers=headers, chunks=_pieces(fd, start, end), content_length=end - start)


def _described(sha256: str | None) -> HeaderList:
    return _SAFE if sha256 is None else (*_SAFE, ("etag", f'"{sha256}"'))


def _size(fd: int, path: Path, what: str, stored: int | None) -> int:
    size = os.fstat(fd).st_size
    if stored is not None and size != stored:
        log.error("%s is damaged: it has %d bytes, %d were stored", path, size, stored)
        raise HttpError(404, f"the {what} is damaged on the server's disk", hint="restore a backup", field="key")
    return size


def _range(header: str | None, size: int) -> tuple[int, int, bool]:
    """(start, end, whether it is a part). What is no single byte range means the whole (RFC 9110)."""
    match = None if header is None else _RANGE.fullmatch(header.strip())
    if match is None or match.group(0) == "bytes=-":
        return 0, size, False
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < int(first):
            return 0, size, False
    else:
        start, end = max(size - int(last), 0), size
    if start >= end:
        raise HttpError(416, "range not satisfiable", headers=(("content-range", f"bytes */{size}"),))
    return start, end, True


async def _pieces(fd: int, start: int, end: int) -> AsyncIterator[bytes]:
    try:
        while start < end:
            data = await trio.to_thread.run_sync(os.pread, fd, min(_PIECE, end - start), start)
            if not data:
                raise OSError("the file became shorter while it was read")
            start += len(data)
            yield data
    finally:
        if fd >= 0:
            os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
