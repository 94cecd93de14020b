"""The line to this daemon's keeper, and to the next one when that is killed.

What a killed keeper kept is ended by its guard: its jobs are lost, and the keeper that is started in its place tells so
once more; that is cleared away here. Reference: docs/adr/0011.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from ..execs import Execs
from ..keeping.client import KeeperClient, KeeperError, open_keeper
from ..relay import Relay
from ..runners.registry import Runners
from ..setups import Setups

ORPHAN_S = 30.0
"""So long jobs go on without a daemon."""
AGAIN_S = 1.0
ENDED_S = 30.0
"""For what a killed keeper kept to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What speaks to one keeper."""

    runners: Runners
    execs: Execs
    setups: Setups
    relay: Relay


log = logging.getLogger("nymph.keeper")


class Line:
    """`make` builds what speaks to one keeper, anew for each."""

    def __init__(self, directory: Path, nursery: trio.Nursery, make: Callable[[KeeperClient], Parts]) -> None:
        self._directory, self._nursery, self._make = str(directory), nursery, make
        self._leaving = False
        self._another = trio.Event()
        self._orphan_s = ORPHAN_S
        self.keeper: KeeperClient
        self.parts: Parts
        """For the keeper that lives."""

    async def open(self) -> None:
        """Before anything else. KeeperTaken, KeeperError, OSError."""
        self._take(await open_keeper(self._directory, self._nursery, orphan_s=self._orphan_s))

    async def lease(self, lease_s: float) -> None:
        """The server's lease: half of it at most may jobs go on without a daemon."""
        orphan_s = min(ORPHAN_S, lease_s / 2)
        if orphan_s != self._orphan_s:
            self._orphan_s = orphan_s
            await self.keeper.hello(orphan_s=orphan_s)

    async def ready(self) -> None:
        """Until there is a keeper that lives, as far as is known."""
        while self.keeper.lost.is_set():
            await self._another.wait()

    async def watch(self) -> None:
        """Start another keeper whenever this one is gone; it is used when nothing runs any more of what that kept."""
        while True:
            await self.keeper.lost.wait()
            if self._leaving:
                return
            log.error("the keeper was killed: its jobs are lost")
            try:
                keeper = await open_keeper(self._directory, self._nursery, orphan_s=self._orphan_s)
                with trio.move_on_after(ENDED_S):
                    for job in keeper.found:
                        await keeper.wait(job.id)
                        await keeper.forget(job.id)
                self._take(keeper)
            except (KeeperError, OSError) as error:
                log.error("no keeper: %s", error)  # noqa: TRY400 - it says all
                await trio.sleep(AGAIN_S)

    async def close(self) -> None:
        """Leave; what runs runs on."""
        self._leaving = True
        await self.keeper.aclose()

    def _take(self, keeper: KeeperClient) -> None:
        self.keeper = keeper
        self.parts = self._make(keeper)
        another, self._another = self._another, trio.Event()
        another.set()
