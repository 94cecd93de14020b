"""What a provider's launcher does, and how it says that it could not.

    LaunchFailed            the provider refused: there is no machine
      LaunchUnknown         nobody knows whether there is one: its answer did not come. The sweep looks for it
      Unreachable           the provider was not reached, and nothing was asked of it
      Unsupported           this kind of provider cannot do it

Rules for a launcher: `launch` of the same `worker` again makes no second machine; what it makes carries `tags_of`, by
which `instances` finds it again; nothing blocks the loop, every wait is bounded; no message holds a secret, a token or
userdata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from ..aws import Aws
from ..google import Google

WORKER_TAG: Final = "lakeshore-worker"
NAMESPACE_TAG: Final = "lakeshore-namespace"


class LaunchFailed(Exception):
    """The provider's fault, answered 502. `code` is the provider's own word for it."""

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


class LaunchUnknown(LaunchFailed):
    """The answer was lost: a machine may have been made."""


class Unreachable(LaunchFailed):
    """The provider was not reached."""


class Unsupported(LaunchFailed):
    """No provider of this kind can do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The one file that a machine runs: here, and below the server's address, where `token` may fetch it."""

    path: Path
    sha256: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One that is wanted. `userdata` is the rendered script, complete; whoever copies files instead makes the daemon's
    configuration with `bootstrap.config.rendered(machine, …)`, and writes `token` into a file of mode 0600 beside it.

    `name` is what the cloud is to call it, where that is not the label. `capacity` is the caller's, as it is;
    `cloud_tags` go onto the machine besides `tags_of`. `url`: the server's, as the machine reaches it.
    """

    ns: str
    worker: str
    label: str
    url: str
    program: Program
    token: str = field(repr=False)
    userdata: str = field(repr=False)
    name: str | None = None
    queues: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    keep_alive_s: int = -1
    bootstrap_script: str | None = None
    capacity: Mapping[str, Any] = field(default_factory=dict)
    cloud_tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One that there is, ended ones as long as the provider tells of them. `state` is one of `wire.states.HOST`,
    `worker` what `tags_of` put on it.
    """

    id: str
    state: str
    name: str | None = None
    type: str | None = None
    address: str | None = None
    since: str | None = None
    worker: str | None = None


class Launcher(Protocol):
    """One provider, its kwargs resolved. Every method may raise LaunchFailed."""

    async def launch(self, machine: Machine) -> str | None:
        """Make it; its id at the provider, None while the provider has none yet."""
        ...

    async def instances(self) -> list[Instance]:
        """What it runs."""
        ...

    async def terminate(self, instance_id: str) -> None:
        """End one. One that is not there has ended."""
        ...

    async def console(self, instance_id: str, *, latest: bool = True) -> str:
        """What its console printed; `latest`: up to now, where the provider can tell. Unsupported."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A provider that may be used: its kwargs with the values of its secrets, and `capacity` laid over them."""

    ns: str
    name: str
    launcher: str
    kwargs: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What launchers of one server share."""

    aws: Aws
    google: Google


class Maker(Protocol):
    """Makes the launcher of a provider. Raises LaunchFailed, HttpError 422 for what is missing in its kwargs."""

    def __call__(self, provider: Resolved, means: Means) -> Launcher: ...


def tags_of(machine: Machine) -> dict[str, str]:
    """What marks a machine as ours."""
    return {WORKER_TAG: machine.worker, NAMESPACE_TAG: machine.ns}
