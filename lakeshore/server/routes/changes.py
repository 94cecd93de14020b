"""What changed since a number: of a namespace, or for the operator of all of them.

A client asks without `since` for the number of now, lists what it shows, and then asks for what came after, again and
again: each answer has the number to go on from. A resource is told once an answer, as it is now, however often it
changed; one that is gone is told by its name. What `reset` names is to be listed anew: more changed than is remembered,
or the number is from before a restart, of another server, or above its present one.
Reference: admin/happy-paths/14-dashboard-observability, "The long-poll contract"; S-068…S-075, S-663, S-777.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

import trio

from ...plane import rows
from ..app import App
from ..auth import Caller
from ..changes import ALIKE, ALL, KINDS, Entry, Feed, News
from ..http import HttpError, Request, Response
from ..render import answer, answer_encoding
from ..shapes import one_of, waiting, whole
from ..waiting import Alike, Why
from . import exec_jobs, invocations, queues, workers
from .stated import route

_HOLD_S: Final = 30.0
_LONGEST_S: Final = 60.0
_LIMIT: Final = 100
_MOST: Final = 500
_BIG: Final = 2**53
_AT_ONCE: Final = 16
"""So many invocations are read where we are; more of them in the thread that reads pages."""
_SHOWN: Final = frozenset({"invocations", "queues", "workers", "exec"})
"""Kinds whose rows an answer carries; of the others it names what changed."""


class ChangesQuery(TypedDict, total=False):
    """What changed after `since`; without it the number to go on from."""

    since: Annotated[int, whole(0, _BIG)]
    hold_s: Annotated[float, waiting(_LONGEST_S)]
    kinds: list[Annotated[str, one_of(*KINDS)]]
    limit: Annotated[int, whole(1, _MOST)]
    rows: bool


class ChangesOfQuery(ChangesQuery, total=False):
    """Of every namespace (`*`), or of one."""

    namespace: str


class LongPollQuery(TypedDict, total=False):
    """What changed since `cursor`; `*` is every namespace."""

    cursor: Annotated[int, whole(0, _BIG)]
    timeout_s: Annotated[int, whole(0, 10**6)]
    limit: Annotated[int, whole(1, _MOST)]
    namespace: str


class Change(TypedDict):
    """A resource that changed, as it is now; no row where it is gone or was not asked for."""

    kind: str
    namespace: str
    id: str
    number: int
    gone: bool
    row: NotRequired[dict[str, Any]]


class Changes(TypedDict):
    """The oldest change first. `reset`: kinds that are to be listed anew."""

    cursor: int
    reset: list[str]
    more: bool
    changes: list[Change]


class LongPolled(TypedDict):
    """Newest submit first; `more`: it was cut, ask on with the cursor."""

    invocations: list[invocations.InvocationShown]
    cursor: int
    more: bool
    reset: NotRequired[bool]


@route(Changes, query=ChangesQuery)
async def of_namespace(app: App, request: Request, caller: Caller, *, query: ChangesQuery) -> Response:
    """GET /v1/namespaces/:ns/changes?since&hold_s&kinds&limit&rows: what changed after the number `since`.

    `{cursor, reset: [kind…], more, changes: [{kind, namespace, id, number, gone, row?}…]}`, the oldest change first.
    `hold_s` (30, at most 60): how long to wait for a change. `kinds`: only these, with commas. `more`: it was cut at
    `limit` (100, at most 500), ask on at once. `rows=false`: names without rows.
    """
    return await _changes(app, request, caller, caller.ns, query)


@route(Changes, query=ChangesOfQuery, refuses=(404,))
async def of_all(app: App, request: Request, caller: Caller, *, query: ChangesOfQuery) -> Response:
    """GET /v1/admin/changes?since&hold_s&kinds&limit&rows&namespace: the same of every namespace, or of one."""
    return await _changes(app, request, caller, query.get("namespace", ALL), query)


async def _changes(app: App, request: Request, caller: Caller, scope: str, query: ChangesQuery) -> Response:
    await request.body()  # unread, it would hide that the asker has gone
    hold_s, limit, with_rows = query.get("hold_s", _HOLD_S), query.get("limit", _LIMIT), query.get("rows", True)
    kinds = tuple(dict.fromkeys(query.get("kinds", ()))) or KINDS
    feed = await _feed(app, scope)
    if "since" not in query:
        told = {"cursor": app.changes.number, "reset": list(kinds), "more": False, "changes": []}
        return answer(request, told)
    since = query["since"]
    news = await _wait(app, request, caller, scope, feed, kinds, since, hold_s, limit)
    asked = (kinds, since, limit, with_rows, answer_encoding(request))
    return await _once(app, feed, asked, functools.partial(_told, app, request, news, with_rows))


@route(LongPolled, query=LongPollQuery, refuses=(404,))
async def invocations_of(app: App, request: Request, caller: Caller, *, query: LongPollQuery) -> Response:
    """GET /v1/admin/invocations?cursor&timeout_s&limit&namespace: a long poll over what changes, newest submit first.

    Without a cursor the newest rows; with one those that changed since, `more: true` when they were cut: ask on with
    the new cursor. A cursor that is above the current number, or from too long ago, gets the newest rows at once, and
    `reset: true`. `namespace`: `default`, or another one, or `*` for all.
    """
    await request.body()  # as above
    cursor, limit = query.get("cursor", 0), query.get("limit", _LIMIT)
    wait_s = min(float(query.get("timeout_s", _HOLD_S)), _LONGEST_S)
    scope = query.get("namespace", caller.ns)
    feed = await _feed(app, scope)
    news = News(cursor=app.changes.number, stale=("invocations",))
    if cursor:
        news = await _wait(app, request, caller, scope, feed, ("invocations",), cursor, wait_s, limit)
    asked = ("admin", cursor, limit, answer_encoding(request))
    return await _once(app, feed, asked, functools.partial(_listed, app, request, news, scope, limit, bool(cursor)))


async def _feed(app: App, scope: str) -> Feed:
    if scope != ALL and app.records.namespace(scope) is None:
        raise HttpError(404, f"unknown namespace {scope!r}", field="namespace", hint="`*` is all of them")
    return await app.changes.feed(scope)


async def _wait(
    app: App,
    request: Request,
    caller: Caller,
    scope: str,
    feed: Feed,
    kinds: tuple[str, ...],
    since: int,
    hold_s: float,
    limit: int,
) -> News:
    changes = app.changes
    if not feed.since(kinds, since, 1, changes.number).stale:
        until = trio.current_time() + hold_s
        while await feed.wait(request, kinds, since, until - trio.current_time()):
            _check(app, request, caller, scope)
            if feed.newest(kinds) > since or feed.is_over:
                break
    return feed.since(kinds, since, limit, changes.number)


def _check(app: App, request: Request, caller: Caller, scope: str) -> None:
    """While it waited, its token may have been revoked, or its namespace deleted. HttpError."""
    if "ns" not in request.params:
        app.gate.caller(request).need_admin()
        return
    app.gate.caller(request, caller.ns)
    if app.records.namespace(scope) is None:
        raise HttpError(404, f"unknown namespace {scope!r}", field="namespace", hint="it was deleted meanwhile")


async def _once(app: App, feed: Feed, asked: Any, make: Callable[[], Awaitable[Response]]) -> Response:
    """The answer to a question that many ask at the same number is made once."""
    made = feed.made
    if feed.made_at != app.changes.number or len(made) >= ALIKE:  # also where nothing changes here, elsewhere it does
        made.clear()
        feed.made_at = app.changes.number
    found: _Made | None = made.get(asked)
    if found is None:
        found = made[asked] = _Made()
        try:
            found.answer = await make()
        finally:
            found.done.set()
            if found.answer is None and made.get(asked) is found:
                del made[asked]
    else:
        await found.done.wait()
    return found.answer if found.answer is not None else await make()


class _Made:
    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.answer: Response | None = None
        self.done = trio.Event()


# --- what is told


async def _told(app: App, request: Request, news: News, with_rows: bool) -> Response:
    named: dict[tuple[str, str], list[Entry]] = {}
    for entry in news.entries:
        named.setdefault((entry.kind, entry.ns), []).append(entry)
    told: dict[tuple[str, str, str], dict[str, Any]] = {}
    for (kind, ns), entries in named.items():
        found: Mapping[int | str, Mapping[str, object]] = {}
        if kind in _SHOWN:
            found = await _rows(app, kind, ns, [entry.row for entry in entries], with_rows)
        for entry in entries:
            row = found.get(entry.row)
            if row is None and type(entry.row) is int:
                continue  # it was purged, and is told by its id
            id_ = str(row["id"] if row is not None and kind == "invocations" else entry.row)
            one = {"kind": kind, "namespace": ns, "id": id_, "number": entry.number}
            one["gone"] = row is None if kind in _SHOWN else entry.gone
            if row is not None and with_rows:
                one["row"] = row
            told[kind, ns, id_] = one
    body = {"cursor": news.cursor, "reset": list(news.stale), "more": news.more}
    return answer(request, {**body, "changes": sorted(told.values(), key=lambda one: int(one["number"]))})


async def _listed(app: App, request: Request, news: News, scope: str, limit: int, asked_since: bool) -> Response:
    whys: dict[Alike, Why] = {}
    if news.stale:
        names = [row.name for row in app.records.namespaces()] if scope == ALL else [scope]
        pages = [await app.pages.run(functools.partial(rows.page, ns=name, limit=limit)) for name in names]
        found = sorted((row for page in pages for row in page), key=_newest_first)[:limit]
    else:
        found = []
        for ns in {entry.ns for entry in news.entries}:
            found += await _read(app, ns, [entry.row for entry in news.entries if entry.ns == ns])
        found.sort(key=_newest_first)
    shown = [invocations.row_body(app, row, whys) for row in found]
    told: dict[str, Any] = {"invocations": shown, "cursor": news.cursor, "more": news.more}
    if news.stale and asked_since:
        told["reset"] = True
    return answer(request, told)


def _newest_first(row: Mapping[str, Any]) -> int:
    return -int(row["seq"])


async def _rows(
    app: App, kind: str, ns: str, names: list[int | str], whole: bool
) -> Mapping[int | str, Mapping[str, object]]:
    """The rows of these that there are, as lists show them; not `whole`: of invocations only what names them."""
    if kind == "invocations":
        whys: dict[Alike, Why] = {}
        found: dict[int | str, Mapping[str, object]] = {}
        for row in await _read(app, ns, names, rows.some if whole else rows.named):
            body = invocations.row_body(app, row, whys) if whole else row
            found[row["seq"]] = found[row["id"]] = body
        return found
    bodies = {"queues": queues.bodies, "workers": workers.bodies, "exec": exec_jobs.bodies}[kind]
    return dict(bodies(app, ns, [str(name) for name in names]).items())


async def _read(
    app: App, ns: str, names: Iterable[int | str], read: Callable[..., list[dict[str, Any]]] = rows.some
) -> list[dict[str, Any]]:
    seqs = [name for name in names if isinstance(name, int)]
    ids = [name for name in names if isinstance(name, str)]
    if len(seqs) + len(ids) <= _AT_ONCE:
        return read(app.dispatcher.rows, ns, seqs, ids)
    return await app.pages.run(functools.partial(read, ns=ns, seqs=seqs, ids=ids))
