"""Daemons on new machines: a row and a token for each, then the machine, by the launcher of its provider.

Rules: the worker's row (`pending`, `setting_up` while scripts wait), its token and its machine's row are on disk before
a provider is asked. The first hello with the token is that worker's. What a provider refuses leaves no row, no token;
where its answer is lost the row stays, and `hosts.py` finds out. What came of each of `count` is told one by one.
Reference: nymph/daemon-lifecycle, "Launch through a provider"; admin/happy-paths/13; S-153…S-180.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from ..plane.contract import PlaneError
from .auth import Caller
from .bootstrap import script
from .bootstrap.program import Programs
from .hosts import Hosts, placed
from .http import HttpError
from .launchers.contract import Launcher, LaunchFailed, LaunchUnknown, Machine, Program, Unsupported
from .launchers.kinds import LAUNCHERS
from .launchers.makers import MAKERS
from .launchers.resolving import check_capacity, providers_of_org
from .records import MachineRow, OrderRow, ProviderRow, Records, WorkerRow
from .structure import bad_field
from .workers import SETUP, Workers

log = logging.getLogger(__name__)

AT_ONCE: Final = 5
"""Machines that are asked for side by side: what AWS lets through without a throttle."""
MOST: Final = 100
MOST_SCRIPTS: Final = 64 << 20
"""Characters of setup scripts that one launch may leave in the records."""
_NO_TOKEN: Final = "<the token of this worker>"  # noqa: S105  (it says so itself)
_SHORT: Final = 8
_IMAGES: Final = ("image_id", "ami")
_ONLY: Final = "only EC2, GCE and Kube supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What is wanted. `name` is the label and the cloud's Name, with several a prefix; `label` the label alone.
    `keep_alive_s` None is -1: as long as the machine runs. `setup_commands` are bodies of `setup` orders, `startup` the
    script of one that comes after them. A `compose_project` has each label once.
    """

    provider: str
    name: str | None = None
    label: str | None = None
    count: int = 1
    tags: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    keep_alive_s: int | None = None
    capacity: Mapping[str, Any] = field(default_factory=dict)
    bootstrap_script: str | None = None
    setup_commands: tuple[Mapping[str, Any], ...] = ()
    compose_project: str | None = None
    startup: str | None = None
    cloud_tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One worker that was launched. `instance_id` None: it is not known yet, `note` says why.

    `error`: its provider refused, and there is neither a machine nor a worker; only `launch_each` tells of those.
    """

    worker: str
    label: str
    instance_id: str | None
    note: str | None = None
    error: LaunchFailed | HttpError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of a worker's machine: whether there was one, and why it is not known to have ended."""

    had_machine: bool
    trouble: str | None = None


class Launching:
    """The launches of one server. `url` is its own as machines reach it. Run `run()` in the server's nursery."""

    def __init__(
        self,
        records: Records,
        workers: Workers,
        hosts: Hosts,
        programs: Programs,
        *,
        url: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records, self._workers, self.hosts, self._programs = records, workers, hosts, programs
        self.url, self._clock = url, clock
        self._taken: set[tuple[str, str, str]] = set()
        """(namespace, project, label) of those whose rows are on their way."""

    async def run(self) -> None:
        """Look after the machines, until cancelled."""
        await self.hosts.run()

    # --- launch

    async def launch(self, ns: str, wanted: LaunchSpec, *, actor: str = "<server>") -> list[Launched]:
        """Those that came. HttpError as the route answers it, also when not one came."""
        told = await self.launch_each(ns, wanted, actor=actor)
        made = [one for one in told if one.error is None]
        if not made and told:
            assert told[0].error is not None, "it was not made"
            raise refusal(told[0].error, self.provider(ns, wanted.provider))
        return made

    async def launch_each(self, ns: str, wanted: LaunchSpec, *, actor: str) -> list[Launched]:
        """As `launch`, with those that its provider refused."""
        provider = self.provider(ns, wanted.provider)
        self._check(provider, wanted)
        launcher = self._launcher(provider, wanted.capacity)
        program = await self._programs.of(ns)
        with self._taking(ns, wanted.compose_project, labels := _labels(wanted)):
            machines = await self._machines(ns, wanted, provider, program, labels, actor)
        return await self._start_all(launcher, machines)

    async def rendered(self, ns: str, wanted: LaunchSpec) -> tuple[str, str]:
        """(the label, what it would be given to run) of the first of them, checked as a launch is; nothing is made."""
        provider = self.provider(ns, wanted.provider)
        self._check(provider, wanted)
        self._launcher(provider, wanted.capacity)
        label = _labels(wanted)[0]
        machine = self._machine(ns, wanted, await self._programs.of(ns), label, "0" * 24, _NO_TOKEN)
        return label, machine.userdata

    @contextlib.contextmanager
    def _taking(self, ns: str, project: str | None, labels: Sequence[str]) -> Iterator[None]:
        """A project has a label once, also where two want it at the same time, or one asks twice. HttpError 409."""
        if project is None:
            yield
            return
        rows = self._records.workers.of(ns)
        there = {row.label for row in rows if row.compose_project == project and row.state != "gone"}
        wanted = {(ns, project, label) for label in labels}
        for key in sorted(wanted):
            if key in self._taken or key[2] in there:
                hint = "`lakeshore daemon list` shows it; `lakeshore up` takes it for present"
                raise HttpError(409, f"project {project!r} has a daemon {key[2]!r} already", field="label", hint=hint)
        self._taken |= wanted
        try:
            yield
        finally:
            self._taken -= wanted

    async def _machines(
        self, ns: str, wanted: LaunchSpec, provider: ProviderRow, program: Program, labels: Sequence[str], actor: str
    ) -> list[Machine]:
        """Rows and tokens for them, on disk."""
        machines: list[Machine] = []
        try:
            names = labels if wanted.name is None else _each(wanted.name, wanted.count)
            for label, name in zip(labels, names, strict=True):
                worker = secrets.token_hex(12)
                _token, plaintext = await self._records.mint_token(
                    ns, f"launch-{worker}", "daemon", worker=worker, actor=actor
                )
                machine = self._machine(ns, wanted, program, label, worker, plaintext)
                machines.append(replace(machine, name=name))
            await self._note(ns, wanted, provider, machines, actor)
        except BaseException:
            with trio.CancelScope(shield=True):
                for machine in machines:
                    await self._workers.revoke_token(machine.ns, machine.worker)
            raise
        return machines

    def _machine(self, ns: str, wanted: LaunchSpec, program: Program, label: str, worker: str, token: str) -> Machine:
        machine = Machine(
            ns=ns,
            worker=worker,
            label=label,
            url=self.url,
            program=program,
            token=token,
            userdata="",
            queues=wanted.queues,
            tags=wanted.tags,
            runners=wanted.runners,
            keep_alive_s=-1 if wanted.keep_alive_s is None else wanted.keep_alive_s,
            bootstrap_script=wanted.bootstrap_script,
            capacity=wanted.capacity,
            cloud_tags=wanted.cloud_tags,
        )
        return replace(machine, userdata=script.rendered(machine))

    async def _note(
        self, ns: str, wanted: LaunchSpec, provider: ProviderRow, machines: Sequence[Machine], actor: str
    ) -> None:
        now = self._clock()
        workers, rows, orders = [], [], []
        scripts = _scripts(wanted)
        for machine in machines:
            workers.append(
                WorkerRow(
                    ns=ns,
                    id=machine.worker,
                    machine_id="",
                    label=machine.label,
                    lanes=machine.queues,
                    info=_info(machine),
                    hello_at=now,
                    created_at=now,
                    state="setting_up" if scripts else "pending",
                    provider=provider.name,
                    host_status="unknown",
                    compose_project=wanted.compose_project,
                )
            )
            rows.append(
                MachineRow(
                    ns=ns,
                    worker=machine.worker,
                    provider_ns=provider.ns,
                    provider=provider.name,
                    launcher=provider.launcher,
                    capacity=placed(provider.kwargs, wanted.capacity),
                    keep_alive_s=machine.keep_alive_s,
                    created_at=now,
                    updated_at=now,
                )
            )
            orders += [
                OrderRow(ns=ns, worker=machine.worker, id=self._records.new_id(), kind=SETUP, body=dict(body), at=now)
                for body in scripts
            ]
        self.hosts.expect((row.ns, row.worker) for row in rows)
        try:
            await self._records.launch(workers, rows, orders, actor=actor)
        except BaseException:
            self.hosts.under_way.difference_update((row.ns, row.worker) for row in rows)
            raise

    async def _start_all(self, launcher: Launcher, machines: Sequence[Machine]) -> list[Launched]:
        told: dict[str, Launched] = {}
        limiter = trio.CapacityLimiter(AT_ONCE)

        async def start(machine: Machine) -> None:
            try:
                async with limiter:
                    told[machine.worker] = await self._start(launcher, machine)
            finally:
                self.hosts.under_way.discard((machine.ns, machine.worker))

        async with trio.open_nursery() as nursery:
            for machine in machines:
                nursery.start_soon(start, machine)
        return [told[machine.worker] for machine in machines]

    async def _start(self, launcher: Launcher, machine: Machine) -> Launched:
        """Ask for one. A provider's refusal ends this one alone."""
        if not self._is_wanted(machine):
            return Launched(
                worker=machine.worker, label=machine.label, instance_id=None, note="it was killed meanwhile"
            )
        instance, note = None, None
        try:
            instance = await launcher.launch(machine)
        except LaunchUnknown as error:
            note = f"{error}; whether there is a machine is found out by itself"
            log.warning("launch of %s (%s): %s", machine.worker, machine.label, note)
        except (LaunchFailed, HttpError) as error:
            log.warning("launch of %s (%s) was refused: %s", machine.worker, machine.label, error)
            await self._noted(machine, partial(self.hosts.never_came, machine.ns, machine.worker))
            return Launched(worker=machine.worker, label=machine.label, instance_id=None, error=error)
        trouble = await self._noted(machine, partial(self.hosts.made, machine.ns, machine.worker, instance))
        note = note or trouble
        return Launched(worker=machine.worker, label=machine.label, instance_id=instance, note=note)

    async def _noted(self, machine: Machine, write: Callable[[], Awaitable[None]]) -> str | None:
        """Write down what is known of a machine that costs money; why that could not be. The others go on."""
        try:
            with trio.CancelScope(shield=True):
                await write()
        except PlaneError as error:  # a full disk, say: the sweep finds out what is not written
            log.warning("what came of the launch of %s could not be written down: %s", machine.worker, error)
            return f"{error}; what became of its machine is found out by itself"
        return None

    def _is_wanted(self, machine: Machine) -> bool:
        row = self._records.machines.get(machine.ns, machine.worker)
        return row is not None and row.state == "asked"

    # --- end

    async def end(self, ns: str, worker_id: str, *, actor: str = "<server>") -> bool:
        """Forget a worker and end its machine; whether there was one. What cannot be ended now is tried again."""
        return (await self.end_worker(ns, worker_id, actor=actor)).had_machine

    async def end_worker(self, ns: str, worker_id: str, *, actor: str, keep_instance: bool = False) -> Ended:
        """As `end`; with `keep_instance` its machine runs on, and is nobody's."""
        machine = self._records.machines.get(ns, worker_id)
        live = machine is not None and machine.is_live
        if machine is not None and live:
            machine = await self._records.machines.change(machine, state="released" if keep_instance else "ending")
        row = self._records.workers.get(ns, worker_id)
        if row is not None:
            await self._workers.remove([row], action="worker.kill", actor=actor)
        if not live or machine is None or keep_instance or (ns, worker_id) in self.hosts.under_way:
            return Ended(had_machine=live and not keep_instance)
        return Ended(had_machine=True, trouble=await self.hosts.end(machine))

    async def release(self, rows: Sequence[WorkerRow]) -> None:
        """The machines of these workers run on, and are nobody's: only their rows go."""
        for row in rows:
            machine = self._records.machines.get(row.ns, row.id)
            if machine is not None and machine.state in ("asked", "made"):
                await self._records.machines.change(machine, state="released")

    # --- who says hello

    def worker_of(self, caller: Caller) -> str | None:
        """The launched worker that a daemon's credential is for."""
        if caller.worker is None or self._records.machines.get(caller.ns, caller.worker) is None:
            return None
        return caller.worker

    # --- providers

    def machines_of(self, ns: str) -> int:
        """How many live whose rows or providers go with a namespace."""
        return sum(row.is_live and ns in (row.ns, row.provider_ns) for row in self._records.machines.all())

    def warnings(self) -> list[str]:
        """What is allowed, and yet probably not meant."""
        host = urlsplit(self.url).hostname or ""
        if host == "localhost" or host.startswith("127."):
            return [f"machines are told to reach this server at {self.url}: LAKESHORE_PUBLIC_URL says another address"]
        return []

    def launcher_of(self, row: ProviderRow) -> Launcher:
        """Of a provider's row. HttpError 409, 422, 501."""
        return self._launcher(row, {})

    def provider(self, ns: str, wanted: str) -> ProviderRow:
        """One of the namespace's org. HttpError 409, 422."""
        rows = [row for row in providers_of_org(self._records, ns) if row.plain_name == wanted]
        row = next((row for row in rows if row.deleted_at is None), None)
        if row is None and rows:
            hint = f"`lakeshore providers restore {wanted}` brings it back"
            raise HttpError(409, f"provider {wanted!r} was removed", field="provider", hint=hint)
        if row is None:
            raise bad_field(
                "provider", f"there is no provider {wanted!r}", hint="`lakeshore providers list` shows them"
            )
        return row

    def _check(self, row: ProviderRow, wanted: LaunchSpec) -> None:
        """Refuse what no launcher would take. HttpError 413, 422, 501."""
        capacity = wanted.capacity
        if row.launcher not in MAKERS and not LAUNCHERS[row.launcher].launches:
            hint = f"{row.name} is {row.launcher}: use `lakeshore daemon install <ssh-host>`"
            raise HttpError(422, _ONLY, field="provider", hint=hint)
        if row.launcher == "EC2" and not any(row.kwargs.get(name) or capacity.get(name) for name in _IMAGES):
            hint = f"`lakeshore providers update {row.name} --kwarg image_id=<ami>`"
            raise HttpError(422, "EC2 launch requires image_id", field="capacity.image_id", hint=hint)
        check_capacity(row.launcher, capacity)
        scripts = sum(len(str(body.get("script", ""))) for body in _scripts(wanted)) * wanted.count
        if scripts > MOST_SCRIPTS:
            raise bad_field(
                "setup_commands",
                f"are kept for each machine, and of all {wanted.count} they have more than {MOST_SCRIPTS >> 20} MiB",
                hint="let them download the larger part",
                status=413,
            )

    def _launcher(self, row: ProviderRow, capacity: Mapping[str, Any]) -> Launcher:
        try:
            return self.hosts.launcher(row, capacity)
        except LaunchFailed as error:
            raise refusal(error, row) from error


def refusal(error: LaunchFailed | HttpError, row: ProviderRow) -> HttpError:
    """How a provider's fault is answered."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, Unsupported):
        return HttpError(422, str(error), hint=error.hint)
    return HttpError(502, f"provider {row.plain_name!r}: {error}", hint=error.hint, **code_of(error, row))


def code_of(error: LaunchFailed | HttpError, row: ProviderRow) -> dict[str, Any]:
    """The provider's own word, as answers have it."""
    if isinstance(error, HttpError):
        return dict(error.extra)
    return {} if error.code is None else {"awsCode" if row.launcher == "EC2" else "code": error.code}


def _info(machine: Machine) -> str:
    """What its row tells before it said hello."""
    return json.dumps({"capabilities": {"runners": list(machine.runners)}, "versions": {}, "tags": list(machine.tags)})


def _scripts(wanted: LaunchSpec) -> list[dict[str, Any]]:
    """What its daemon runs once it has said hello, in this order; `startup` is the last (S-767)."""
    last = [] if wanted.startup is None else [{"script": wanted.startup, "name": "startup"}]
    return [*map(dict, wanted.setup_commands), *last]


def _labels(wanted: LaunchSpec) -> list[str]:
    """A name and a label of several are prefixes."""
    given = wanted.label or wanted.name
    if given is None:
        return [f"{wanted.provider}-{secrets.token_hex(_SHORT // 2)}" for _ in range(wanted.count)]
    return _each(given, wanted.count)


def _each(given: str, count: int) -> list[str]:
    return [given] if count == 1 else [f"{given}-{place:02}" for place in range(count)]
