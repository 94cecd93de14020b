"""What changes at a control plane, as it changes: a long poll that goes on from the last number it was told.

For a loop of asyncio; `following.py` has the same for one thread. Rules: the first news is to list everything
(`reset`), so list *after* it came; what follows are the resources that changed, each as it is now, at most ten times a
second. A server that is away is told once (`away`), and asked again with back-off until it is back; what was missed
meanwhile comes then, or a `reset`. A refusal (401, 403, 404) is raised: asking again would not help.
Reference: docs/guides/watching.md; S-068…S-075.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, Final

from lakeshore.net.aio import AsyncConnection
from lakeshore.net.backoff import full_jitter
from lakeshore.net.errors import NetError, ProtocolViolation
from lakeshore.net.target import parse_target

from .api import headers_of, read_answer, with_query
from .errors import ApiError
from .following import ALL, HOLD_S, PATIENCE_S, Change, News, Place

__all__ = ["ALL", "Change", "News", "Watch"]

LONGEST_WAIT_S: Final = 5.0


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

    async def __aiter__(self) -> AsyncGenerator[News, None]:
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


def _waits() -> Any:
    return full_jitter(random.random, base=0.2, cap=LONGEST_WAIT_S)


def _passes(error: ApiError) -> bool:
    """Whether asking again later may help: the server is overloaded, or something before it has no server."""
    return error.status == 429 or error.status >= 500
