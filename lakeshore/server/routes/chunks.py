"""Frames of running invocations: result-chunk. Shapes: `wire/messages`, "Worker"; rules: CONTRACT K-23…K-26."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from ...plane.contract import Appended
from ...wire.errors import NameError_
from ...wire.messages import ChunkItem
from ...wire.names import check_invocation_id
from ..app import App
from ..auth import Caller
from ..dispatcher import Chunk
from ..http import HttpError, Request, Response
from ..refusals import as_result, refusal_of
from ..render import answer
from ..structure import bad_field, read_map, structure
from .daemon import check_binding

_MOST_ITEMS: Final = 10_000


async def result_chunk(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/result-chunk: one frame, or several in order."""
    body, encoding = await read_map(request)
    if "chunks" not in body:
        chunk = _chunk(caller, structure(body, ChunkItem, encoding))
        (done,) = await app.dispatcher.append_many([chunk])
        if isinstance(done, Exception):
            raise refusal_of(done)
        return answer(request, _appended(done))
    items = body["chunks"]
    if type(items) is not list:
        raise bad_field("chunks", "must be an array")
    if len(items) > _MOST_ITEMS:
        raise bad_field("chunks", f"must have at most {_MOST_ITEMS} items", status=413)
    results: list[dict[str, Any]] = [{}] * len(items)
    chunks: list[Chunk] = []
    places: list[int] = []
    for place, raw in enumerate(items):
        try:
            chunks.append(_chunk(caller, structure(raw, ChunkItem, encoding)))
            places.append(place)
        except (HttpError, NameError_) as error:
            results[place] = as_result(error)
    done_many = await app.dispatcher.append_many(chunks) if chunks else []
    for place, answered in zip(places, done_many, strict=True):
        if isinstance(answered, Appended):
            results[place] = {"status": 200, **_appended(answered)}
        else:
            results[place] = as_result(answered)
    return answer(request, {"chunks": results})


def _chunk(caller: Caller, item: ChunkItem) -> Chunk:
    check_invocation_id(item.invocation_id)
    if item.seq is not None and item.seq < 0:
        raise bad_field("seq", "must be 0 or more")
    if item.worker_id is not None:
        check_binding(caller, item.worker_id)
    if not is_frame(item.bytes):
        raise bad_field("bytes", "must be one frame: a msgpack array of 4")
    return Chunk(
        ns=caller.ns,
        id=item.invocation_id,
        data=item.bytes,
        seq=item.seq,
        claim=item.claim,
        worker=item.worker_id,
        final=item.final,
    )


def is_frame(data: bytes) -> bool:
    """Whether these bytes are one whole frame: in a stream nothing else tells where the next one begins."""
    if data[:1] != b"\x94":
        return False
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(data)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException):
        return False
    return int(unpacker.tell()) == len(data)


def _appended(done: Appended) -> dict[str, Any]:
    told: dict[str, Any] = {"ok": True, "seq": done.seq}
    if done.duplicate:
        told["duplicate"] = True
    return told
