"""One table for several disks: each row's figure with so much added to every sync, and its ratio to nothing added."""

from __future__ import annotations

from collections.abc import Sequence

from .results import Results
from .table import figure

LINES = (
    ("round trip, p50 ms", "rtt_p50_ms"),
    ("round trip, p99 ms", "rtt_p99_ms"),
    ("tasks/s, one submit loop, joined", "loop_tasks_s"),
    ("tasks/s, 16 threads", "threads_tasks_s"),
    ("tasks/s, asyncio.gather of Queue.call", "gather_tasks_s"),
    ("tasks/s, asyncio.gather of remote", "gather_remote_tasks_s"),
    ("submits/s, one by one", "submit_one_s"),
    ("submits/s, asyncio.gather", "submit_gather_s"),
    ("unrelated request while submits pour in, p50 ms", "unrelated_p50_ms"),
    ("unrelated request while submits pour in, p99 ms", "unrelated_p99_ms"),
    ("one sync, ms", "sync_ms"),
    ("tasks for each sync: one submit loop", "loop_tasks_sync"),
    ("tasks for each sync: 16 threads", "threads_tasks_sync"),
    ("tasks for each sync: gather", "gather_tasks_sync"),
    ("submits for each sync: submits that pour in", "unrelated_tasks_sync"),
    ("syncs of one commit: gather", "gather_syncs_commit"),
)


def column(added_ms: float) -> str:
    """The column of a disk."""
    return f"+{added_ms:g} ms"


def markdown(results: Results, added: Sequence[float]) -> str:
    """Every row that was measured. `added` begins with 0."""
    first, *slower = [column(ms) for ms in added]
    head = ["added to each sync", first]
    for name in slower:
        head += [name, f"× {first}"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for title, key in LINES:
        alone = results.median(first, key)
        cells = [title, figure(alone)]
        for name in slower:
            found = results.median(name, key)
            cells += [figure(found), f"{found / alone:.2f}" if found is not None and alone and key != "sync_ms" else ""]
        if any(cells[1:]):
            lines.append(cells)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
