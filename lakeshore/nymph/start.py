"""How a daemon starts: it reads its configuration, and looks at its host while the rest of it is being loaded.

A host without a metadata service is asked for one for over half a second; loading takes half of that. The look is taken
by a thread of its own. Reference: nymph/daemons, "Boot sequence"; N-064, N-065.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import trio

from . import lookup
from .detect import HostFacts, detect
from .lookup import Flags


def run(flags: Flags, *, record: Path | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the daemon until it leaves; its exit code. Raises ConfigError. `record` gets what happened."""
    boot = lookup.boot(flags, environ)
    facts = look(environ)
    from . import daemon  # wall: meanwhile

    return daemon.run(boot, facts, record=record, environ=environ)


def look(environ: Mapping[str, str]) -> Future[HostFacts]:
    """What the host is, later."""
    found: Future[HostFacts] = Future()

    def detected() -> None:
        try:
            found.set_result(trio.run(partial(detect, environ=environ)))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is asked for
            found.set_exception(error)

    threading.Thread(target=detected, name="nymph-detect", daemon=True).start()
    return found
