"""What is asked of the server, in threads: the client waits, the screen does not.

Rules: one connection, one question at a time; actions have another, so that a slow list holds up none. Rows become
items in the thread. A thread that still waits when the program leaves is left behind; it closes its connection when it
has its answer, for nobody closes one under the hands of another thread. Reference: cli/tui.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.queues import Queues
from lakeshore.client.reasons import reason
from lakeshore.client.storages import Storages
from lakeshore.client.workers import Workers
from lakeshore.net.errors import NetError

from .following import KINDS, applied, ordered
from .items import Item
from .server import Server
from .tabs import INVOCATIONS, NAMES, QUEUES, STORAGE, TABS, WORKERS, Tab
from .window import MOST, PAGE, Window

if TYPE_CHECKING:
    from lakeshore.client.watch import Change

T = TypeVar("T")
PATIENCE_S: Final = 10.0
LEAVING_S: Final = 0.2
GAP_PAGES: Final = 20
"""Pages that are read at once to join what has come meanwhile to what is held; with more the list begins anew."""


class Unanswered(Exception):
    """There was no answer that can be used; the text says why."""


class Lane:
    """One connection to the server."""

    def __init__(self, server: Server) -> None:
        self._api = ApiClient(
            server.url,
            namespace=server.namespace,
            token=server.token,
            timeout=PATIENCE_S,
            connect_timeout=PATIENCE_S,
        )
        self._turn = asyncio.Lock()
        self._in_use = threading.Lock()  # by a thread, also by one whose question was given up
        self._left = False

    async def ask(self, call: Callable[[ApiClient], T]) -> T:
        """What it answers. Unanswered when it does not, or refuses."""
        async with self._turn:
            try:
                return await asyncio.shield(in_thread(lambda: self._answer(call)))
            except ApiError as error:
                hint = f" ({error.hint})" if error.hint else ""
                raise Unanswered(f"{error}{hint}") from error
            except NetError as error:
                raise Unanswered(reason(error, PATIENCE_S)) from error

    async def close(self) -> None:
        """Close the connection; where a question stays without an answer its thread does that, later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_S), self._turn:
                pass
        self._left = True
        self._drop()

    def _answer(self, call: Callable[[ApiClient], T]) -> T:
        """In a thread."""
        try:
            with self._in_use:
                return call(self._api)
        finally:
            if self._left:  # after the lock: whoever left before it was free has closed nothing
                self._drop()

    def _drop(self) -> None:
        if self._in_use.acquire(blocking=False):
            try:
                self._api.close()
            finally:
                self._in_use.release()


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Call it in a thread that nobody waits for at the end."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if told.cancelled():
            return
        if error is not None:
            told.set_exception(error)
        else:
            told.set_result(result)  # type: ignore[arg-type]  # the call's own

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  (whoever waits raises it)
            failure = error
        try:
            loop.call_soon_threadsafe(tell, result, failure)
        except RuntimeError:
            return  # the program has left

    threading.Thread(target=run, daemon=True).start()
    return told


class Reader:
    """The lists of a namespace. `look` reads one anew; `place` is the first row that is on the screen."""

    def __init__(self, server: Server) -> None:
        self._lane = Lane(server)
        self._window = Window()
        self._meanwhile: list[Change] | None = None

    async def close(self) -> None:
        """Leave."""
        await self._lane.close()

    async def who(self) -> dict[str, Any]:
        """`{namespace, authMode, …}`"""
        return await self._lane.ask(lambda api: api.whoami())

    async def counts(self) -> dict[str, Any]:
        """How many invocations there are of each state."""
        return await self._lane.ask(lambda api: api.counts())

    async def look(self, name: str, place: int = 0) -> Sequence[Item]:
        """That tab's rows as they are now."""
        if name == INVOCATIONS.name:
            return await self._calls(place)
        self._meanwhile = []
        items: Sequence[Item] = await self._lane.ask(_READS[name])
        tab = TABS[NAMES.index(name)]
        return self._with_meanwhile(tab, items)

    @property
    def wants_more(self) -> bool:
        """Whether there are older invocations to read."""
        return self._window.wants_more and self._window.oldest_cursor() is not None

    async def more(self) -> Sequence[Item]:
        """Read on: the invocations, with the page that follows those held."""
        cursor = self._window.oldest_cursor()
        if cursor is not None:
            await self._page(cursor)
        return list(self._window.items)

    def changed(self, tab: Tab, items: Sequence[Item], changes: Sequence[Change]) -> Sequence[Item] | None:
        """That tab's rows after these changes; None where it is to be read anew."""
        if self._meanwhile is not None:
            self._meanwhile += changes
        made = applied(tab, self._window.items if tab is INVOCATIONS else items, changes)
        if made is not None and tab is INVOCATIONS:
            self._window.items = made = made[:MOST]
        return made

    async def _calls(self, place: int) -> Sequence[Item]:
        """The newest page, the one on the screen, and one of the others in its turn; what lies between is filled."""
        met, cursor = await self._page(None)
        for _ in range(GAP_PAGES):
            if met or cursor is None:
                break
            met, cursor = await self._page(cursor)
        if not met and cursor is not None:
            self._window.forget_after(cursor)
        for cursor in {self._window.cursor_before(place), self._window.next_turn()} - {None}:
            await self._page(cursor)
        return list(self._window.items)

    async def _page(self, cursor: int | None) -> tuple[bool, int | None]:
        """Whether it meets what is held, and the cursor to read on from."""
        self._meanwhile = []
        page, last = await self._lane.ask(lambda api: _invocations(api, cursor))
        if cursor is None:
            met = self._window.put_newest(page, last=last)
        else:
            met = self._window.put_after(cursor, page, last=last)
        self._window.items = list(self._with_meanwhile(INVOCATIONS, self._window.items))[:MOST]
        return met, page[-1].seq if page else None

    def _with_meanwhile(self, tab: Tab, items: Sequence[Item]) -> Sequence[Item]:
        """An answer may be older than what was told while it was on its way: that holds."""
        kind = KINDS[tab.name]
        changes, self._meanwhile = [one for one in self._meanwhile or () if one.kind == kind], None
        made = applied(tab, items, changes) if changes else None
        return items if made is None else made


def _invocations(api: ApiClient, before: int | None) -> tuple[list[Item], bool]:
    answer = api.invocations(limit=PAGE, before=before)
    rows, after = answer.get("invocations") or [], answer.get("next")
    items = [INVOCATIONS.item(row) for row in rows[:-1]]
    if rows:
        items.append(INVOCATIONS.item(rows[-1], seq=after))
    return items, after is None


def _workers(api: ApiClient) -> list[Item]:
    return ordered(WORKERS, [WORKERS.item(row) for row in Workers(api).all()])


def _queues(api: ApiClient) -> list[Item]:
    return [QUEUES.item(row) for row in Queues(api).all()]


def _storages(api: ApiClient) -> list[Item]:
    try:
        rows = Storages(api).all()
    except ApiError as error:
        if error.status != 404:
            raise
        return []  # a server that has none
    return [STORAGE.item(row) for row in rows]


_READS: Final[dict[str, Callable[[ApiClient], list[Item]]]] = {
    WORKERS.name: _workers,
    QUEUES.name: _queues,
    STORAGE.name: _storages,
}
