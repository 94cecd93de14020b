"""What is read of one row while its detail pane is open: the row by long looks, what it prints and yields as it comes.

Rules: each of its questions has a connection of its own, and all end with `run`'s task. A row that has gone is told,
and so is a server that is away; then it is asked again. Reference: docs/guides/dashboard.md, "One row".
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from lakeshore.client.api import ApiClient, headers_of, path_of, read_answer, with_query
from lakeshore.client.errors import ApiError
from lakeshore.client.execs import Execs
from lakeshore.client.queues import Queues
from lakeshore.client.workers import Workers
from lakeshore.net.aio import AsyncConnection
from lakeshore.net.errors import NetError
from lakeshore.net.target import parse_target
from lakeshore.wire.errors import FrameError

from .facts import Facts
from .items import Item
from .printed import FRAMES, Frames, Printed, parts_of
from .reading import Lane, Unanswered
from .server import Server
from .tabs import INVOCATIONS, QUEUES, WORKERS, Tab

Tell = Callable[[Facts], None]
JOBS: Final = 20
QUEUE_S: Final = 1.0
"""How often a queue is looked at, for its lines."""
_AGAIN_S: Final = 2.0
_HOLD_S: Final = 20.0
_LONGEST_S: Final = 30.0
_SAMPLE: Final = 200
_REASONS: Final = 3


class Feed:
    """Tells `tell` all that is known, whenever it is more. `look` is called when something of the row has changed."""

    def __init__(self, server: Server, tab: Tab, item: Item, *, interval: float, tell: Tell) -> None:
        self._server, self._tab, self._item, self._tell = server, tab, item, tell
        self._interval = min(interval, QUEUE_S) if tab is QUEUES else interval
        self._facts = Facts()
        self._changed = asyncio.Event()
        self._claim = asyncio.Condition()
        self._printed = Printed()
        self._lane = Lane(server)

    def look(self) -> None:
        """Read it again now."""
        self._changed.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._rows())
                if self._tab is INVOCATIONS:
                    tasks.create_task(self._prints())
                    tasks.create_task(self._yields())
        finally:
            await self._lane.close()

    def _say(self, **more: Any) -> None:
        self._facts = replace(self._facts, **more)
        self._tell(self._facts)

    # -- the row

    async def _rows(self) -> None:
        read = _READS.get(self._tab.name)
        while True:
            wait = self._interval
            try:
                more = (
                    {"row": self._item.row} if read is None else await self._lane.ask(lambda api: read(api, self._item))
                )
                self._say(**more, gone=False, away="")
                async with self._claim:
                    self._claim.notify_all()
            except Unanswered as error:
                gone = isinstance(error.__cause__, ApiError) and error.__cause__.status == 404
                self._say(gone=gone, away=str(error))
                wait = min(wait, _AGAIN_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            self._changed.clear()

    async def _until(self, true: Callable[[Any], bool]) -> Any:
        """The row, when that is true of it."""
        async with self._claim:
            await self._claim.wait_for(lambda: self._facts.row is not None and true(self._facts.row))
        return self._facts.row

    async def _next_claim(self, read: int | None) -> int:
        """The one after that; after the row's own, where nothing of it is known."""
        last = (self._facts.row or {}).get("claim") if read is None else read
        row = await self._until(lambda row: bool(row.get("claim")) and row["claim"] != last)
        return int(row["claim"])

    # -- what it prints

    async def _prints(self) -> None:
        claim, position = None, 0
        connection = AsyncConnection(parse_target(self._server.url))
        try:
            while True:
                try:
                    answer = await self._page(connection, claim, position)
                except (NetError, ApiError) as error:
                    if isinstance(error, ApiError) and error.status in (401, 403, 404):
                        return
                    await asyncio.sleep(_AGAIN_S)
                    continue
                claim, position = answer.get("claim") or claim, int(answer["offset"])
                for part in parts_of(answer):
                    self._printed.put(part["stream"], part["offset"], base64.b64decode(part["bytes"]))
                self._say(printed=self._printed.lines(), attempt=answer.get("attempt") if claim else None)
                if answer.get("end") and not parts_of(answer):
                    claim, position = await self._next_claim(claim), 0
                    self._printed.begin()
        finally:
            connection.close()

    async def _page(self, connection: AsyncConnection, claim: int | None, position: int) -> dict[str, Any]:
        path = path_of(self._server.namespace, "invocations", self._item.id, "logs")
        query = [("claim", claim), ("offset", position), ("wait_s", f"{_HOLD_S:g}")]
        answer = await connection.request("GET", with_query(path, query), headers=self._headers(), timeout=_LONGEST_S)
        told: dict[str, Any] = read_answer(self._server.url, answer.status, answer.body)
        return told

    # -- what it yields

    async def _yields(self) -> None:
        row = await self._until(lambda row: True)
        frames = Frames(max(int(row.get("frames") or 0) - FRAMES, 0) - 1)
        while True:
            claim = row.get("claim") or None
            if await self._streamed(frames):
                await self._next_claim(claim)
                row = await self._until(lambda row: True)
            else:
                await asyncio.sleep(_AGAIN_S)
            frames.resume()

    async def _streamed(self, frames: Frames) -> bool:
        """Whether there is nothing more of this attempt."""
        path = f"/v1/producer/invocations/{self._item.id}/result/stream"
        try:
            async with (
                AsyncConnection(parse_target(self._server.url)) as connection,
                await connection.stream(
                    "GET", with_query(path, [("since", frames.seq)]), headers=self._headers(), timeout=None
                ) as stream,
            ):
                if stream.status != 200:
                    return stream.status in (401, 403, 404)
                async for data in stream:
                    ended = frames.feed(data)
                    self._say(frames=frames.lines())
                    if ended:
                        return True
        except FrameError:
            return True
        except NetError:
            return False
        return True

    def _headers(self) -> list[tuple[str, str]]:
        return headers_of(self._server.namespace, self._server.token)


def _worker(api: ApiClient, item: Item) -> dict[str, Any]:
    row = Workers(api).show(item.id)
    jobs = api.invocations(states=("running",), worker=item.id, limit=JOBS).get("invocations") or []
    return {"row": row, "jobs": jobs, "exec": Execs(api).last_of(item.id)}


def _queue(api: ApiClient, item: Item) -> dict[str, Any]:
    name = item.row["name"]
    if item.row.get("namespace", api.namespace) != api.namespace:
        return {"row": item.row}  # a sibling's, of which the list tells all that we may know
    row, stats = Queues(api).show(name), Queues(api).stats(name)
    why: Counter[str] = Counter()
    if stats.get("queued"):
        found = api.invocations(states=("queued",), queue=name, limit=_SAMPLE).get("invocations") or []
        why.update(str(one["why"]) for one in found if one.get("why"))
    return {"row": row, "stats": stats, "waiting": [f"{n:,}: {says}" for says, n in why.most_common(_REASONS)]}


def _call(api: ApiClient, item: Item) -> dict[str, Any]:
    return {"row": api.invocation(item.id)}


_READS: Final[dict[str, Callable[[ApiClient, Item], dict[str, Any]]]] = {
    WORKERS.name: _worker,
    QUEUES.name: _queue,
    INVOCATIONS.name: _call,
}
