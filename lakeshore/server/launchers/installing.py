"""Daemons on hosts that there are: this server's program, with its token and its file, put there and started.

    id of an instance    the worker's: its directory on the host is called by it, so that a second try finds the first
    a blocking step      in a thread, of which there are few, and with an end of its own
    what failed          leaves nothing on the host but its log; what may have begun is LaunchUnknown, and is listed

Rule: an id that comes back from people names a directory there, so it has the form of ours or it is refused.
Reference: nymph/install-remote-daemon, "What it does"; DECISIONS, "SSH and SLURM launch".
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from ...remote import launch as steps
from ...remote.errors import RemoteFailure
from ...remote.here import Here
from ...remote.ssh import Connection
from ..bootstrap.config import rendered
from .contract import Instance, LaunchFailed, LaunchUnknown, Machine, Resolved, Unreachable, Unsupported
from .threads import Threads

_threads: Final = Threads()
GRACE_S: Final = 10
"""What jobs of a daemon that is killed get to end."""
_ID: Final = re.compile(r"[0-9a-f]{24}")
_BY_DOCKER: Final = ("docker", "gvisor")
"""Runners whose daemon must reach docker's socket."""
_UNFINISHED: Final = "unfinished"
_STATES: Final = {
    "running": "running",
    "RUNNING": "running",
    "COMPLETING": "stopping",
    "ended": "stopped",
    _UNFINISHED: "stopped",
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"), "starting"),
    **dict.fromkeys(("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"), "stopped"),
}


class Installer(ABC):
    """A launcher that installs: onto one host, or through a cluster's login node."""

    how: steps.How = "process"

    def __init__(self, provider: Resolved) -> None:
        self._provider = provider

    @abstractmethod
    def _connected(self) -> AbstractContextManager[Connection]:
        """The host, connected to when the first command runs. RemoteFailure."""

    @abstractmethod
    def _options(self, machine: Machine) -> dict[str, Any]:
        """What `start` is told besides. Unsupported for what cannot be had there."""

    async def launch(self, machine: Machine) -> str | None:
        """Install it; the worker's id."""
        options = self._options(machine)
        return await _threads.run(self._provider.ns, lambda: self._installed(machine, options))

    async def instances(self) -> list[Instance]:
        """The daemons that lie there, of whichever server."""
        return await _threads.run(self._provider.ns, self._listed)

    async def terminate(self, instance_id: str) -> None:
        """Stop it, and remove its files."""
        if not _ID.fullmatch(instance_id):
            raise Unsupported(f"{instance_id!r} is no daemon that was launched", hint="it is called as its worker is")
        await _threads.run(self._provider.ns, lambda: self._removed(instance_id))

    async def console(self, instance_id: str, *, latest: bool = True) -> str:
        """No host keeps one."""
        raise Unsupported(
            f"launch log not supported for {self._provider.launcher}",
            hint=f"the daemon's log is {steps.log_path(instance_id)} on its host",
        )

    # --- in a thread

    def _installed(self, machine: Machine, options: dict[str, Any]) -> str:
        launch_id = machine.worker
        with self._reached() as connection:
            known = {one.launch_id: one for one in steps.listed(connection)}
            if launch_id in known and known[launch_id].state == _UNFINISHED:
                steps.give_up(connection, launch_id, keep_log=False)
                del known[launch_id]
            if launch_id not in known:
                _check_label(connection, machine.label, known.values())
                with _told(LaunchFailed):
                    self._install(connection, machine, options)
        return launch_id

    def _install(self, connection: Connection, machine: Machine, options: dict[str, Any]) -> None:
        launch_id = machine.worker
        try:
            size = os.stat(machine.program.path).st_size
        except OSError as error:
            raise LaunchFailed(f"the program for it cannot be read here: {error.strerror}") from error
        host = steps.prepare(
            connection,
            launch_id,
            python=str(self._provider.kwargs.get("python") or ""),
            size=size,
            docker_group=any(one in _BY_DOCKER for one in machine.runners),
            server=machine.url,
        )
        if isinstance(connection, Here):
            host = replace(host, has_rsync=False)
        sent = False
        try:
            _check_reach(connection, machine.url, host.unreached)
            steps.send(connection, host, launch_id, machine.program.path, show=False)
            sent = True
            steps.start(
                connection,
                host,
                launch_id,
                token=machine.token,
                config=rendered(machine, token_file="token", workdir=f"{host.directory(launch_id)}/work"),  # noqa: S106
                sha256=machine.program.sha256,
                how=self.how,
                **options,
            )
        except (RemoteFailure, LaunchFailed) as error:
            if not steps.give_up(connection, launch_id, keep_log=sent) and sent:
                raise LaunchUnknown(str(error), hint=error.hint) from error
            raise

    def _listed(self) -> list[Instance]:
        with self._reached() as connection:
            return [
                Instance(
                    id=one.launch_id,
                    state=_STATES.get(one.state, "unknown"),
                    name=one.label or None,
                    address=connection.place.alias,
                    worker=one.launch_id if _ID.fullmatch(one.launch_id) else None,
                )
                for one in steps.listed(connection)
            ]

    def _removed(self, launch_id: str) -> None:
        with self._reached() as connection:
            steps.remove(connection, launch_id, grace_s=GRACE_S)

    @contextmanager
    def _reached(self) -> Iterator[Connection]:
        with _told(Unreachable), self._connected() as connection, connection:
            yield connection


def _check_label(connection: Connection, label: str, known: Iterable[steps.Listed]) -> None:
    """A daemon is known on its host by its label: the second of one does not start."""
    twin = next(
        (one for one in known if one.label == label and _STATES.get(one.state) in ("starting", "running")), None
    )
    if twin is not None:
        raise LaunchFailed(
            f"a daemon called {label!r} is on {connection.place.alias} already: {twin.launch_id}",
            hint="give this one another --name, or end that one first (`lakeshore daemon kill`)",
        )


def _check_reach(connection: Connection, url: str, why: str | None) -> None:
    """A daemon that does not find its server would only be heard of by its absence."""
    if why:
        raise LaunchFailed(
            f"{connection.place.alias} does not reach this server at {url}: {why}",
            hint="set LAKESHORE_PUBLIC_URL on the server to an address that its hosts reach; to a server on a laptop "
            "`lakeshore daemon install <ssh-host> --reverse-tunnel` leads",
        )


@contextmanager
def _told(kind: type[LaunchFailed]) -> Iterator[None]:
    """RemoteFailure becomes the contract's error."""
    try:
        yield
    except RemoteFailure as error:
        raise kind(str(error), hint=error.hint) from error
