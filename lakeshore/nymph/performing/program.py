"""Updates: a new program is put in place; becoming it is the last thing that a daemon does. See `update`."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ..core import events, instructions
from ..core.events import Event
from ..transport import Transport
from ..update import Program, UpdateError, install

log = logging.getLogger("nymph.update")


class Updates:
    """One at a time, as the core says."""

    def __init__(
        self,
        tell: Callable[[Event], None],
        nursery: trio.Nursery,
        transport: Transport,
        program: Program | None,
        new_id: Callable[[], str],
    ) -> None:
        self._tell, self._nursery, self._transport = tell, nursery, transport
        self._program, self._new_id = program, new_id

    def install(self, one: instructions.InstallUpdate) -> None:
        self._nursery.start_soon(self._install, one)

    async def _install(self, one: instructions.InstallUpdate) -> None:
        try:
            await install(
                self._transport, self._program, self._new_id(), version=one.version, url=one.url, sha256=one.sha256
            )
        except UpdateError as error:
            self._tell(events.UpdateFailed(version=one.version, reason=str(error)))
        except Exception as error:
            log.exception("the update to %s", one.version)
            self._tell(events.UpdateFailed(version=one.version, reason=f"{type(error).__name__}: {error}"))
        else:
            self._tell(events.UpdateInstalled(version=one.version))
