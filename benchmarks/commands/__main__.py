"""What a command of the one file takes, from fork to exit, against a server on this machine; beside a bare Python.

    python build_pyz.py && python benchmarks/commands --python /usr/bin/python3
    python benchmarks/commands --file dist/lakeshore --file /tmp/before    # two files in turn, side by side
    python benchmarks/commands --quick --json

`cpu` is milliseconds on a processor (of the command alone), which a busy machine changes least; `wall` is by the clock,
`least` of it the fastest. All are of `--count` runs, one of each command and file in turn, after one that writes byte
code. A Python with many packages of its own (pyenv, a virtual environment) starts later; that is in `bare python`.
Reference: benchmarks/README.md, "Commands".
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS.parent)]

from harness import machine  # noqa: E402  # the script's directory first
from harness.processes import ROOT, Children, environment  # noqa: E402
from ours import stages  # noqa: E402

BUILT = ROOT / "dist" / "lakeshore"
GOAL_MS = 150
COMMANDS = (
    "--help",
    "jobs --help",
    "config show",
    "jobs list",
    "jobs list --json",
    "queues ls",
    "daemon list",
    "modes list",
    "secrets list",
    "schedule list",
    "providers list",
    "admin namespace list",
    "auth status",
)
BARE = "bare python"
Took = tuple[float, float]
"""Milliseconds on a processor, and by the clock."""


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks/commands", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="7 runs of each instead of 21")
    parser.add_argument("--count", type=int, help="runs of each (21)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--python", default=sys.executable, help="runs the file (this one)")
    parser.add_argument("--file", type=Path, action="append", help="the one file, again for another (dist/lakeshore)")
    parser.add_argument("--only", action="append", help="a command, again for another (all)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeshore-bench-") as directory, Children(Path(directory)) as children:
        about = machine.describe(Path(directory))
        url, _server = stages.server_alone(children, "state")
        env = environment(
            LAKESHORE_URL=url, LAKESHORE_STATE_DIR=str(children.directory / "state"), HOME=str(children.directory)
        )
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            env.pop(name, None)
        files = [str(file.resolve()) for file in given.file or [BUILT]]
        took = measured(given.python, files, given.only or COMMANDS, given.count or (7 if given.quick else 21), env)
    about["load_after"] = round(os.getloadavg()[0], 1)
    if given.json:
        print(json.dumps({"files": files, "commands": took, "machine": about}))
        return 0
    for at, file in enumerate(files):
        print(f"{file:<40} {'cpu ms':>8} {'wall ms':>8} {'least':>8}")
        for name, rows in took.items():
            cpu, wall, least = rows[at].values()
            print(f"  {name:<38} {cpu:>8.1f} {wall:>8.1f} {least:>8.1f} {'✓' if wall <= GOAL_MS else '✗'}")
    print("\n".join(f"- {name}: {value}" for name, value in about.items()))
    return 0


def measured(
    python: str, files: Sequence[str], commands: Sequence[str], count: int, env: dict[str, str]
) -> dict[str, list[dict[str, float]]]:
    """{command: figures of each file}; those of the bare Python are under `BARE`."""
    lines: dict[str, list[list[str]]] = {BARE: [[python, "-c", "pass"] for _file in files]}
    lines |= {command: [[python, file, *command.split()] for file in files] for command in commands}
    taken: dict[str, list[list[Took]]] = {name: [[] for _file in files] for name in lines}
    for number in range(count + 1):
        for name, of_files in lines.items():
            for line, runs in zip(of_files, taken[name], strict=True):
                one = ran(line, env)
                if number:
                    runs.append(one)
    return {name: [figures(runs) for runs in of_files] for name, of_files in taken.items()}


def ran(command: Sequence[str], env: dict[str, str]) -> Took:
    """One whole process."""
    before, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    passed, now = time.perf_counter() - before, resource.getrusage(resource.RUSAGE_CHILDREN)
    return (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) * 1e3, passed * 1e3


def figures(runs: Sequence[Took]) -> dict[str, float]:
    """Of the runs of one command."""
    walls = [wall for _cpu, wall in runs]
    return {
        "cpu_ms": statistics.median(cpu for cpu, _wall in runs),
        "wall_ms": statistics.median(walls),
        "least_ms": min(walls),
    }


if __name__ == "__main__":
    sys.exit(main())
