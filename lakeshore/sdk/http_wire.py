"""The bodies of the producer and worker verbs, and what their answers mean: no I/O, for the blocking and async side.

Reference: api/function-protocol.md; `lakeshore.wire.messages` states the protocol.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgpack

from lakeshore import wire
from lakeshore.net.bearer import bearer
from lakeshore.net.errors import NetError, ProtocolViolation
from lakeshore.wire.messages import INLINE_THRESHOLD_BYTES, OCTETS, native_function

from . import outcomes
from .errors import DispatchError

CONTENT_TYPE = "application/x-msgpack"
FIXED = SUBMIT, DELAYED, AWAIT, POLL, ACK, CHUNK, LOG = (
    "/v1/producer/submit",
    "/v1/producer/submit/delayed",
    "/v1/producer/await",
    "/v1/daemon/poll",
    "/v1/daemon/ack",
    "/v1/daemon/result-chunk",
    "/v1/daemon/log-chunk",
)
TERMINAL = frozenset({"succeeded", "failed", "killed", "timeout"})


class Refusal(DispatchError):
    """The server said no: `status` and the decoded body."""

    def __init__(self, message: str, *, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.body = dict(body)


def headers(token: str | None, namespace: str) -> list[tuple[str, str]]:
    """What every request carries."""
    found = [("Content-Type", CONTENT_TYPE), ("Accept", CONTENT_TYPE), ("X-LS-Namespace", namespace)]
    if token:
        found.append(("Authorization", bearer(token)))
    return found


def raw_headers(token: str | None, namespace: str) -> list[tuple[str, str]]:
    """The same for a body of bytes as they are."""
    return [("Content-Type", OCTETS), *headers(token, namespace)[1:]]


def pack(body: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(body)
    return packed


def unpack(status: int, data: bytes, what: str) -> dict[str, Any]:
    """The answer's map. Raises Refusal for any status but 200, and for what no control plane answers."""
    try:
        body = msgpack.unpackb(data, strict_map_key=False) if data else {}
    except (ValueError, msgpack.UnpackException):
        body = None
    if status not in (200, 202) or not isinstance(body, dict):
        refuse(status, body if isinstance(body, dict) else {}, what)
    return body


def has_no_route(refusal: Refusal) -> bool:
    """Whether a server does not know what it was asked for: it is older."""
    return refusal.status in (404, 405) and refusal.body.get("field") is None


def refuse(status: int, body: Mapping[str, Any], what: str) -> NoReturn:
    """Raise what a refusal means, in words that say what to do."""
    said = str(body.get("error") or f"HTTP {status}, not in a control plane's words: is that its address?")
    field = f" (field {body['field']})" if body.get("field") else ""
    hint = f"; {body['hint']}" if body.get("hint") else ""
    if status == 401 and not hint:
        hint = "; set LAKESHORE_CLIENT_TOKEN, or pass token="
    raise Refusal(f"{what} was refused: {said}{field}{hint}", status=status, body=body)


def is_passing(error: DispatchError) -> bool:
    """Whether the same request may be taken later: the server is away, busy, or has no room (K-8)."""
    if isinstance(error, Refusal):
        return error.status in (429, 503, 507)
    return isinstance(error.__cause__, NetError) and not isinstance(error.__cause__, ProtocolViolation)


def holds(error: DispatchError) -> bool:
    """Whether a submit was refused by a queue that would rather hold it (K-19)."""
    return isinstance(error, Refusal) and error.status == 429 and error.body.get("on_full") == "block"


def travels_beside(size: int) -> bool:
    """Whether a payload goes through the blob store rather than inside the call."""
    return size > INLINE_THRESHOLD_BYTES


def submit_item(
    queue: str,
    args: Mapping[str, Any],
    *,
    id: str,
    key: str | None = None,
    priority: float = 0.0,
    parent: str | None = None,
    run_config: Mapping[str, Any] | None = None,
    retry_failed: str | None = None,
    delay: float | None = None,
    due: float | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """One submit; `args` is `{"args_blob": …}` or `{"args_ref": …}`."""
    config = {**(run_config or {}), "queue": queue, "priority": float(priority), "key": key}
    item: dict[str, Any] = {
        "invocation_id": id,
        "queue": queue,
        "function": native_function(name),
        **args,
        "run_config": config,
        "code_context": {},
    }
    if parent is not None:
        item["parent_invocation_id"] = parent
    if retry_failed is not None:
        item["retry_failed"] = retry_failed
    if delay is not None:
        item["delay_s"] = delay
    elif due is not None:
        item["due"] = due
    return item


def waits(item: Mapping[str, Any]) -> bool:
    """Whether a submit is for later. Such ones have a route of their own: a server that is older than they are has no
    such route, and so cannot take one for a submit that may run at once.
    """
    return "delay_s" in item or "due" in item


def too_old(exc: DispatchError) -> DispatchError:
    """What a refusal of that route means."""
    if isinstance(exc, Refusal) and has_no_route(exc):
        return DispatchError(
            "this control plane is older than delayed submits, and nothing was submitted: upgrade it, or submit "
            "without _delay and _at"
        )
    return exc


def was_cancelled(answer: Mapping[str, Any], again: bool) -> bool:
    """What a cancel did. Of one that may have been sent before, a killed invocation tells that it was done then."""
    return bool(answer["cancelled"]) or (again and answer.get("state") == "killed")


def value_or_raise(inv_id: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of a succeeded invocation. Raises the failure of any other end."""
    state = str(answer.get("state"))
    if state in ("unknown", "purged"):
        raise outcomes.not_there(inv_id, state)
    if state != "succeeded":
        raise outcomes.failure(inv_id, state, answer.get("error"))
    return answer


class Pieces:
    """(seq, frame) of what a stream brings, in the manner of `wire.ValueReader`."""

    def __init__(self, since: int) -> None:
        self.seq = since
        self.ended = False
        self._reader = wire.FrameReader()

    def resume(self) -> None:
        """Forget the part of a frame that has come."""
        self._reader = wire.FrameReader()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take bytes; iterate over the frames they complete."""
        for frame in self._reader.feed(data):
            self.seq = frame.seq
            yield frame.seq, frame.to_bytes()
            if frame.kind.terminal:
                self.ended = True
                return


def path(*parts: str, **query: Any) -> str:
    """A path of quoted segments with a query."""
    text = "/".join(urllib.parse.quote(part, safe="") for part in parts)
    asked = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
    return f"/{text}" + (f"?{asked}" if asked else "")
