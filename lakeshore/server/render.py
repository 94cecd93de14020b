"""Answers in the encoding of their request.

msgpack carries bytes as they are. JSON carries them as base64; numbers that JSON has no word for are null. Times in
rows are ISO 8601 in UTC with milliseconds, in both. A request without a body is answered in what it accepts, else JSON.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, overload

import msgpack

from ..wire.messages import JSON, MSGPACK
from .http import HttpError, Request, Response

HeaderList = tuple[tuple[str, str], ...]

_MSGPACK_NAMES: Final = frozenset({"application/x-msgpack", "application/msgpack", "application/vnd.msgpack"})
_MSGPACK_HEADERS: Final = (("content-type", MSGPACK),)
_JSON_HEADERS: Final = (("content-type", JSON),)
_known: dict[bytes, str | None] = {b"application/x-msgpack": MSGPACK, b"application/json": JSON}
_packer = msgpack.Packer(autoreset=True)
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_WORDS: Final = frozenset({str})
_PLAIN: Final = frozenset({str, int, bool, type(None)})


def content_encoding(header: bytes) -> str | None:
    """MSGPACK or JSON by a Content-Type; None for anything else."""
    try:
        return _known[header]
    except KeyError:
        pass
    name = header.split(b";", 1)[0].strip().lower().decode("latin-1")
    found = None
    if name in _MSGPACK_NAMES:
        found = MSGPACK
    elif name == JSON or (name.startswith("application/") and name.endswith("+json")):
        found = JSON
    if len(_known) < 64:
        _known[header] = found
    return found


def answer_encoding(request: Request | None) -> str:
    """What the answer to a request is written in."""
    if request is None:
        return JSON
    header = request.headers.get(b"content-type")
    if header is not None:
        found = content_encoding(header)
        if found is not None:
            return found
    accept = request.headers.get(b"accept")
    if accept is not None and b"msgpack" in accept.lower():
        return MSGPACK
    return JSON


def answer(request: Request, value: Any, status: int = 200, headers: HeaderList = ()) -> Response:
    """A whole answer."""
    if answer_encoding(request) is MSGPACK:
        return Response(status=status, headers=_MSGPACK_HEADERS + headers, body=_packer.pack(value))
    return Response(status=status, headers=_JSON_HEADERS + headers, body=as_json(value))


def refusal(request: Request | None, error: HttpError) -> Response:
    """An error's answer."""
    headers = error.headers
    if request is not None and error.status == 401:
        headers = (*headers, ("www-authenticate", "Bearer"))
    body = error.as_body()
    if answer_encoding(request) is MSGPACK:
        return Response(status=error.status, headers=_MSGPACK_HEADERS + headers, body=msgpack.packb(body, default=str))
    return Response(status=error.status, headers=_JSON_HEADERS + headers, body=as_json(body))


def as_json(value: Any) -> bytes:
    """JSON text of any value that msgpack can carry."""
    return _json.encode(value if _is_plain_row(value) else plain(value)).encode("utf-8", "replace")


def _is_plain_row(value: Any) -> bool:
    """Whether it is a map of words, whole numbers and truth values, as most answers are: JSON's own already."""
    return type(value) is dict and {*map(type, value)} <= _WORDS and {*map(type, value.values())} <= _PLAIN


def plain(value: Any) -> Any:
    """A value of JSON's own types, with null for a number that not every reader of it has."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {_key(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, msgpack.ExtType):
        return base64.b64encode(value.data).decode("ascii")
    return str(value)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    return base64.b64encode(key).decode("ascii") if isinstance(key, bytes) else str(key)


@overload
def iso(seconds: float) -> str: ...
@overload
def iso(seconds: float | None) -> str | None: ...
def iso(seconds: float | None) -> str | None:
    """Unix seconds as ISO 8601 in UTC, with milliseconds."""
    if seconds is None:
        return None
    text = datetime.fromtimestamp(round(seconds, 3), UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
