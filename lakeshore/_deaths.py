"""How a process died, in the words that are reported: `{code, signal, oom}`.

`signal` is a name. `oom` is True for a SIGKILL while the kernel counted a kill for want of memory in the process's
cgroup, False when it counted none or the end was another, None when it cannot be told: no counter, or one of a whole
machine that rose.
"""

from __future__ import annotations

import os
import signal

_MACHINE = "/proc/vmstat"


def signal_name(number: int) -> str:
    """SIGKILL for 9; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class MemoryKills:
    """The counter of one process's cgroup. To be made while the process lives."""

    __slots__ = ("_counters", "seen")

    def __init__(self, pid: int) -> None:
        self._counters = _counters(pid)
        self.seen = self._count()
        """Such kills up to the last look; None where nobody counts."""

    def look(self) -> None:
        """Kills up to now were of others."""
        self.seen = self._count()

    def told(self) -> bool | None:
        """Whether the SIGKILL that was just seen was such a kill."""
        return self.told_since(self.seen)

    def told_since(self, before: int | None) -> bool | None:
        """The same, of a process that began when so many had been seen."""
        now = self._count()
        if before is None or now is None:
            return None
        if now == before:
            return False
        return None if self._counters == _MACHINE else True

    def _count(self) -> int | None:
        for line in _lines(self._counters):
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdecimal():
                return int(value)
        return None


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _counters(pid: int) -> str:
    """The file that counts the kills of its cgroup, version 2 or 1; the machine's where there is none."""
    for line in _lines(f"/proc/{pid}/cgroup"):
        _number, controllers, group = line.split(":", 2)
        if controllers == "":
            found = os.path.join("/sys/fs/cgroup", group.lstrip("/"), "memory.events.local")
        elif controllers == "memory":
            found = os.path.join("/sys/fs/cgroup/memory", group.lstrip("/"), "memory.oom_control")
        else:
            continue
        if os.path.exists(found):
            return found
    return _MACHINE
