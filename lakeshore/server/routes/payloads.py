"""Where large payloads go and come from. Reference: get-started/payloads, "The presign route".

Who has a bearer here needs no signed URL: `store` takes the bytes, in one exchange where presign and upload are two.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from ...wire.messages import PresignRequest
from ..app import App
from ..auth import Caller
from ..blobs import BUCKET, Grant, valid_sha256
from ..http import HttpError, Request, Response
from ..render import answer, iso
from ..shapes import printable
from ..structure import bad_field, read_map, structure
from .answers import RAW, BlobStored, Presigned
from .stated import route

_SPELLINGS = (("contentType", "content_type"), ("jobId", "job_id"))


class StoredFor(TypedDict, total=False):
    """Whose payload it is, and which of its payloads: parts of its key."""

    jobId: Annotated[str, printable(1, 100)]
    kind: Annotated[str, printable(1, 100)]


@route(Presigned, body=PresignRequest, refuses=(403, 404, 422))
async def presign(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/payloads/presign"""
    body, encoding = await read_map(request)
    for camel, snake in _SPELLINGS:
        if camel in body:
            body.setdefault(snake, body[camel])
    try:
        wanted = structure(body, PresignRequest, encoding)
    except HttpError as error:
        raise _as_spelled(error, body) from error
    if wanted.op == "get":
        if wanted.key is None:
            raise bad_field("key", "is required")
        path = app.blobs.check_key(caller.ns, wanted.key, "key")
        if not path.is_file():
            raise HttpError(404, "no such payload", field="key")
        key = wanted.key
        url, expires = app.blobs.sign("GET", key)
    elif wanted.op == "put":
        if wanted.size is None or wanted.size < 0:
            raise bad_field("size", "is required, in bytes")
        app.blobs.check_size(wanted.size)
        if wanted.sha256 is not None and not valid_sha256(wanted.sha256):
            raise bad_field("sha256", "must be 64 hex digits in lower case")
        if wanted.content_type is not None and not _is_header_value(wanted.content_type):
            raise bad_field("contentType", "must be a media type")
        key = app.blobs.new_key(caller.ns, wanted.job_id or app.ids.new(), wanted.kind, wanted.sha256)
        url, expires = app.blobs.sign(
            "PUT", key, size=wanted.size, sha256=wanted.sha256, content_type=wanted.content_type
        )
    else:
        raise bad_field("op", 'must be "put" or "get"')
    return answer(request, {"url": url, "bucket": BUCKET, "key": key, "expires_at": iso(expires)})


@route(BlobStored, body=RAW, query=StoredFor, refuses=(409, 413))
async def store(app: App, request: Request, caller: Caller, *, query: StoredFor) -> Response:
    """POST /v1/namespaces/:ns/payloads?jobId=&kind=: keep the bytes, under a key that ends in their digest."""
    size = request.content_length
    if size is not None:
        app.blobs.check_size(size)
    key = app.blobs.new_key(caller.ns, query.get("jobId") or app.ids.new(), query.get("kind", "args"), None)
    grant = Grant(method="PUT", key=key, expires=0, size=size)
    ref, _new = await app.blobs.receive(grant, request.stream(app.blobs.sizes.most_bytes), by_content=True)
    return answer(request, {"key": ref.key, "size": ref.size, "sha256": ref.sha256})


def _as_spelled(error: HttpError, body: dict[str, Any]) -> HttpError:
    """The refusal names the field as its caller wrote it."""
    for camel, snake in _SPELLINGS:
        if error.field == snake and camel in body:
            return bad_field(camel, error.error.removeprefix(f"{snake}: "))
    return error


def _is_header_value(text: str) -> bool:
    return 0 < len(text) <= 200 and text.isascii() and text.isprintable()
