"""A daemon on a host beside what people use instead, on the same no-op: medians of at least three.

    python benchmarks/daemon --setup        HyperQueue into the peers' environment (build/bench-venv)
    python benchmarks/daemon                everything; about two minutes
    python benchmarks/daemon --quick --json

Reference: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS.parent)]

from harness.processes import ROOT, Children, NotStarted  # noqa: E402

from daemon import ours, peers  # noqa: E402  # the script's directory first

PEER_PYTHON = ROOT / "build" / "bench-venv" / "bin" / "python"
HYPERQUEUE = "hyperqueue==0.27.0"
LINES = (
    ("exec_p50_ms", "exec round trip p50, ms", "≤ 15"),
    ("exec_p99_ms", "exec round trip p99, ms", ""),
    ("ssh_master_p50_ms", "  ssh over a ControlMaster", ""),
    ("ssh_p50_ms", "  ssh, a connection each", ""),
    ("execs_16_s", "execs a second, 16 at a time", ""),
    ("execs_64_s", "execs a second, 64 at a time", "≥ 400"),
    ("hq_programs_s", "  HyperQueue, programs", ""),
    ("execs_at_once_s", "200 at once: s until all have ended", ""),
    ("udf_warm_p50_ms", "function, warm, p50 ms", "≤ 25"),
    ("udf_cold_p50_ms", "function, cold, p50 ms", ""),
    ("udfs_s", "functions a second", "≥ 60"),
    ("hq_functions_s", "  HyperQueue, functions", ""),
    ("daemon_start_s", "start to the first poll, s", "≤ 1"),
    ("daemon_idle_pss_mib", "idle daemon with its keeper, MiB PSS", "≤ 40"),
    ("daemon_idle_cpu_percent", "idle daemon, % of a core", "≤ 0.2"),
    ("daemon_idle_processes", "  processes", ""),
    ("daemon_warm_pss_mib", "with a nest and its spares, MiB PSS", ""),
    ("daemon_warm_cpu_percent", "  % of a core", ""),
    ("daemon_warm_processes", "  processes", ""),
)


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks/daemon", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer of each")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--ours", action="store_true", help="without the peers")
    parser.add_argument("--setup", action="store_true", help="install HyperQueue for the peers' rows")
    given = parser.parse_args()
    if given.setup:
        if not PEER_PYTHON.exists():
            subprocess.run([sys.executable, "-m", "venv", str(PEER_PYTHON.parents[1])], check=True)
        return subprocess.run([str(PEER_PYTHON), "-m", "pip", "install", "-q", HYPERQUEUE], check=False).returncode
    with tempfile.TemporaryDirectory(prefix="lakeshore-bench-") as directory, Children(Path(directory)) as children:
        figures = measured(children, 10 if given.quick else 1, with_peers=not given.ours)
    if given.json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return 0
    for key, name, goal in LINES:
        if key in figures:
            sys.stdout.write(f"{name:<42} {figures[key]:>10.3g}   {goal}\n")
    return 0


def measured(children: Children, less: int, *, with_peers: bool) -> dict[str, float]:
    """{key: median}. `less` divides how many of each are done."""
    stage = ours.Stage(children)
    found: dict[str, list[float]] = {"daemon_start_s": [stage.start_s]}

    def row(measure: Callable[[], dict[str, float]], repeat: int = 3) -> None:
        for _ in range(repeat):
            for key, figure in measure().items():
                found.setdefault(key, []).append(figure)

    try:
        row(lambda: ours.idle(stage, 20 / less), 1)
        row(lambda: ours.exec_round_trip(stage, 200 // less))
        row(lambda: ours.exec_rate(stage, 1600 // less, 16))
        row(lambda: ours.exec_rate(stage, 3200 // less, 64))
        row(lambda: ours.concurrent_execs(stage, ours.CONCURRENT))
        row(lambda: ours.udf_round_trip(stage, 40 // less, warm=True))
        row(lambda: ours.idle(stage, 20 / less, "warm"), 1)  # before the cold ones, each of which has a nest
        row(lambda: ours.udf_round_trip(stage, 20 // less, warm=False))
        row(lambda: ours.udf_rate(stage, 200 // less))
        if with_peers:
            _peers(children, less, row)
    finally:
        stage.close()
    return {key: statistics.median(figures) for key, figures in found.items()}


def _peers(children: Children, less: int, row: Callable[[Callable[[], dict[str, float]]], None]) -> None:
    with peers.sshd(children) as command:
        if command is not None:
            row(lambda: peers.ssh_round_trip(command, 30 // less))
            row(lambda: peers.kept_ssh_round_trip(command, 60 // less, children.directory))
    if peers.has_hyperqueue(PEER_PYTHON):
        try:
            row(lambda: peers.hyperqueue(children, PEER_PYTHON, 200 // less, 600 // less))
        except (NotStarted, subprocess.TimeoutExpired) as error:
            sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    sys.exit(main())
