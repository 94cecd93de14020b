"""How a daemon starts: it reads its configuration, and looks at its host while the rest of it is being loaded.

Most of a start is imports, and half of a host's answers are other programs' starts: those are begun first, on the other
core. A host without a metadata service is asked for one for over half a second, by a thread of its own.
Reference: nymph/daemons, "Boot sequence"; N-064, N-065.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from . import lookup
from .detecting.questions import Questions
from .lookup import Flags

if TYPE_CHECKING:
    from .detect import HostFacts


def run(flags: Flags, *, record: Path | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the daemon until it leaves; its exit code. Raises ConfigError. `record` gets what happened."""
    boot = lookup.boot(flags, environ)
    asked = Questions(environ, darwin=sys.platform == "darwin")
    gc.disable()  # what is loaded stays: a tenth of the time would go into looking for garbage in it
    facts = look(environ, asked)
    from . import daemon  # wall: meanwhile

    gc.freeze()
    gc.enable()
    return daemon.run(boot, facts, record=record, environ=environ)


def look(environ: Mapping[str, str], asked: Questions) -> Future[HostFacts]:
    """What the host is, later."""
    import trio  # wall: the questions are asked before it is loaded

    from .detect import detect  # wall: as above

    found: Future[HostFacts] = Future()

    def detected() -> None:
        try:
            found.set_result(trio.run(partial(detect, environ=environ, asked=asked)))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is asked for
            found.set_exception(error)

    threading.Thread(target=detected, name="nymph-detect", daemon=True).start()
    return found
