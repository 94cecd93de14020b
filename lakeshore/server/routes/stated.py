"""How a route states itself: what it takes, what it answers, what it refuses with.

    @route(ModeShown, body=ModeChange, query=Revision, refuses=(404, 409))
    async def patch(app, request, caller, *, body: ModeChange, query: Revision) -> Response:

A body or a query that is a TypedDict is read here, by that class, before the handler begins, so what `openapi.py` and
the HTTP reference say of it is what is checked. The wire's dataclasses are only named: their handlers structure them
where it pays. Refusals that come of a route's tier, of its having a body, or of HTTP itself are not repeated by it.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from ..http import Request
from ..shapes import read_query, read_shape
from ..structure import read_map

Handler = Callable[..., Awaitable[Any]]

MEANINGS: Final = {
    200: "done",
    201: "made",
    202: "under way",
    206: "a part, as the Range asked",
    304: "unchanged, as the request's validator says",
    400: "the request or its body cannot be read, or a field is wrong",
    401: "no bearer token, or one that nobody minted",
    403: "the token may not do this, or it was revoked; or the URL's signature is wrong or has expired",
    404: "nothing of that name, or not for this caller",
    405: "the path has other methods; `Allow` names them",
    408: "the request stopped halfway",
    409: "it conflicts with what is: another call under this id, a stale claim, a gap, a name that is taken",
    410: "the worker was removed: it drains and ends, or says hello anew",
    411: "the length must be announced",
    413: "too large",
    414: "the request's target is too long",
    415: "neither msgpack nor JSON",
    416: "no such range",
    417: "`Expect` asks for what is not understood",
    422: "a field is wrong; `field` names it",
    429: "the queue is full, or too much waits; `Retry-After`",
    431: "the request's headers are too large",
    501: "a documented part that this version does not have, or a transfer coding",
    502: "the cloud or the store that was asked refuses, or does not answer; `awsCode` is its own word",
    503: "going down, or too many connections; nothing was done",
    507: "the server's disk is full; nothing was lost",
}
COMMON: Final = frozenset({400, 405, 408, 414, 417, 431, 501, 503})
"""What HTTP itself may answer, whichever route was meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A body that is no map: its media type."""

    type: str
    says: str = ""


class OneOf(tuple[Any, ...]):
    """An answer that is of one of these types, as its request was."""

    __slots__ = ()

    def __new__(cls, *types: Any) -> OneOf:
        return super().__new__(cls, types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a handler says of itself. `body` holds the alternatives, `answers` a type or a Media by status."""

    answers: Mapping[int, Any]
    body: tuple[Any, ...] = ()
    query: Any = None
    refuses: frozenset[int] = frozenset()
    optional: bool = False


UNSAID: Final = Stated(answers={200: dict[str, Any]})


def route(
    answers: Any,
    *,
    body: Any = (),
    query: Any = None,
    refuses: Iterable[int] = (),
    wrong: int = 422,
    apart: Mapping[str, int] = MappingProxyType({}),
    optional: bool = False,
    read: bool = True,
) -> Callable[[Handler], Handler]:
    """Decorator of a handler.

    `answers`: the type of a 200, or types by status. `body`: a TypedDict, or one of the wire's classes or a tuple of
    those. `refuses`: statuses of its own. `wrong`: the status of a field that is wrong, `apart` that of some.
    `optional`: no body will do. `read`: false where the handler reads a TypedDict's fields itself.
    """
    bodies = body if isinstance(body, tuple) else (body,)
    maps = [one for one in bodies if not isinstance(one, Media)]
    stated = Stated(
        answers=answers if isinstance(answers, Mapping) else {200: answers},
        body=bodies,
        query=query,
        refuses=frozenset(refuses) | ({wrong, *apart.values()} if maps or query is not None else set()),
        optional=optional,
    )
    shape = bodies[0] if read and len(bodies) == 1 and typing.is_typeddict(bodies[0]) else None

    def wrap(handler: Handler) -> Handler:
        async def reading(app: Any, request: Request, *caller: Any) -> Any:
            given = {}
            if query is not None:
                given["query"] = read_query(request, query, status=wrong, apart=apart)
            if shape is not None:
                sent, _encoding = await read_map(request, optional=optional)
                given["body"] = read_shape(sent, shape, status=wrong, apart=apart)
            return await handler(app, request, *caller, **given)

        made: Any = handler if query is None and shape is None else functools.wraps(handler)(reading)
        made.__stated__ = stated
        return typing.cast("Handler", made)

    return wrap


def stated_of(handler: Handler) -> Stated:
    """What was said of a handler."""
    found: Stated = getattr(handler, "__stated__", UNSAID)
    return found


def takes_map(stated: Stated) -> bool:
    """Whether its body is a map."""
    return any(not isinstance(one, Media) for one in stated.body)


def statuses(row: Any) -> frozenset[int]:
    """What a row of the table answers with, besides `COMMON`."""
    stated = stated_of(row.handler)
    found = {*stated.answers, *stated.refuses}
    if row.tier not in ("open", "signed"):
        found |= {401, 403}
    if row.tier in ("named", "plain"):
        found |= {404, 422}  # the namespace that the path or the header names
    if takes_map(stated):
        found |= {400, 413, 415}
    if row.method != "GET" and row.tier != "open":
        found |= {507}
    return frozenset(found)
