"""What the system knows about processes, and the few calls of it that Python has no name for.

Linux tells everything in /proc. Elsewhere a job is its process group, and what is not known is empty.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from collections.abc import Iterable

LINUX = sys.platform.startswith("linux")
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36  # of prctl(2)
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE
_libc = ctypes.CDLL(None, use_errno=True)
if LINUX:
    _libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Process:
    """A line of the process table. `start` is in clock ticks since boot: with pid and boot it names a process."""

    __slots__ = ("group", "parent", "pid", "session", "start", "zombie")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.zombie = fields[0] in (b"Z", b"X")
        self.parent, self.group, self.session = int(fields[1]), int(fields[2]), int(fields[3])
        self.start = fields[19].decode()


def look(pid: int) -> Process | None:
    """The process, a zombie included; None when there is none, or this system does not tell."""
    line = _read(f"/proc/{pid}/stat", 4096)
    return Process(pid, line[line.rindex(b")") + 2 :].split()) if line else None


def _read(path: str, most: int) -> bytes:
    """Empty where there is nothing to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most)
    except OSError:  # it is just going
        return b""
    finally:
        os.close(fd)


def table() -> dict[int, Process]:
    """Everything that runs; zombies do not."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    found = (look(int(name)) for name in names if name.isdecimal())
    return {process.pid: process for process in found if process is not None and not process.zombie}


def children() -> list[int] | None:
    """The direct children of this process; None where that is not told at once."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:
            return [int(word) for word in file.read(1 << 20).split()]
    except OSError:
        return None


def below(pids: Iterable[int], everything: dict[int, Process]) -> set[int]:
    """These and all that descends from them."""
    families: dict[int, list[int]] = {}
    for process in everything.values():
        families.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    todo = list(pids)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += families.get(pid, ())
    return found


def variable(pid: int, name: str) -> str | None:
    """The value that a variable had when the process began; None when it had none or may not be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read()
    except OSError:
        return None
    for entry in data.split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key == name.encode():
            return os.fsdecode(value)
    return None


def boot_id() -> str:
    """The name of this run of the machine; empty where it has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(64).decode().strip()
    except OSError:
        return ""


def group_lives(leader: int) -> bool:
    """Whether the group has a member, a zombie included."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send(number: int, *, groups: Iterable[int] = (), pids: Iterable[int] = ()) -> int | None:
    """Signal groups and processes; those that are gone are none. What is another user's is asked for through `sudo -n`
    (a job that was begun so): the pid of that helper, which the caller reaps.
    """
    refused = []
    for group in groups:
        try:
            os.killpg(group, number)
        except PermissionError:
            refused.append(f"-{group}")
        except ProcessLookupError:
            continue
    for pid in pids:
        try:
            os.kill(pid, number)
        except PermissionError:
            refused.append(str(pid))
        except ProcessLookupError:
            continue
    if not refused or os.geteuid() == 0:
        return None
    try:
        return os.posix_spawnp(
            "sudo", ["sudo", "-n", "kill", f"-{int(number)}", "--", *refused], os.environ, setpgroup=0
        )
    except OSError:
        return None


def adopt_orphans() -> bool:
    """What loses its parent below this process becomes our child, not init's. False where there is no such thing."""
    return LINUX and _libc.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent dies, where it can."""
    if LINUX:
        _libc.prctl(_PDEATHSIG, int(number), 0, 0, 0)


def drop(path: str, start: int, end: int) -> bool:
    """Give the disk back what stands between two offsets; size and offsets stay. False where the file system cannot."""
    if not LINUX:
        return False
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(_libc.fallocate(fd, _PUNCH_HOLE, start, end - start) == 0)
    finally:
        os.close(fd)
