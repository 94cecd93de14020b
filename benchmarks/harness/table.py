"""The table: one line a row, ratios first (above 1: ours is better), then ours, its goal, and every peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .results import OURS, Results


@dataclass(frozen=True, slots=True)
class Line:
    """`key` of ours, `peer_key` where the peers call it otherwise ("" has no peer), the goal, and what is durable."""

    title: str
    key: str
    peer_key: str
    goal: float | None
    durable: str

    @property
    def more_is_better(self) -> bool:
        return self.key.endswith("_s")


POWER, PROCESS, NONE = "power cut", "process death", "—"
LINES = (
    Line("round trip, HTTP plane, p50 ms", "rtt_p50_ms", "rtt_p50_ms", 0.8, POWER),
    Line("round trip, HTTP plane, p99 ms", "rtt_p99_ms", "rtt_p99_ms", 2.0, POWER),
    Line("tasks/s, one submit loop, joined", "loop_tasks_s", "loop_tasks_s", 2_500, POWER),
    Line("tasks/s, 16 threads", "threads_tasks_s", "loop_tasks_s", 10_000, POWER),
    Line("tasks/s, asyncio.gather of Queue.call", "gather_tasks_s", "loop_tasks_s", 25_000, POWER),
    Line("tasks/s, asyncio.gather of remote", "gather_remote_tasks_s", "loop_tasks_s", None, POWER),
    Line("local plane: tasks/s, loop", "local_power_loop_s", "loop_tasks_s", 5_000, POWER),
    Line("local plane: tasks/s, gather", "local_power_gather_s", "loop_tasks_s", 25_000, POWER),
    Line("local plane: round trip p50 ms", "local_rtt_p50_ms", "rtt_p50_ms", 0.6, POWER),
    Line("local, process: tasks/s, loop", "local_process_loop_s", "loop_tasks_s", 15_000, PROCESS),
    Line("local, process: tasks/s, gather", "local_process_gather_s", "loop_tasks_s", 50_000, PROCESS),
    Line("local, process: round trip p50 ms", "local_process_rtt_p50_ms", "rtt_p50_ms", 0.2, PROCESS),
    Line("submits/s, one by one, HTTP", "submit_one_s", "submit_one_s", 3_600, POWER),
    Line("submits/s, one by one, local", "local_submit_one_s", "submit_one_s", None, POWER),
    Line("submits/s, asyncio.gather, HTTP", "submit_gather_s", "submit_one_s", 50_000, POWER),
    Line("1 MiB argument, round trip p50 ms", "mib_p50_ms", "mib_p50_ms", 4.0, POWER),
    Line("streamed frames/s", "frames_s", "", 100_000, POWER),
    Line("lone frame, yield to reader, ms", "frame_ms", "", 1.0, POWER),
    Line("idle: PSS of all processes, MiB", "idle_pss_mib", "idle_pss_mib", 110, NONE),
    Line("idle: % of one core", "idle_cpu_percent", "idle_cpu_percent", 0.1, NONE),
    Line("2,000 idle workers: MiB above idle", "held_mib", "", 20, NONE),
    Line("2,000 idle workers: % of one core while held", "held_cpu_percent", "", 1, NONE),
    Line("the same with each worker's poll every 20 s", "held_round_cpu_percent", "", 1, NONE),
    Line("2,000 idle workers: a job for each, ms to the last", "held_wake_ms", "", 150, NONE),
    Line("the same, ms of the server's processor", "held_wake_cpu_ms", "", None, NONE),
    Line("lakeshore --help, ms", "help_ms", "", 60, NONE),
    Line("the same from the sources, ms", "help_source_ms", "", None, NONE),
    Line("import, whole process, ms", "import_ms", "import_ms", 25, NONE),
    Line("claim with 1,000,000 terminal rows / empty", "claim_ratio", "", 1.2, NONE),
    Line("floor: fdatasync of 4 KiB, ms", "fsync_ms", "", None, NONE),
    Line("floor: SQLite commits/s, synchronous=FULL", "commit_s", "", None, NONE),
    Line("floor: loopback exchange, ms", "loopback_ms", "", None, NONE),
    Line("floor: python -c pass, ms", "python_ms", "", None, NONE),
)
DURABLE = {"Huey, FULL": POWER, "Huey, OFF": PROCESS, "Celery, always": POWER, "Celery, default": "snapshots"}


def markdown(results: Results) -> str:
    """The whole table."""
    peers = [name for name in DURABLE if name in results.samples]
    head = ["× best durable peer"] if peers else []
    header = ["row", *head, "Lakeshore", "goal", "±", "survives", *(f"{name} ({DURABLE[name]})" for name in peers)]
    lines = [header, ["---", *["---:"] * (len(head) + 3), "---", *["---:"] * len(peers)]]
    for line in LINES:
        ours = results.median(OURS, line.key)
        theirs = [results.median(name, line.peer_key) if line.peer_key else None for name in peers]
        if ours is None and (OURS in results.samples or not any(theirs)):
            continue  # not asked for, or failed: failures are listed below the table
        spread = results.spread(OURS, line.key)
        lines.append(
            [
                line.title,
                *([_ratio(line, ours, peers, theirs)] if peers else []),
                figure(ours),
                _goal(line, ours),
                "" if spread is None else f"{spread * 50:.0f} %",
                line.durable,
                *(figure(value) for value in theirs),
            ]
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def figure(value: float | None) -> str:
    """Three digits or so."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(line: Line, ours: float | None, peers: Sequence[str], theirs: Sequence[float | None]) -> str:
    # Against peers that promise as much or more; where nothing is stored, against all.
    fair = [
        value
        for name, value in zip(peers, theirs, strict=True)
        if value and (line.durable != POWER or DURABLE[name] == POWER)
    ]
    if not fair or not ours:
        return ""
    ratio = ours / max(fair) if line.more_is_better else min(fair) / ours
    return f"**{ratio:.2f}**" if ratio < 10 else f"**{ratio:.0f}**"


def _goal(line: Line, ours: float | None) -> str:
    if line.goal is None:
        return ""
    asked = f"{'≥' if line.more_is_better else '≤'} {line.goal:,.10g}"
    if ours is None:
        return asked
    reached = ours >= line.goal if line.more_is_better else ours <= line.goal
    return f"{asked} {'✓' if reached else '✗'}"
