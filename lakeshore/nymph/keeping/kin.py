"""Which processes are a job's: its session, its group, what descends from them, and what left them.

A process whose parents are gone becomes the keeper's child (it is the subreaper of all that runs below it). Whose it is
tells the variable `MARK` in its environment, else that no other job can have left it.
"""

from __future__ import annotations

import os

from . import processes
from .protocol import MARK

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .job import Job


class Kin:
    """Of the jobs in `jobs`, of which those in `by_pid` have a program of ours; both are the keeper's, and change."""

    def __init__(self, directory: str, jobs: Mapping[str, Job], by_pid: Mapping[int, Job]) -> None:
        self._directory, self._jobs, self._by_pid = directory, jobs, by_pid
        self._helpers: set[int] = set()
        self._promised: set[int] = set()
        """Of the helpers, those that become a job: no longer their nest's, in whose session they may still be."""
        self._strays: dict[int, frozenset[str]] = {}
        """Processes whose job is not known, by pid: the jobs that may have left them."""

    def helper(self, pid: int) -> None:
        """This child is no job's, until it is the program of one."""
        self._helpers.add(pid)

    def promised(self, pid: int) -> None:
        """This helper becomes a job."""
        self._promised.add(pid)

    def reaped(self, pid: int) -> None:
        """That number is free."""
        self._helpers.discard(pid)
        self._promised.discard(pid)
        self._strays.pop(pid, None)

    def look(self) -> None:
        """Forget those that are gone."""
        if self._strays:
            self._strays = {pid: jobs for pid, jobs in self._strays.items() if os.path.exists(f"/proc/{pid}")}

    def orphans(self) -> bool:
        """A cheap look for all jobs: whether the keeper has a child that is no job's program."""
        found = processes.children()
        if found is None:
            return True
        return any(pid not in self._by_pid and pid not in self._helpers and not self._hatches(pid) for pid in found)

    def _hatches(self, pid: int) -> bool:
        """Whether a nest has just forked it: nobody else can be in a nest's session."""
        process = processes.look(pid)
        nest = None if process is None else self._by_pid.get(process.session)
        return nest is not None and nest.nest

    def members(self, job: Job, everything: dict[int, processes.Process]) -> set[int]:
        """What of a job still runs."""
        if not everything:  # a system that does not tell
            return {job.pid} if job.pid and processes.group_lives(job.pid) else set()
        me = os.getpid()
        own = set()
        if job.pid:
            own = {p.pid for p in everything.values() if job.pid in (p.session, p.group, p.pid) and p.pid != me}
            own -= (self._by_pid.keys() | self._promised) - {job.pid}  # what has just left its nest
        for process in everything.values():
            if process.pid in own or process.pid == me:
                continue
            if job.inherited:
                if processes.variable(process.pid, MARK) == job.directory:
                    own.add(process.pid)
            elif process.parent == me and self._is_left_by(job, process):
                own.add(process.pid)
        return processes.below(own, everything)

    def _is_left_by(self, job: Job, process: processes.Process) -> bool:
        """Whose a child of the keeper is that is no program of a job."""
        if process.pid in self._by_pid or process.pid in self._helpers:
            return False
        if process.session in self._by_pid or process.group in self._by_pid:
            return False
        mark = processes.variable(process.pid, MARK)
        if mark is not None and mark.startswith(self._directory):
            return mark == job.directory
        suspects = self._strays.get(process.pid)
        if suspects is None:
            suspects = frozenset(id_ for id_, other in self._jobs.items() if other.phase != "ended" and not other.nest)
            self._strays[process.pid] = suspects
        others = (self._jobs.get(id_) for id_ in suspects if id_ != job.id)
        return all(other is None or other.phase == "ended" for other in others)

    def signal(self, job: Job, number: int, members: set[int] | None = None) -> None:
        """All of it; `members` when they were just looked for."""
        members = self.members(job, processes.table()) if members is None else members
        # In a nest's group is also what becomes a job and has not left it yet; whoever else it forks sees its end.
        groups = [job.pid] if job.pid and not job.nest and processes.group_lives(job.pid) else []
        grouped = {pid for pid in members if groups and _group(pid) == job.pid}
        helper = processes.send(number, groups=groups, pids=members - grouped)
        if helper is not None:
            self._helpers.add(helper)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
