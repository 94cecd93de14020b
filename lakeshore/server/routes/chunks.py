"""Frames of running invocations: result-chunk. Shapes: `wire/messages`, "Worker"; rules: CONTRACT K-23…K-26."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from ...plane.contract import Appended, PlaneError
from ...wire.errors import NameError_
from ...wire.messages import ChunkBatch, ChunkItem, ChunkRun
from ...wire.names import check_invocation_id
from ..app import App
from ..auth import Caller
from ..dispatcher import Chunk
from ..http import HttpError, Request, Response
from ..refusals import as_result, refusal_of
from ..render import answer
from ..structure import bad_field, read_map, structure
from .answers import ChunkAnswers
from .daemon import check_binding, check_claim
from .stated import route

_MOST_ITEMS: Final = 10_000
_ARRAY_OF_4: Final = 0x94


@route(ChunkAnswers, body=(ChunkItem, ChunkBatch, ChunkRun), refuses=(403, 404, 409, 422))
async def result_chunk(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/result-chunk: one frame, a run of one invocation's, or several of any."""
    body, encoding = await read_map(request)
    if "frames" in body:
        return await _run(app, request, caller, structure(body, ChunkRun, encoding))
    if "chunks" not in body:
        chunk = _chunk(app, caller, structure(body, ChunkItem, encoding))
        if chunk.claim is not None and chunk.seq is not None and not chunk.final:
            return await _store(app, request, chunk.ns, chunk.id, chunk.claim, chunk.seq, [chunk.data])
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
            chunks.append(_chunk(app, caller, structure(raw, ChunkItem, encoding)))
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


async def _run(app: App, request: Request, caller: Caller, item: ChunkRun) -> Response:
    check_invocation_id(item.invocation_id)
    check_claim(app, caller, item.invocation_id, item.claim)
    if item.seq < 0:
        raise bad_field("seq", "must be 0 or more")
    run = split(item.frames)
    if not run:
        raise bad_field("frames", "must be whole frames: msgpack arrays of 4, one after the other")
    if len(run) > _MOST_ITEMS:
        raise bad_field("frames", f"must be at most {_MOST_ITEMS} frames", status=413)
    return await _store(app, request, caller.ns, item.invocation_id, item.claim, item.seq, run)


async def _store(app: App, request: Request, ns: str, id_: str, claim: int, first: int, run: list[bytes]) -> Response:
    try:
        missing = await app.dispatcher.append_run(ns, id_, claim, first, run)
    except PlaneError as error:
        raise refusal_of(error) from error
    return answer(request, _appended(Appended(seq=first + len(run) - 1, duplicate=missing == 0)))


def _chunk(app: App, caller: Caller, item: ChunkItem) -> Chunk:
    check_invocation_id(item.invocation_id)
    if item.seq is not None and item.seq < 0:
        raise bad_field("seq", "must be 0 or more")
    if item.worker_id is not None:
        check_binding(caller, item.worker_id)
    check_claim(app, caller, item.invocation_id, item.claim)
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
    return len(split(data)) == 1


def split(data: bytes) -> list[bytes]:
    """The frames that were concatenated, byte for byte; none when these bytes are anything but whole frames."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(data)
    skip, tell = unpacker.skip, unpacker.tell
    frames = []
    at, size = 0, len(data)
    try:
        while at < size:
            if data[at] != _ARRAY_OF_4:
                return []
            skip()
            end = tell()
            frames.append(data[at:end])
            at = end
    except (ValueError, msgpack.UnpackException):
        return []
    return frames


def _appended(done: Appended) -> dict[str, Any]:
    told: dict[str, Any] = {"ok": True, "seq": done.seq}
    if done.duplicate:
        told["duplicate"] = True
    return told
