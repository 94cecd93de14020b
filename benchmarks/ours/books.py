"""What a server has committed, and its disk synced, during a row: how many invocations share a sync."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass

from harness.slow_sync import SlowDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Since the server began: invocations that exist, commits, syncs of its disk."""

    invocations: int
    commits: int
    syncs: int

    def since(self, before: Books, row: str) -> dict[str, list[float]]:
        """`<row>_tasks_sync`: new invocations for each sync; `<row>_syncs_commit`."""
        syncs = self.syncs - before.syncs
        return {
            f"{row}_tasks_sync": [(self.invocations - before.invocations) / max(1, syncs)],
            f"{row}_syncs_commit": [syncs / max(1, self.commits - before.commits)],
        }


def read(url: str, disk: SlowDisk) -> Books:
    """Now. The server is in open mode."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return Books(
        invocations=sum(int(n) for name, n in told.items() if name.startswith("lakeshore_invocations{")),
        commits=int(told["lakeshore_commits_total"]),
        syncs=disk.syncs().count,
    )
