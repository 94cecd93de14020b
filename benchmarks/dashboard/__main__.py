"""`lakeshore tui` of the one file on a terminal, beside a server with 10,000 calls and 500 workers that change.

    python build_pyz.py && python benchmarks/dashboard
    python benchmarks/dashboard --quick --json
    python benchmarks/dashboard --size 80x24

The workers are registered over their protocol and poll on connections that stay open; about 50 changes of calls a
second. Figures are medians unless they say otherwise; `…_cpu_ms` are milliseconds on a processor, which a busy machine
does not change. Reference: benchmarks/README.md, "The dashboard".
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS.parent)]

from harness import machine, procfs  # noqa: E402  # the script's directory first
from harness.processes import ROOT, Children, environment  # noqa: E402
from harness.stats import percentile  # noqa: E402
from ours import stages  # noqa: E402

from dashboard.fleet import Connection, call  # noqa: E402
from dashboard.terminal import Terminal  # noqa: E402

BUILT = ROOT / "dist" / "lakeshore"
DOWN, PAGE_DOWN, HOME, END = "\x1b[B", "\x1b[6~", "\x1b[H", "\x1b[F"
LINES = (
    ("first_paint_ms", "first paint from the shell prompt, ms", "≤ 700"),
    ("first_paint_cpu_ms", "  on a processor", ""),
    ("first_paint_python", "  × `python -c pass`", ""),
    ("imports_cpu_ms", "  of it imports of the dashboard (from the sources)", ""),
    ("filled_s", "all 10,000 rows there, s from the start", ""),
    ("filled_cpu_s", "  on a processor", ""),
    ("workers_cpu_percent", "Workers seen: % of a core", "≤ 10"),
    ("invocations_cpu_percent", "Invocations seen: % of a core", "≤ 10"),
    ("filtered_cpu_percent", "Invocations, filtered and sorted: % of a core", "≤ 10"),
    ("rss_mib", "RSS, MiB", "≤ 120"),
    ("echo_p50_ms", "the terminal alone: a key to a program that echoes, p50 ms", ""),
    ("echo_p99_ms", "  p99", ""),
    ("key_p50_ms", "key to screen: ↓ among workers, p50 ms", "≤ 50"),
    ("key_p99_ms", "  p99", "≤ 50"),
    ("page_p50_ms", "key to screen: PgDn among 10,000, p50 ms", "≤ 50"),
    ("page_p99_ms", "  p99", "≤ 50"),
    ("ends_p50_ms", "key to screen: End and Home, p50 ms", "≤ 50"),
    ("ends_p99_ms", "  p99", ""),
    ("tab_p50_ms", "key to screen: another tab, p50 ms", "≤ 50"),
    ("filter_p50_ms", "key to screen: a letter of a filter over 10,000, p50 ms", "≤ 50"),
    ("filter_p99_ms", "  p99", ""),
    ("shown_p50_ms", "change at the server to screen, p50 ms", "≤ 200"),
    ("shown_p99_ms", "  p99", "≤ 200"),
    ("written_kib_s", "written to the terminal, KiB/s", ""),
    ("server_cpu_percent", "server without a dashboard: % of a core", ""),
    ("server_more_percent", "  more with one", ""),
)


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks/dashboard", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer of each")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--size", default="140x40", help="columns x lines (140x40)")
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--changes", type=float, default=50.0, help="of calls, a second (50)")
    parser.add_argument("--stay", action="store_true", help="start the server and the fleet, print the URL, and wait")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of every `with`
    with tempfile.TemporaryDirectory(prefix="lakeshore-bench-") as directory, Children(Path(directory)) as children:
        about = machine.describe(Path(directory))
        url, server = fleet(children, given)
        if given.stay:
            print(url, server, flush=True)
            sys.stdin.read()
            return 0
        columns, lines = map(int, given.size.split("x"))
        figures = measured(url, server, Row(columns, lines), less=4 if given.quick else 1)
    about["load_after"] = round(os.getloadavg()[0], 1)
    if given.json:
        print(json.dumps({**figures, "size": given.size, "machine": about}))
        return 0
    for key, name, goal in LINES:
        if key in figures:
            print(f"{name:<58} {figures[key]:>9.3g}   {goal}")
    print("\n".join(f"- {name}: {value}" for name, value in about.items()))
    return 0


def fleet(children: Children, given: argparse.Namespace) -> tuple[str, int]:
    """(url, the server's pid) of a server with all that is to be shown."""
    url, server = stages.server_alone(children, "state")
    ready = children.directory / "ready"
    asked = {"url": url, "workers": given.workers, "calls": given.calls, "changes_s": given.changes}
    command = [sys.executable, "-m", "dashboard.fleet", json.dumps({**asked, "ready": str(ready)})]
    load = children.start(command, "fleet")
    children.until(ready.exists, load, "fleet", within_s=120)
    return url, server.pid


class Row:
    """How the dashboard is started."""

    def __init__(self, columns: int, lines: int) -> None:
        self._size = (columns, lines)
        self.env = environment(TERM="xterm-256color", COLORTERM="truecolor", LC_ALL="C.UTF-8")
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "COLUMNS", "LINES"):
            self.env.pop(name, None)

    def opened(self, url: str, *more: str) -> Terminal:
        """The one file, on a terminal."""
        return Terminal([sys.executable, str(BUILT), "tui", "--url", url, *more], *self._size, self.env)


def measured(url: str, server: int, row: Row, *, less: int) -> dict[str, float]:
    """{key: figure}"""
    found = started(url, row, 12 // less)
    for_s = 20 / less
    found["server_cpu_percent"] = percent([server], for_s)
    with row.opened(url) as terminal:
        terminal.until(r"1/\d{2,}")
        with Terminal(["sh", "-c", "stty raw -echo; echo ready; exec cat"], 80, 24, row.env) as echoes:
            echoes.until("ready")
            found |= pressed(echoes, "echo", [("x", "x")] * (200 // less))
        found |= pressed(terminal, "key", [(DOWN, rf" {n}/") for n in range(2, 200 // less)])
        # the rows of the others are read meanwhile: until they are there
        terminal.press("3")
        terminal.until(r"/10,000", 120)
        found["filled_s"], found["filled_cpu_s"] = time.perf_counter() - terminal.born, terminal.cpu_s()
        terminal.press("1")
        time.sleep(1)
        found["workers_cpu_percent"] = percent([terminal.pid], for_s)
        terminal.press("3")
        time.sleep(1)
        before, at = procfs.cpu_s([server]), time.perf_counter()
        written = terminal.written
        found["invocations_cpu_percent"] = percent([terminal.pid], for_s)
        passed = time.perf_counter() - at
        found["server_more_percent"] = (procfs.cpu_s([server]) - before) / passed * 100 - found["server_cpu_percent"]
        found["written_kib_s"] = (terminal.written - written) / 1024 / passed
        found |= {f"shown_{key}": ms for key, ms in quantiles(shown(url, terminal, 100 // less)).items()}
        found |= large(terminal, less)
        terminal.press(">>")
        time.sleep(1)
        found["filtered_cpu_percent"] = percent([terminal.pid], for_s)
        found["rss_mib"] = terminal.rss_mib()
    return found


def started(url: str, row: Row, count: int) -> dict[str, float]:
    """From fork to the first picture."""
    wall, cpu, bare, imports = [], [], [], []
    code = "from lakeshore import _screens; _screens.extend_path(); import lakeshore.tui.dashboard.app"
    env = {**row.env, "PYTHONPATH": str(ROOT)}
    for number in range(count + 1):
        with row.opened(url) as terminal:
            ms = (terminal.until("Workers") - terminal.born) * 1e3
            used = terminal.cpu_s() * 1e3
        base, base_cpu = ran([sys.executable, "-c", "pass"], row.env)
        if number:  # the first one unpacks, and writes byte code
            wall.append(ms)
            cpu.append(used)
            bare.append(base)
            imports.append(ran([sys.executable, "-c", code], env)[1] - base_cpu)
        else:
            ran([sys.executable, "-c", code], env)
    return {
        "first_paint_ms": statistics.median(wall),
        "first_paint_cpu_ms": statistics.median(cpu),
        "first_paint_python": statistics.median(wall) / statistics.median(bare),
        "imports_cpu_ms": statistics.median(imports),
    }


def ran(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Milliseconds: by the clock, on a processor."""
    before, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True)
    passed, now = time.perf_counter() - before, resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed * 1e3, (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) * 1e3


def percent(pids: list[int], for_s: float) -> float:
    """Of one core."""
    before, at = procfs.cpu_s(pids), time.perf_counter()
    time.sleep(for_s)
    return (procfs.cpu_s(pids) - before) / (time.perf_counter() - at) * 100


def quantiles(took: list[float]) -> dict[str, float]:
    """The middle and the hundredth part."""
    return {"p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99)}


def pressed(terminal: Terminal, name: str, steps: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Each of these keys, and until what it makes is there; a pause before each, as a person has one."""
    took = []
    for keys, pattern in steps:
        time.sleep(random.uniform(0.03, 0.13))  # at no fixed place between two changes
        took.append(terminal.took_ms(keys, pattern))
    return {f"{name}_{key}": ms for key, ms in quantiles(took).items()}


def shown(url: str, terminal: Terminal, count: int) -> list[float]:
    """Milliseconds from a submit to its row, on a tab that shows the newest calls."""

    async def submit(name: str) -> None:
        connection = Connection(url)
        await connection.open()
        await connection.post("/v1/producer/submit", call(name))
        connection.close()

    took = []
    for number in range(count):
        time.sleep(random.uniform(0.05, 0.25))
        name = f"mark-{number}"
        terminal.press(HOME)  # the selected row stays in sight, and goes down as newer ones come
        terminal.until(r" \d\d?/\d")  # near the top; others may have come meanwhile
        terminal.forget()
        at = time.perf_counter()
        asyncio.run(submit(name))
        took.append((terminal.until(f"{name} ") - at) * 1e3)
    return took


def large(terminal: Terminal, less: int) -> dict[str, float]:
    """Among ten thousand rows. New calls come all the while; the filter keeps them out, so that places stay."""
    found = pressed(terminal, "tab", [("1", r"\d/500 "), ("3", r"\d/10,000 ")] * (24 // less))
    words, letters = "queue:seeded", list[float]()
    # where a filter keeps nothing out it is not named
    steps = [(words[at], f"'{words[: at + 1]}'" if words[at] != ":" else "/10,000 ") for at in range(len(words))]
    for _ in range(16 // less):
        terminal.took_ms("\x1b", r"/10,000 ")
        terminal.took_ms("/", "column")
        for keys, pattern in steps:
            time.sleep(random.uniform(0.03, 0.13))
            letters.append(terminal.took_ms(keys, pattern))
    found |= {f"filter_{key}": ms for key, ms in quantiles(letters).items()}
    terminal.press("\r")
    time.sleep(1)
    found |= pressed(terminal, "ends", [(END, r" (\d,?\d{3})/\1 "), (HOME, r" 1/\d")] * (40 // less))
    return found | pressed(terminal, "page", [(PAGE_DOWN, r" (?!1/)[\d,]+/\d")] * (160 // less))


if __name__ == "__main__":
    sys.exit(main())
