"""What a handler sees and gives back: `Request`, `Response`, `StreamResponse`, `HttpError`. No I/O of its own.

A handler that waits for something to happen *parks*: ``why = await request.park(timeout_s)``. Whoever has news calls
``request.wake()``. Parking also ends when the client is gone, when the server drains, and at the timeout; the handler
looks at its own state whatever the reason, answers, and is done. A parked client that ended its side of the connection
counts as gone (a half-closed poll cannot be told from a closed one); its answer is still tried. Requests that are not
parked never look: a handler whose body is complete runs to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl

import trio

from lakeshore.server.http.peer import uid_of_peer
from lakeshore.wire.values import value

HeaderList = tuple[tuple[str, str], ...]
Woken = Literal["woken", "gone", "draining", "timeout"]

_LONG_S = 4.0  # from here on a parked request's time is kept by the sweeper
_MAX_QUERY_FIELDS = 200
_QUERY = "query"
"""The key of a head's query, taken apart, in its `memo`."""


class ClientGone(Exception):
    """The peer closed or reset the connection, so no answer can reach it. Let it pass through."""


class HttpError(Exception):
    """A refusal: `status` and ``{"error", "field"?, "hint"?, …extra}``, rendered in the request's encoding.

    Raised by handlers and by the server itself. `headers` go onto the answer (``Allow``, ``Retry-After``, …).
    """

    def __init__(
        self,
        status: int,
        error: str,
        field: str | None = None,
        hint: str | None = None,
        *,
        headers: HeaderList = (),
        **extra: Any,
    ) -> None:
        super().__init__(f"{status} {error}")
        self.status = status
        self.error = error
        self.field = field
        self.hint = hint
        self.headers = headers
        self.extra = extra

    def as_body(self) -> dict[str, Any]:
        """The map that is sent."""
        body: dict[str, Any] = {"error": self.error}
        if self.field is not None:
            body["field"] = self.field
        if self.hint is not None:
            body["hint"] = self.hint
        body.update(self.extra)
        return body


@value
class Response:
    """A whole answer. Framing headers (Content-Length, Connection, Date) are the server's: do not set them."""

    status: int = 200
    headers: HeaderList = ()
    body: bytes = b""
    close: bool = False
    """Close the connection after this answer."""


@value
class StreamResponse:
    """An answer sent piece by piece; the next piece is asked for when the last one is with the kernel.

    Without `content_length` it is chunked, and a client that went while `chunks` waits cancels it. With a length
    it must yield exactly that many bytes. `chunks` is closed (``aclose``) whatever happens.
    """

    status: int = 200
    headers: HeaderList = ()
    chunks: AsyncIterator[bytes]
    content_length: int | None = None


class Head:
    """What a head says; shared between requests, so nobody changes it but its `memo`.

    `content_length` is that of the request it was parsed from, and None for a chunked body. A request's own is
    `Request.content_length`: Content-Length is not among the `headers`.
    """

    __slots__ = (
        "close",
        "content_length",
        "expects_continue",
        "headers",
        "memo",
        "method",
        "path",
        "query_string",
        "target",
        "version",
    )

    method: str
    target: str
    path: str
    query_string: str
    version: str
    headers: Mapping[bytes, bytes]
    content_length: int | None
    expects_continue: bool
    close: bool
    memo: dict[Any, Any]


@dataclass(slots=True, kw_only=True)
class ConnectionInfo:
    """Where a request came from. One object per connection: what is learned once is kept."""

    listener: str
    """The name of the listener that accepted it."""
    peer: tuple[str, int] | None
    """The client's address and port; None on a socket without one."""
    local: tuple[str, int] | None
    tls: bool
    number: int
    """Counts up from 1 in this process: for logs."""
    admitted: Head | None = None
    """The last head that was let in because of where it came from: the same one again needs no second look."""
    _uid: int | None = None
    _uid_known: bool = False

    @property
    def peer_uid(self) -> int | None:
        """The user that owns the client's end (loopback on Linux); None when it cannot be known, so trust nothing."""
        if not self._uid_known:
            self._uid = uid_of_peer(peer=self.peer, local=self.local)
            self._uid_known = True
        return self._uid


class Channel(Protocol):
    """What a request needs of its connection."""

    @property
    def draining(self) -> bool: ...
    def watch(self, request: Request, seconds: float) -> None: ...
    def probe_gone(self) -> bool: ...


class BodySource(Protocol):
    """A request's body on its way in."""

    length: int | None
    """As announced; None for a chunked one."""

    async def read(self, limit: int) -> bytes: ...
    async def next_chunk(self, limit: int) -> bytes: ...


class BodyChunks:
    """``async for`` over a body as it arrives. A plain iterator: leaving the loop early needs no clean-up."""

    __slots__ = ("_body", "_limit")

    def __init__(self, body: BodySource, limit: int) -> None:
        self._body = body
        self._limit = limit

    def __aiter__(self) -> BodyChunks:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self._body.next_chunk(self._limit)
        if not chunk:
            raise StopAsyncIteration
        return chunk


class _Whole:
    """A body that was read before, by whoever checked its signature: still all of it is to come, in one piece."""

    __slots__ = ("_left", "length")

    def __init__(self, whole: bytes) -> None:
        self._left = whole
        self.length: int | None = len(whole)

    async def read(self, limit: int) -> bytes:
        return await self.next_chunk(limit)

    async def next_chunk(self, limit: int) -> bytes:
        if len(self._left) > limit:
            raise HttpError(413, "request body too large", hint=f"send at most {limit} bytes", limit=limit)
        left, self._left = self._left, b""
        return left


def _pairs_of(query: str) -> list[tuple[str, str]]:
    """Names and values, decoded. HttpError 400."""
    if not query:
        return []
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError as error:
        hint = f"percent-encode UTF-8, at most {_MAX_QUERY_FIELDS} fields"
        raise HttpError(400, "bad query string", hint=hint) from error


class Request:
    """One request. `path` and `target` are as sent (still percent-encoded); `params` are the router's, decoded."""

    __slots__ = (
        "_body",
        "_channel",
        "_gone",
        "_gone_event",
        "_parked",
        "_whole",
        "_woken",
        "connection",
        "head",
        "headers",
        "max_body",
        "method",
        "params",
        "path",
        "query_string",
        "route",
        "target",
    )

    def __init__(
        self, head: Head, body: BodySource, *, connection: ConnectionInfo, channel: Channel, max_body: int
    ) -> None:
        self.head = head
        """What was said before the body: one object for all requests that say the same."""
        self.method = head.method
        self.target = head.target
        self.path = head.path
        self.query_string = head.query_string
        self.headers = head.headers
        self.connection = connection
        self.max_body = max_body
        """What `body()` and `stream()` allow when not told otherwise: the router sets a route's own bound."""
        self.params: dict[str, str] = {}
        self.route = ""
        """The pattern that matched: bounded in number, so fit for a metric's label."""
        self._body = body
        self._channel = channel
        self._whole: bytes | None = None
        self._woken: Woken | None = None
        self._parked: trio.lowlevel.Task | None = None
        self._gone = False
        self._gone_event: trio.Event | None = None

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"  # no query: it may be signed

    def header(self, name: str) -> str | None:
        """A header by name, in any case; None when it is not there. A repeated one is joined by ", "."""
        value = self.headers.get(name.lower().encode("ascii"))
        return None if value is None else value.decode("latin-1")

    @property
    def content_length(self) -> int | None:
        """The announced length of the body, 0 without one, None for a chunked one."""
        return self._body.length

    @property
    def query(self) -> dict[str, str]:
        """The query, decoded; a repeated name gives its last value (`query_values` gives all). HttpError 400 if bad."""
        return dict(self._query_pairs())

    def query_values(self, name: str) -> list[str]:
        """Every value of a name, in order."""
        return [value for key, value in self._query_pairs() if key == name]

    def _query_pairs(self) -> list[tuple[str, str]]:
        pairs: list[tuple[str, str]] | None = self.head.memo.get(_QUERY)
        if pairs is None:
            pairs = self.head.memo[_QUERY] = _pairs_of(self.query_string)
        return pairs

    async def body(self, limit: int | None = None) -> bytes:
        """The whole body. HttpError 413 beyond `limit` (default `max_body`), 400 when malformed; ClientGone."""
        if self._whole is None:
            self._whole = await self._body.read(self.max_body if limit is None else limit)
        return self._whole

    def stream(self, limit: int | None = None) -> BodyChunks:
        """The body piece by piece, as it arrives; nothing more is read until the next piece is asked for."""
        source = self._body if self._whole is None else _Whole(self._whole)
        return BodyChunks(source, self.max_body if limit is None else limit)

    # --- parking -----------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether the server is on its way down: answer with what there is."""
        return self._channel.draining

    def is_gone(self) -> bool:
        """Ask the socket now (one system call): for whoever is about to hand this request something of value."""
        if not self._gone and self._channel.probe_gone():
            self.mark_gone()
        return self._gone

    async def park(self, timeout_s: float) -> Woken:
        """Wait until `wake`, a gone client, the drain or the timeout (seconds, a long one up to a second late).

        Loops may park again. The reasons do not exclude each other: look at what you wait for, whatever the answer.
        Only one task parks.
        """
        is_long = timeout_s >= _LONG_S
        self._channel.watch(self, timeout_s if is_long else inf)
        if self._woken is None:
            if self._gone:
                self._woken = "gone"
            elif self._channel.draining:
                self._woken = "draining"
        if self._woken is not None:
            await trio.lowlevel.checkpoint()
        else:
            assert self._parked is None, "one task parks a request"
            self._parked = trio.lowlevel.current_task()
            if is_long:  # the sweeper keeps the time: a scope with a deadline costs as much as all the rest here
                await trio.lowlevel.wait_task_rescheduled(self._abandon_park)
            else:
                with trio.move_on_after(timeout_s):
                    await trio.lowlevel.wait_task_rescheduled(self._abandon_park)
        why, self._woken = self._woken, None
        return why or "timeout"

    def _abandon_park(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self, why: Woken = "woken") -> None:
        """End the parking, or the next one. From the loop's own thread; any number of times; the first reason stays."""
        if self._woken is None:
            self._woken = why
        task, self._parked = self._parked, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def wait_gone(self) -> None:
        """Return once the client has gone: for a task beside the handler's."""
        self._channel.watch(self, inf)
        if self._gone_event is None:
            self._gone_event = trio.Event()
            if self._gone:
                self._gone_event.set()
        await self._gone_event.wait()

    def mark_gone(self) -> None:
        """For the connection: the client was seen to have gone."""
        self._gone = True
        if self._gone_event is not None:
            self._gone_event.set()
        self.wake("gone")


def sole_refusal(error: BaseException) -> HttpError | ClientGone | None:
    """The one refusal that a handler's own nursery wrapped into groups; None if there is anything else in there."""
    leaves = list(_leaves(error))
    for leaf in leaves:
        if not isinstance(leaf, (HttpError, ClientGone)):
            return None
    first = leaves[0]
    assert isinstance(first, (HttpError, ClientGone))
    return first


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
