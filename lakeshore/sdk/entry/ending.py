"""How another process ended, as far as that can be known by who is not its parent (K-12): `{code, signal, oom}`.

A parent is told, and whoever else must look. While the dead wait to be reaped, /proc shows their status to their own
user; once they are reaped, a pidfd that was opened before still tells it (Linux 6.15). `lakeshore worker` leaves its
dead unreaped for a moment, so that the first way is open on every Linux. Without either `code` and `signal` are None.

`oom` is whether a SIGKILL was for want of memory (`lakeshore/_deaths.py`), False when the end was another.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any

from lakeshore._deaths import MemoryKills, signal_name

_INFO = struct.Struct("<QQ12i")  # struct pidfd_info in its first version
_INFO_EXIT = 1 << 3
_GET_INFO = 0xC000FF0B | _INFO.size << 16  # _IOWR(0xFF, 11, struct pidfd_info)


class Watched:
    """One process, looked at while it lives. `pidfd` is one of it, or -1 where there is no such thing."""

    def __init__(self, pid: int, pidfd: int = -1) -> None:
        self._pid, self._pidfd = pid, pidfd
        self._kills = MemoryKills(pid)

    def look(self) -> None:
        """Kills for want of memory up to now were of others."""
        self._kills.look()

    def ended(self) -> dict[str, Any]:
        """How it ended: `{code, signal, oom}`. For a process that lives on all three are None."""
        status = _reaped(self._pidfd)
        if status is None:
            status = _zombie(self._pid)
        if status is None:
            return {"code": None, "signal": None, "oom": None}
        if not os.WIFSIGNALED(status):
            return {"code": os.WEXITSTATUS(status), "signal": None, "oom": False}
        number = os.WTERMSIG(status)
        oom = self._kills.told() if number == signal.SIGKILL else False
        return {"code": None, "signal": signal_name(number), "oom": oom}


def _reaped(pidfd: int) -> int | None:
    """The wait status that the kernel keeps for holders of a pidfd, once the process was reaped."""
    if pidfd < 0 or not sys.platform.startswith("linux"):
        return None
    buffer = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except OSError:  # an older kernel, or not reaped yet
        return None
    told = _INFO.unpack(buffer)
    return int(told[13]) if told[0] & _INFO_EXIT else None


def _zombie(pid: int) -> int | None:
    """The wait status of a process that nobody has reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[-1]) if fields[0] in "ZX" else None
