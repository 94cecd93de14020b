"""Memory and CPU of process trees, from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

TICKS_S = os.sysconf("SC_CLK_TCK")


def tree(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants. Descendants that were adopted by init are found by their session."""
    parent: dict[int, int] = {}
    session: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                parent[int(entry)], session[int(entry)] = int(fields[1]), int(fields[3])
    found = set(roots)
    grew = True
    while grew:
        more = {pid for pid in parent if pid not in found and (parent[pid] in found or session[pid] in found)}
        grew = bool(more)
        found |= more
    return sorted(found)


def pss_mib(pids: Iterable[int]) -> float:
    """Proportional set size, all together, in MiB."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def rss_mib(pids: Iterable[int]) -> float:
    """Resident set size, all together, in MiB; what is shared is counted once for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20


def count(pids: Iterable[int], what: str) -> int:
    """Entries below /proc/<pid>/<what>, all together: `fd` are open files, `task` are threads."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{pid}/{what}"))
    return total


def cpu_s(pids: Iterable[int]) -> float:
    """Time on a processor so far, of all threads together; to the nanosecond where the kernel keeps it."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            threads = [Path(f"/proc/{pid}/task/{thread}") for thread in os.listdir(f"/proc/{pid}/task")]
            if (threads[0] / "schedstat").exists():
                total += sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
            else:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / TICKS_S
    return total


def idle(roots: Iterable[int], for_s: float, prefix: str = "idle") -> dict[str, list[float]]:
    """What a resting tree costs: `…_pss_mib`, `…_cpu_percent` of one core, `…_processes`."""
    pids = tree(roots)
    before, at = cpu_s(pids), time.monotonic()
    time.sleep(for_s)
    used = (cpu_s(pids) - before) / (time.monotonic() - at)
    return {
        f"{prefix}_pss_mib": [pss_mib(pids)],
        f"{prefix}_cpu_percent": [used * 100],
        f"{prefix}_processes": [float(len(pids))],
    }
