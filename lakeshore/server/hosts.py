"""The machines that launches made, as their providers tell of them: found again, looked after, ended.

    a launch whose answer was lost      its machine is found by its tag; none within `GRACE_S`: it never came
    a server that was killed meanwhile  the same
    a worker that was removed           its machine is ended, and again until the provider says that it has
    a daemon that left as it should     (`keep_alive_s`, nothing to do): its machine is ended `IDLE_S` after
    one of those that never came        its machine is ended `BOOT_S` after it was asked for
    anything else                       the worker's `hostStatus` is what the provider says

Rules: nothing is ended that no row names. A provider is asked only while it has machines that live, and by one look at
a time; one that cannot be reached changes nothing, and is said once. Where no machine lives, nothing wakes.
Reference: get-started/architecture, "Worker"; S-177, S-303.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import trio

from ..plane.contract import PlaneError
from ..wire.states import HOST, STALE_AFTER_S
from .http import HttpError
from .launchers.contract import Instance, Launcher, LaunchFailed, Means
from .launchers.guarded import made
from .launchers.makers import MAKERS
from .launchers.resolving import resolved
from .records import MachineRow, ProviderRow, Records, WorkerRow
from .sealing import Keyring
from .workers import Workers

log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
GRACE_S: Final = 600.0
"""A provider may take so long to list what it made."""
IDLE_S: Final = 300.0
BOOT_S: Final = 1800.0
"""So long a machine may take until its daemon says hello: a bootstrap script may install much."""
_REMEMBER_S: Final = 30 * 86_400.0
_PLACE: Final = ("region", "zone", "project_id", "context", "namespace", "partition", "host", "ip", "cluster")
"""What of kwargs and capacity says where a machine is; it stays with the machine, whatever the provider says later."""

Key = tuple[str, str]
_Group = tuple[str, str, str]
"""The namespace and the name of a provider, and where the machines are that it is asked for."""


class Hosts:
    """The machines of one server. `under_way` are those that are being asked for right now; a sweep leaves them."""

    def __init__(
        self,
        records: Records,
        workers: Workers,
        keyring: Keyring,
        means: Means,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records, self._workers, self._keyring, self._means = records, workers, keyring, means
        self._every_s, self._clock = every_s, clock
        self.under_way: set[Key] = set()
        self._expected = trio.Event()
        self._asking: set[_Group] = set()
        """Those that are being looked at."""
        self._said: dict[Key, str] = {}
        """What was said of a provider that cannot be asked, by its namespace and name."""

    def expect(self, keys: Iterable[Key]) -> None:
        """The machines of these are about to be asked for."""
        self.under_way.update(keys)
        self._expected.set()

    async def run(self) -> None:
        """Look now and then, until cancelled. A look that takes long is not waited for."""
        async with trio.open_nursery() as nursery:
            while True:
                if not self.under_way and not any(row.is_live for row in self._records.machines.all()):
                    self._expected = trio.Event()
                    await self._expected.wait()
                await trio.sleep(self._every_s)
                nursery.start_soon(self._tried_sweep)

    async def _tried_sweep(self) -> None:
        try:
            await self.sweep()
        except* PlaneError as group:  # a full disk, say: it is tried again
            log.warning("machines could not be looked after, and will be: %s", group.exceptions[0])

    async def sweep(self) -> None:
        """Ask every provider that has machines which live, once; but for those that an earlier look still asks."""
        groups: dict[_Group, list[MachineRow]] = {}
        for row in self._records.machines.all():
            if row.is_live and (row.ns, row.worker) not in self.under_way:
                place = json.dumps(placed({}, {name: row.capacity.get(name) for name in _PLACE}))
                groups.setdefault((row.provider_ns, row.provider, place), []).append(row)
        async with trio.open_nursery() as nursery:  # one that hangs holds up nobody else
            for group in groups.keys() - self._asking:
                nursery.start_soon(self._look_once, group, groups[group])
        await self._forget_old()

    async def _look_once(self, group: _Group, rows: Sequence[MachineRow]) -> None:
        self._asking.add(group)
        try:
            await self._look(*group[:2], rows)
        finally:
            self._asking.discard(group)

    async def _look(self, ns: str, name: str, rows: Sequence[MachineRow]) -> None:
        try:
            launcher = self.launcher_of(rows[0])[1]
            found = await launcher.instances()
        except (LaunchFailed, HttpError) as error:
            self._say(ns, name, error)
            return
        self._said.pop((ns, name), None)
        await self._compare(launcher, rows, found)

    async def made(self, ns: str, worker: str, instance: str | None) -> None:
        """A launcher made one; None: it is not known which."""
        machine = self._records.machines.get(ns, worker)
        if machine is None or instance is None:
            if machine is not None and machine.state == "ending":
                await self.end(machine)
            return
        if await self._records.machines.change(machine, state="made", instance=instance) is not None:
            await self._note(machine, "starting")
            return
        known = await self._records.machines.change(machine, instance=instance)
        if known is not None and known.state == "ending":  # it was killed while it was being made
            await self.end(known)

    async def never_came(self, ns: str, worker: str) -> None:
        """There is no machine: its worker, its token and its row go, for nobody will say hello."""
        row = self._records.workers.get(ns, worker)
        machine = self._records.machines.get(ns, worker)
        if row is not None:
            await self._workers.remove([row], action="worker.launch_failed", actor="<server>")
        await self._workers.revoke_token(ns, worker)
        if machine is not None:
            await self._records.machines.drop([machine])

    async def end(self, machine: MachineRow) -> str | None:
        """End one whose row says `ending`; else why it is not known to have ended, and that it is tried again."""
        try:
            launcher = self.launcher_of(machine)[1]
            instance = machine.instance
            if instance is None:
                found = next((one for one in await launcher.instances() if one.worker == machine.worker), None)
                if found is None:
                    return "its machine is not known yet, and is ended as soon as its provider lists it"
                instance = found.id
            await launcher.terminate(instance)
        except (LaunchFailed, HttpError) as error:
            why = error.error if isinstance(error, HttpError) else str(error)
            log.warning("the machine of %s could not be ended, and will be: %s", machine.worker, why)
            return f"its machine could not be ended, which is tried again: {why}"
        await self._records.machines.change(machine, instance=instance)
        return None

    # --- inside

    async def _compare(self, launcher: Launcher, rows: Iterable[MachineRow], found: Iterable[Instance]) -> None:
        by_id = {one.id: one for one in found}
        by_worker = {one.worker: one for one in by_id.values() if one.worker is not None}
        for old in rows:
            row = self._records.machines.get(old.ns, old.worker)
            if row is None or not row.is_live or (row.ns, row.worker) in self.under_way:
                continue  # meanwhile
            one = by_id.get(row.instance) if row.instance is not None else by_worker.get(row.worker)
            if one is None:
                await self._missing(row)
            else:
                await self._seen(launcher, row, one)

    async def _missing(self, row: MachineRow) -> None:
        if self._clock() - row.updated_at < GRACE_S or self._was_heard(row):
            return  # a worker that speaks has a machine, whatever its provider lists
        if row.state == "asked":
            log.warning("launch of %s: its provider has no such machine; its worker is forgotten", row.worker)
            await self.never_came(row.ns, row.worker)
        else:
            log.warning("the machine of %s is listed no more, and taken for ended: %s", row.worker, row.instance)
            await self._ended(row)

    async def _seen(self, launcher: Launcher, row: MachineRow, one: Instance) -> None:
        if one.state == "terminated":
            await self._ended(row)
            return
        if row.state == "asked":
            log.info("the machine of %s was found again: %s", row.worker, one.id)
            row = await self._records.machines.change(row, state="made", instance=one.id) or self._again(row)
        if row.state == "made":
            await self._note(row, one.state)
            if self._is_done(row):
                log.info("worker %s of %s left, and its machine %s is ended", row.worker, row.ns, one.id)
                row = await self._records.machines.change(row, state="ending") or self._again(row)
        if row.state == "ending" and one.state != "stopping":
            await self._records.machines.change(row, instance=one.id)
            try:
                await launcher.terminate(one.id)
            except LaunchFailed as error:
                self._say(row.provider_ns, row.provider, error)

    def _again(self, row: MachineRow) -> MachineRow:
        """As it is now: somebody was faster."""
        return self._records.machines.get(row.ns, row.worker) or replace(row, state="ended")

    async def _ended(self, row: MachineRow) -> None:
        if await self._records.machines.change(row, state="ended") is not None:
            await self._note(row, "terminated")

    async def _note(self, machine: MachineRow, status: str) -> None:
        row = self._records.workers.get(machine.ns, machine.worker)
        if row is None or row.host_status == status:
            return
        known = row.host_status or "unknown"
        if (known, f"saw_{status}") in HOST.transitions:
            await self._records.workers.change(row, host_status=status)

    def _is_done(self, machine: MachineRow) -> bool:
        """Whether its daemon left because there was nothing to do, and did not come back; or never came."""
        if machine.keep_alive_s < 0:
            return False
        row: WorkerRow | None = self._records.workers.get(machine.ns, machine.worker)
        if row is None or row.state != "gone":
            return False
        seen = self._records.workers.seen_at(row)
        now = self._clock()
        return now - machine.created_at > BOOT_S if seen is None else now - seen > IDLE_S

    def launcher_of(self, machine: MachineRow) -> tuple[ProviderRow, Launcher]:
        """Its provider, and what asks it. LaunchFailed, HttpError."""
        row = self._provider_of(machine)
        return row, self.launcher(row, machine.capacity)

    def launcher(self, row: ProviderRow, capacity: Mapping[str, Any]) -> Launcher:
        """What asks a provider. LaunchFailed; HttpError 409, 422, 501."""
        make = MAKERS.get(row.launcher)
        if make is None:
            hint = "until then, use `lakeshore daemon install <ssh-host>` on the machine"
            raise HttpError(501, f"not built yet: launching daemons through {row.launcher}", hint=hint)
        return made(make, resolved(self._records, self._keyring, row, capacity), self._means)

    def _provider_of(self, machine: MachineRow) -> ProviderRow:
        """Also one that was removed since: what it made is still its."""
        providers = self._records.providers
        row = providers.get(machine.provider_ns, machine.provider)
        if row is None or row.launcher != machine.launcher:
            row = providers.removed(machine.provider_ns, machine.provider)
        if row is None or row.launcher != machine.launcher:
            raise LaunchFailed(f"there is no provider {machine.provider!r} in {machine.provider_ns!r} any more")
        return row

    def _was_heard(self, machine: MachineRow) -> bool:
        """Whether its worker lives, by what it says itself."""
        row = self._records.workers.get(machine.ns, machine.worker)
        seen = None if row is None else self._records.workers.seen_at(row)
        return seen is not None and self._clock() - seen < STALE_AFTER_S

    def _say(self, ns: str, name: str, error: LaunchFailed | HttpError) -> None:
        why = error.error if isinstance(error, HttpError) else str(error)
        if self._said.get((ns, name)) != why:
            self._said[ns, name] = why
            log.warning("provider %s of %s cannot be asked for its machines: %s", name, ns, why)

    async def _forget_old(self) -> None:
        now = self._clock()
        old = [
            row
            for row in self._records.machines.all()
            if not row.is_live
            and self._records.workers.get(row.ns, row.worker) is None
            and now - row.updated_at > _REMEMBER_S
        ]
        if old:
            await self._records.machines.drop(old)


def placed(kwargs: Mapping[str, Any], capacity: Mapping[str, Any]) -> dict[str, Any]:
    """A capacity that also says where the machine is, as its provider says today."""
    where = {name: kwargs[name] for name in _PLACE if isinstance(kwargs.get(name), str)}
    return {**where, **{name: value for name, value in capacity.items() if value is not None}}
