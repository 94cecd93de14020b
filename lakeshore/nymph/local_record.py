"""Which daemon is this machine's own: what `lakeshore daemon status` and `daemon stop` look at.

    local.json    {pid, worker_id, server, started_at, start}, 0600, in $DREAMLAKE_STATE_DIR or
                  ~/.config/dreamlake/daemons

Written at the boot when it can be, and again when the server has named the worker; removed at the end by the daemon
that wrote it. Of several daemons the first that lives keeps the place. `start` tells a process from a later one of the
same number. Reference: cli/examples/daemons-and-exec, "daemon status"; N-423, C-236, C-366.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from ..config.private_files import write_private
from .keeping.processes import look

NAME: Final = "local.json"
_MOST: Final = 64 << 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What is recorded. `worker_id` is None until the server has named it; `started_at` is in Unix seconds."""

    pid: int
    worker_id: str | None
    server: str
    started_at: float
    start: str = ""

    def lives(self) -> bool:
        """Whether that very process runs."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it is another user's
        found = look(self.pid)
        if found is None:
            return not os.path.isdir("/proc/self")  # a system that does not tell more
        return not found.zombie and self.start in ("", found.start)


def place(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the record lies."""
    named = environ.get("DREAMLAKE_STATE_DIR")
    if named:
        return Path(named).expanduser() / NAME
    return Path(environ.get("HOME") or "~").expanduser() / ".config" / "dreamlake" / "daemons" / NAME


def read(environ: Mapping[str, str] = os.environ) -> Local | None:
    """What is recorded, of a daemon that may have gone; None when nothing is. OSError when it may not be read."""
    try:
        with place(environ).open("rb") as file:
            found = json.loads(file.read(_MOST))
        return Local(
            pid=_pid(found["pid"]),
            worker_id=None if found.get("worker_id") is None else str(found["worker_id"]),
            server=str(found.get("server", "")),
            started_at=float(found.get("started_at", 0.0)),
            start=str(found.get("start", "")),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class LocalRecord:
    """This daemon's own. Nothing of it raises: a home that is read-only or full costs a daemon nothing."""

    def __init__(self, server: str, environ: Mapping[str, str] = os.environ) -> None:
        found = look(os.getpid())
        start = "" if found is None else found.start
        self._local = Local(pid=os.getpid(), worker_id=None, server=server, started_at=time.time(), start=start)
        self._environ = environ
        self._is_ours = False

    def write(self, worker_id: str | None = None) -> bool:
        """Record this daemon, under the name that it has by now; whether it is the machine's own."""
        try:
            before = read(self._environ)
            if before is not None and (before.pid, before.start) != (self._local.pid, self._local.start):
                if before.lives():
                    _log.debug("process %d is this machine's own daemon, and stays it", before.pid)
                    return False
            elif before is not None and not self._is_ours:
                self._local = replace(self._local, started_at=before.started_at)  # it has become a newer program
            self._local = replace(self._local, worker_id=worker_id)
            write_private(place(self._environ), json.dumps(asdict(self._local)), beside=f".{NAME}.{self._local.pid}")
        except OSError as error:
            _log.debug("no record of this daemon at %s: %s", place(self._environ), error)
            return False
        self._is_ours = True
        return True

    def remove(self) -> None:
        """The daemon leaves."""
        try:
            found = read(self._environ) if self._is_ours else None
            if found is not None and (found.pid, found.start) == (self._local.pid, self._local.start):
                place(self._environ).unlink(missing_ok=True)
        except OSError as error:
            _log.debug("the record of this daemon stays: %s", error)


def _pid(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        raise ValueError("no pid")
    return value
