"""Commands and setup scripts: begun and stopped as the core says, and what an earlier daemon left of them told.

Whatever goes wrong here is the end of the one it happened to, never of the daemon. Reference: nymph/protocol; K-34.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from ..core import events, instructions
from ..core.events import Event
from ..core.tasks import EXEC, SETUP
from ..exec_result import result
from ..keeping.client import KeeperError
from .contact import Contact
from .line import Line
from .pending import Pending

Map = Mapping[str, Any]
log = logging.getLogger("nymph.commands")


class Commands:
    """All of them, of both kinds."""

    def __init__(self, tell: Callable[[Event], None], nursery: trio.Nursery, line: Line, pending: Pending) -> None:
        self._tell, self._nursery, self._line, self._pending = tell, nursery, line, pending
        self._left: dict[str, Map] = {}
        self._over: list[str] = []
        """Commands that are to be released."""

    def run_exec(self, one: instructions.RunExec) -> None:
        async def run() -> None:
            await self._line.ready()
            told = await _ended(self._line.parts.execs.run(one.exec_id, one.body))
            self._tell(events.ExecEnded(exec_id=one.exec_id, result=told))

        self._nursery.start_soon(run)

    def stop_exec(self, one: instructions.StopExec) -> None:
        self._nursery.start_soon(_quietly, self._line.parts.execs.stop, one.exec_id, one.why, one.grace_s)

    def release_exec(self, one: instructions.ReleaseExec) -> None:
        """Those whose results were taken together go together."""
        self._over.append(one.exec_id)
        if len(self._over) == 1:
            self._pending.start(self._release_over)

    async def _release_over(self) -> None:
        over, self._over = self._over, []
        await _quietly(self._line.parts.execs.release, *over)

    def run_setup(self, one: instructions.RunSetup) -> None:
        async def run() -> None:
            await self._line.ready()
            told = await _ended(self._line.parts.setups.run(one.setup_id, one.body))
            self._tell(events.SetupEnded(setup_id=one.setup_id, result=told))

        self._nursery.start_soon(run)

    def stop_setup(self, one: instructions.StopSetup) -> None:
        self._nursery.start_soon(_quietly, self._line.parts.setups.stop, one.setup_id, one.why, one.grace_s)

    def release_setup(self, one: instructions.ReleaseSetup) -> None:
        self._pending.start(_quietly, self._line.parts.setups.release, one.setup_id)

    async def find_left(self) -> None:
        """What an earlier daemon began; before anything else begins."""
        self._left = dict(await self._line.parts.execs.recovered())

    async def tell_left(self, contact: Contact) -> None:
        """Of that, how it ended, once the server knows this daemon. Scripts that still run are ended first."""
        parts = self._line.parts
        release: Mapping[str, Callable[[str], Awaitable[None]]] = {
            EXEC: parts.execs.release,
            SETUP: parts.setups.release,
        }
        left = [(EXEC, id_, told) for id_, told in self._left.items()]
        left += [(SETUP, id_, told) for id_, told in (await parts.setups.recovered()).items()]
        for kind, id_, told in left:
            log.info("%s %s was left by an earlier daemon", kind, id_)
            if await contact.tell_until_taken(kind, id_, told):
                await _quietly(release[kind], id_)


async def _ended(running: Awaitable[Map]) -> Map:
    """A result, whatever comes."""
    try:
        return await running
    except Exception as error:
        log.exception("a command")
        return result(-1, 0, f"the daemon could not run it: {type(error).__name__}: {error}")


async def _quietly(do: Callable[..., Awaitable[None]], *what: object) -> None:
    try:
        await do(*what)
    except (KeeperError, OSError) as error:
        log.warning("%s: %s", what[0], error)
    except Exception:
        log.exception("%s", what[0])
