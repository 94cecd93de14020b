"""A launcher whose errors are the contract's, whatever its provider answers.

What another system says may make no sense in ways that no launcher thinks of, and one that stumbles over it must not
take the server along: that is a fault of that provider's, told as one, and with its traceback in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ..http import HttpError
from .contract import Instance, Launcher, LaunchFailed, LaunchUnknown, Machine, Maker, Means, Resolved

log = logging.getLogger(__name__)


class Guarded:
    """`launcher`, with LaunchFailed and HttpError as its only errors."""

    def __init__(self, name: str, launcher: Launcher) -> None:
        self._name, self._launcher = name, launcher

    async def launch(self, machine: Machine) -> str | None:
        """As the contract says; what went wrong may have made a machine."""
        with _told(self._name, LaunchUnknown):
            return await self._launcher.launch(machine)

    async def instances(self) -> list[Instance]:
        """As the contract says."""
        with _told(self._name):
            return await self._launcher.instances()

    async def terminate(self, instance_id: str) -> None:
        """As the contract says."""
        with _told(self._name):
            await self._launcher.terminate(instance_id)

    async def console(self, instance_id: str, *, latest: bool = True) -> str:
        """As the contract says."""
        with _told(self._name):
            return await self._launcher.console(instance_id, latest=latest)


def made(make: Maker, provider: Resolved, means: Means) -> Launcher:
    """The launcher of a provider. LaunchFailed, HttpError."""
    with _told(provider.name):
        return Guarded(provider.name, make(provider, means))


@contextmanager
def _told(name: str, kind: type[LaunchFailed] = LaunchFailed) -> Iterator[None]:
    try:
        yield
    except (LaunchFailed, HttpError):
        raise
    except Exception as error:
        log.exception("provider %s: its launcher stumbled", name)
        raise kind(
            f"what it answers makes no sense ({type(error).__name__})", hint="the server's log has the details"
        ) from error
