"""Jobs begin in an interpreter that is past its imports: one nest for each (interpreter, environment) that was used.

The first job of its kind starts cold, and a nest is begun for the next; from then on a job becomes one of the nest's
spares (`keeping/nests.py`). Environment, directory, arguments and files are those of a cold start to the letter, and
what would differ starts cold: another user, another entry, a script, a system other than Linux. A nest that was not
used for `IDLE_S` ends; one that does not live is left alone for `AGAIN_S`; more than `MOST` are not kept.
Reference: DESIGN §5.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import shutil
import sys
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

import trio

from .keeping.client import KeeperClient, KeeperError, Kept, NotSpawned, Order

IDLE_S: Final = 300.0
AGAIN_S: Final = 60.0
MOST: Final = 4
STEP_S: Final = 2.0
"""A nest that has not had a spare for so long is not waited for. To a host that is too busy to fork, a cold start is no
help: it costs ten times as much.
"""
LONGEST_S: Final = 5.0
"""Below the part of a lease that is not counted on: the claim was looked at before."""
FLAG: Final = "--warm"
_OURS: Final = "DREAMLAKE_"
Key = tuple[Any, ...]
log = logging.getLogger("nymph.warm")


class _Nest:
    def __init__(self) -> None:
        self.id = f"nest-{secrets.token_hex(6)}"
        self.spares = trio.Semaphore(0)
        self.alive = True
        self.given_at = -math.inf
        self.used_at = trio.current_time()

    def give(self) -> None:
        """Another one waits there."""
        self.given_at = trio.current_time()
        self.spares.release()

    async def spare(self) -> bool:
        """Whether there is one, which is then the caller's; waits as long as they keep coming."""
        until = trio.current_time() + LONGEST_S
        while self.alive and trio.current_time() < min(until, self.given_at + STEP_S):
            with trio.move_on_after(STEP_S):
                await self.spares.acquire()
                return True
        try:
            self.spares.acquire_nowait()
        except trio.WouldBlock:
            return False
        return True


class Warm:
    """Over one keeper."""

    def __init__(self, keeper: KeeperClient) -> None:
        self._keeper = keeper
        self._nests: OrderedDict[Key, _Nest] = OrderedDict()
        self._not_before: dict[Key, float] = {}
        keeper.on_spare = self._given

    @property
    def spares(self) -> int:
        """How many wait, as far as is known."""
        return sum(nest.spares.value for nest in self._nests.values())

    async def spawn(self, order: Order) -> Kept:
        """Begin a job whose program is `python -m entry`, warm where that can be. NotSpawned."""
        if not sys.platform.startswith("linux"):
            return await self._keeper.spawn(order)
        key = _key(order)
        nest = self._nests.get(key)
        if nest is None:
            if trio.current_time() >= self._not_before.get(key, 0.0):
                self._begin(key, order)
        else:
            nest.used_at = trio.current_time()
            self._nests.move_to_end(key)
            if await nest.spare():
                try:
                    return await self._keeper.spawn(replace(order, via=nest.id))
                except NotSpawned as error:
                    log.debug("%s starts cold: %s", order.id, error)
        return await self._keeper.spawn(order)

    def _given(self, id_: str) -> None:
        for nest in self._nests.values():
            if nest.id == id_:
                nest.give()

    def _begin(self, key: Key, order: Order) -> None:
        nest = self._nests[key] = _Nest()
        self._not_before.pop(key, None)
        # Of the whole run, not of the job that it is begun beside; whatever goes wrong there costs warmth only.
        trio.lowlevel.spawn_system_task(self._keep, key, nest, order)

    async def _keep(self, key: Key, nest: _Nest, order: Order) -> None:
        began = trio.current_time()
        try:
            if len(self._nests) > MOST:
                await self._keeper.stop(next(iter(self._nests.values())).id, why="unused")
            await self._keeper.spawn(_nest_order(nest.id, order, self._keeper))
            while not await self._ended(nest):
                if trio.current_time() - nest.used_at >= IDLE_S:
                    await self._keeper.stop(nest.id, why="unused")
            await self._keeper.forget(nest.id)
        except KeeperError as error:
            log.debug("nothing is kept warm: %s", error)
        except Exception:
            log.exception("nothing is kept warm")
        finally:
            nest.alive = False
            self._nests.pop(key, None)
            if trio.current_time() - began < AGAIN_S:
                self._not_before[key] = trio.current_time() + AGAIN_S
            while len(self._not_before) > 10 * MOST:
                del self._not_before[next(iter(self._not_before))]

    async def _ended(self, nest: _Nest) -> bool:
        with trio.move_on_after(IDLE_S / 4):
            await self._keeper.wait(nest.id)
            return True
        return False


def _key(order: Order) -> Key:
    """What a process keeps from its start: another one of the same key could have been this one."""
    python = shutil.which(order.argv[0], path=order.env.get("PATH"))
    try:
        found = os.stat(python or order.argv[0])
        identity = (found.st_dev, found.st_ino, found.st_mtime_ns)
    except OSError:
        identity = (0, 0, 0)
    env = frozenset((name, value) for name, value in order.env.items() if not name.startswith(_OURS))
    return (*order.argv[:3], identity, env)


def _nest_order(id_: str, order: Order, keeper: KeeperClient) -> Order:
    return Order(
        id=id_,
        argv=[*order.argv[:3], FLAG, keeper.directory],
        env={name: value for name, value in order.env.items() if not name.startswith(_OURS)},
        cwd=keeper.job_directory(id_),  # there is nothing in it that could be imported
        claim={"kind": "nest"},
        nest=True,
        grace_s=1.0,
    )
