"""What changes at a control plane, as it changes: a long poll that goes on from the last number it was told.

`Watch` is for a loop of asyncio, `Follower` for one thread. Rules: the first news is to list everything (`reset`), so
list *after* it came; what follows are the resources that changed, each as it is now, at most ten times a second. A
server that is away is told once (`away`), and asked again with back-off until it is back; what was missed meanwhile
comes then, or a `reset`. A refusal (401, 403, 404) is raised: asking again would not help.
Reference: docs/guides/watching.md; S-068…S-075.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakeshore.net.aio import AsyncConnection
from lakeshore.net.backoff import full_jitter
from lakeshore.net.errors import NetError, ProtocolViolation
from lakeshore.net.target import parse_target

from .api import ApiClient, Query, headers_of, path_of, read_answer, with_query
from .errors import ApiError, NotLakeshore

HOLD_S: Final = 30.0
PATIENCE_S: Final = 15.0
"""An answer may come so much later than it should."""
LONGEST_WAIT_S: Final = 5.0
ALL: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One resource. `kind` is what its path says: `workers`, `queues`, `invocations`, `exec`, `modes`, …

    `row` is what the list of that kind shows of it; None for one that is gone, and for kinds whose rows are not sent
    (they change rarely: list them). The `id` of `events` is empty: there are newer ones.
    """

    kind: str
    namespace: str
    id: str
    gone: bool
    row: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """`reset`: kinds to list anew. `away`: why the server cannot be reached; nothing else is told then."""

    reset: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    away: str | None = None
    cursor: int = field(default=0, repr=False)

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind that is no longer as it was."""
        return frozenset(self.reset) | {change.kind for change in self.changes}


class Place:
    """Where a watcher is: what to ask next, and what an answer means. Pure."""

    def __init__(self, namespace: str, kinds: Iterable[str], *, rows: bool, limit: int) -> None:
        self.path = "/v1/admin/changes" if namespace == ALL else path_of(namespace, "changes")
        self._query: list[tuple[str, str | int | None]] = [("kinds", ",".join(kinds) or None), ("limit", limit)]
        if not rows:
            self._query.append(("rows", "false"))
        self.cursor: int | None = None

    def query(self, hold_s: float) -> Query:
        """Of the next question."""
        return [*self._query, ("since", self.cursor), ("hold_s", f"{hold_s:g}")]

    def take(self, answer: Any) -> News:
        """What an answer told. NotLakeshore for one that is none."""
        try:
            news = News(
                cursor=int(answer["cursor"]),
                reset=tuple(map(str, answer["reset"])),
                changes=tuple(
                    Change(
                        kind=str(one["kind"]),
                        namespace=str(one["namespace"]),
                        id=str(one["id"]),
                        gone=bool(one["gone"]),
                        row=one.get("row"),
                    )
                    for one in answer["changes"]
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotLakeshore("what changed was answered in no known way; is the server newer?", status=200) from error
        self.cursor = news.cursor
        return news


class Watch:
    """`async for news in watch`, until `close`, cancellation or a refusal. ValueError for a malformed `url`.

    `namespace` is one, or `*` for all (that needs the admin token). `kinds`: only these. `rows=False`: names without
    rows. One connection, for one task.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        token: str | None = None,
        kinds: Iterable[str] = (),
        rows: bool = True,
        limit: int = 100,
        hold_s: float = HOLD_S,
    ) -> None:
        self._connection = AsyncConnection(parse_target(url), connect_timeout=5.0)
        self._place = Place(namespace, kinds, rows=rows, limit=limit)
        self._headers = headers_of(namespace if namespace != ALL else "default", token)
        self._url, self._hold_s = url, hold_s
        self._closing = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[News]:
        waits, away = _waits(), False
        try:
            while not self._closing.is_set():
                try:
                    answer = await self._unless_closed(self._ask())
                except ProtocolViolation:
                    raise
                except (NetError, ApiError) as error:
                    if isinstance(error, ApiError) and not _passes(error):
                        raise
                    if not away:
                        away = True
                        yield News(away=str(error))
                    await self._unless_closed(asyncio.sleep(next(waits)))
                    continue
                if self._closing.is_set():
                    return
                news = self._place.take(answer)
                if news.reset or news.changes or away:
                    yield news
                if away:
                    waits, away = _waits(), False
        finally:
            self._connection.close()

    def close(self) -> None:
        """End it, also while it waits."""
        self._closing.set()

    async def _unless_closed(self, step: Coroutine[Any, Any, Any]) -> Any:
        """What it gives; None when the watch is closed first."""
        work, end = asyncio.ensure_future(step), asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((work, end), return_when=asyncio.FIRST_COMPLETED)
            return await work if work.done() else None
        finally:
            for task in (work, end):
                task.cancel()
            await asyncio.gather(work, end, return_exceptions=True)

    async def _ask(self) -> Any:
        place = self._place
        answer = await self._connection.request(
            "GET",
            with_query(place.path, place.query(self._hold_s)),
            headers=self._headers,
            timeout=self._hold_s + PATIENCE_S,
        )
        return read_answer(self._url, answer.status, answer.body)


class Follower:
    """The same on a connection of `api`, for one thread: `wait` returns when something changed, or the time is up."""

    def __init__(self, api: ApiClient, kinds: Iterable[str]) -> None:
        self._api = api
        self._place = Place(api.namespace, kinds, rows=False, limit=500)

    def wait(self, seconds: float) -> bool:
        """Whether anything changed since the last call (the first: it may have). Raises ApiError, NetError."""
        hold_s = min(seconds, HOLD_S)
        answer = self._api.call("GET", self._place.path, self._place.query(hold_s), timeout=hold_s + PATIENCE_S)
        news = self._place.take(answer)
        return bool(news.reset or news.changes)


def _waits() -> Any:
    return full_jitter(random.random, base=0.2, cap=LONGEST_WAIT_S)


def _passes(error: ApiError) -> bool:
    """Whether asking again later may help: the server is overloaded, or something before it has no server."""
    return error.status == 429 or error.status >= 500
