"""Ours and what users would pick instead, side by side: one run, one machine, medians, ratios first.

    python benchmarks/run.py --setup            make the peers' environment (build/bench-venv)
    python benchmarks/run.py                    everything; about five minutes
    python benchmarks/run.py --ours --quick --json     within 50 s: one JSON object
    python benchmarks/run.py --rows rtt,loop    some rows of ours only
    python benchmarks/run.py --ours --slow-disk 1,5    the HTTP plane with 0, 1 and 5 ms added to each of its syncs

Ours is durable unless its row says otherwise: a sync before every acknowledgement. Everything is bounded in time: a row
that hangs is ended and said to have failed, `--limit` ends the run with what it has, and nothing started here survives
it. Reference: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCHMARKS))

from harness import machine, procfs, slow_sync, slow_table, table  # noqa: E402  # the script's directory first
from harness.given import Given  # noqa: E402
from harness.processes import ROOT, Children, NotStarted  # noqa: E402
from harness.results import OURS, Results  # noqa: E402
from ours import books, stages  # noqa: E402
from peers import stages as peer_stages  # noqa: E402

PEER_PYTHON = ROOT / "build" / "bench-venv" / "bin" / "python"
QUICK_LIMIT_S, LIMIT_S = 46.0, 1200.0
JSON_KEYS = (
    "rtt_p50_ms",
    "rtt_p99_ms",
    "loop_tasks_s",
    "threads_tasks_s",
    "gather_tasks_s",
    "local_power_loop_s",
    "local_process_loop_s",
    "local_rtt_p50_ms",
    "submit_one_s",
    "submit_gather_s",
    "mib_p50_ms",
    "frames_s",
    "frame_ms",
    "idle_pss_mib",
    "help_ms",
    "import_ms",
    "fsync_ms",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of ours: its module, how many tasks a repetition, and so many when it must be quick."""

    name: str
    module: str
    count: int
    quick: int


HTTP = (
    Row("rtt", "ours.rtt", 500, 40),
    Row("loop", "ours.loop", 5000, 60),
    Row("threads", "ours.threads", 5000, 160),
    Row("gather", "ours.gather", 5000, 160),
    Row("submits", "ours.submits", 10_000, 150),
    Row("mib", "ours.mib", 40, 5),
    Row("frames", "ours.frames", 100_000, 1000),
)
UNRELATED = Row("unrelated", "ours.unrelated", 2000, 200)
SLOW = (*HTTP[:5], UNRELATED)
LOCAL = (
    (Row("local-loop", "ours.loop", 5000, 60), "loop_tasks_s", "local_{}_loop_s"),
    (Row("local-gather", "ours.gather", 5000, 0), "gather_tasks_s", "local_{}_gather_s"),
    (Row("local-rtt", "ours.rtt", 500, 40), "rtt_p50_ms", "local_{}_rtt_p50_ms"),
    (Row("local-submits", "ours.submits", 5000, 0), "submit_one_s", "local_{}_submit_one_s"),
)
# Without a word about durability a local figure is the durable one.
SHORT = {"local_power_rtt_p50_ms": "local_rtt_p50_ms", "local_power_submit_one_s": "local_submit_one_s"}


class OutOfTime(Exception):
    """The run's limit is reached."""


@dataclass(slots=True)
class Run:
    """One run: where it works, until when, and what it has found."""

    children: Children
    quick: bool
    rows: frozenset[str]
    deadline: float
    patience: float = 1.0
    """A quick run that is given more time than usual repeats more."""
    results: Results = field(default_factory=Results)

    def wants(self, row: Row) -> bool:
        return (not self.rows or row.name in self.rows) and bool(row.quick or not self.quick)

    def count(self, row: Row) -> int:
        return row.quick if self.quick else row.count

    def most(self, row: Row) -> int:
        return row.count if self.quick else 0

    def figures(
        self, module: str, given: Given, *, python: str = sys.executable, env: Mapping[str, str] | None = None
    ) -> dict[str, list[float]]:
        """Measure one row in a child process. Raises NotStarted with its last words when it fails."""
        left = self.deadline - time.monotonic()
        if left < 1:
            raise OutOfTime
        if self.quick:
            given = Given(**{**asdict(given), "until_s": min(given.until_s, 1.2 * self.patience)})
        name = f"row-{module}-{time.monotonic_ns()}"
        child = self.children.start([python, "-m", "harness.given", module, json.dumps(asdict(given))], name, env=env)
        try:
            code = child.wait(min(left, 15.0 * self.patience if self.quick else 4 * given.until_s))
        except subprocess.TimeoutExpired:
            raise NotStarted(f"{module} did not end in time") from None
        finally:
            self.children.end(child)
        words = self.children.last_words(name)
        if code != 0:
            raise NotStarted(f"{module} failed:\n{words}")
        found: dict[str, list[float]] = json.loads(words.splitlines()[-1])
        return found

    @contextlib.contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """A row that fails is written down and costs no other."""
        started = time.monotonic()
        try:
            yield
        except NotStarted as exc:
            self.results.failures[what] = str(exc)
            say(f"  {what}: FAILED: {exc}")
        else:
            say(f"  {what}: {time.monotonic() - started:.1f} s")


def floors(run: Run) -> None:
    """The disk's, the loopback's and Python's own cost."""
    with run.trying("floors"):
        given = Given(count=30 if run.quick else 500, directory=str(run.children.directory))
        run.results.add(OURS, run.figures("harness.floors", given))


def startup(run: Run) -> None:
    """`--help` and the import."""
    row = Row("startup", "ours.startup", 11, 2)
    if run.wants(row):
        with run.trying("startup"):
            found = run.figures(row.module, Given(count=run.count(row)))
            run.results.add(OURS, found)
            if "help_ms" not in found:
                say("  dist/lakeshore is not there or does not run: --help is measured from the sources")
                run.results.add(OURS, {"help_ms": found["help_source_ms"]})


def control_plane(run: Run) -> None:
    """Every row over HTTP, on one server and two workers."""
    wanted = [row for row in HTTP if run.wants(row)]
    idle = Row("idle", "", 10, 5)
    if not wanted and not run.wants(idle):
        return
    with run.trying("control plane"):
        url, processes = stages.control_plane(run.children)
        run.figures("ours.rtt", Given(count=1, repeat=1, url=url))  # all are up and past their imports
        if run.wants(idle):
            time.sleep(0.5)
            run.results.add(OURS, procfs.idle([child.pid for child in processes], run.count(idle)))
        for row in wanted:
            with run.trying(row.name):
                extra = {"calls_only": True} if run.quick else {}
                given = Given(count=run.count(row), most=run.most(row), url=url, extra=extra)
                run.results.add(OURS, run.figures(row.module, given))
        if not run.quick:
            time.sleep(1)
            run.results.add(OURS, procfs.idle([child.pid for child in processes], 2.0, "after"))
        run.children.end(*processes)


def slow_disks(run: Run, added: Sequence[float]) -> None:
    """The rows that commit, each on a server of its own whose syncs take so much longer. Raises NoSlowDisk."""
    library = slow_sync.compiled(run.children.directory)
    for ms in added:
        name = slow_table.column(ms)
        disk = slow_sync.SlowDisk(library, run.children.directory / f"book-{ms:g}", ms)
        with run.trying(name):
            url, processes = stages.control_plane(run.children, f"state-{ms:g}", env=disk.environment)
            run.figures("ours.rtt", Given(count=1, repeat=1, url=url))
            for row in SLOW:
                if run.wants(row):
                    with run.trying(f"{row.name}, {name}"):
                        before = books.read(url, disk)
                        given = Given(count=run.count(row), most=run.most(row), url=url)
                        run.results.add(name, run.figures(row.module, given))
                        run.results.add(name, books.read(url, disk).since(before, row.name))
            syncs = disk.syncs()
            run.results.add(name, {"sync_ms": [syncs.seconds / max(1, syncs.count) * 1e3]})
            run.children.end(*processes)


def local(run: Run, durability: str) -> None:
    """The rows of the local plane."""
    wanted = [entry for entry in LOCAL if run.wants(entry[0])]
    if not wanted:
        return
    with run.trying(f"local plane, {durability}"):
        file = run.children.directory / f"local-{durability}.sqlite"
        processes = stages.local_workers(run.children, file, durability)
        for row, key, new in wanted:
            if run.quick and durability == "process" and row.name == "local-rtt":
                continue
            with run.trying(f"{row.name}, {durability}"):
                given = Given(
                    count=run.count(row),
                    most=run.most(row),
                    file=str(file),
                    durability=durability,
                    extra={"calls_only": True},
                )
                name = new.format(durability)
                run.results.add(OURS, run.figures(row.module, given), {key: SHORT.get(name, name)})
        run.children.end(*processes)


def held(run: Run) -> None:
    """Two thousand idle workers."""
    row = Row("held", "ours.held", 2000, 0)
    if run.wants(row):
        with run.trying("held"):
            url, server = stages.server_alone(run.children, "held")
            given = Given(count=run.count(row), url=url, until_s=60, extra={"pid": server.pid})
            run.results.add(OURS, run.figures(row.module, given))
            run.children.end(server)


def claims(run: Run) -> None:
    """A claim beside many terminal rows."""
    row = Row("claim", "ours.claim", 1_000_000, 0)
    if run.wants(row):
        with run.trying("claim"):
            given = Given(count=run.count(row), directory=str(run.children.directory), until_s=60)
            run.results.add(OURS, run.figures(row.module, given))


Stage = Callable[..., tuple[dict[str, str], list[subprocess.Popen[bytes]]]]
PEERS: tuple[tuple[str, Stage, dict[str, bool], str], ...] = (
    ("Huey, FULL", peer_stages.huey, {"fsync": True}, "peers.huey_rows"),
    ("Huey, OFF", peer_stages.huey, {"fsync": False}, "peers.huey_rows"),
    ("Celery, always", peer_stages.celery, {"sync": True}, "peers.celery_rows"),
    ("Celery, default", peer_stages.celery, {"sync": False}, "peers.celery_rows"),
)


def peers(run: Run) -> None:
    """The same rows of each peer, in each durability."""
    imports: dict[str, list[float]] = {}
    with run.trying("imports of the peers"):
        imports = run.figures("peers.startup", Given(count=5), python=str(PEER_PYTHON))
    for name, stage, durability, module in PEERS:
        with run.trying(name):
            env, processes = stage(run.children, PEER_PYTHON, **durability)
            run.figures(module, Given(count=5, repeat=1), python=str(PEER_PYTHON), env=env)
            time.sleep(0.5)
            run.results.add(name, procfs.idle([child.pid for child in processes], 2 if run.quick else 10))
            given = Given(count=100 if run.quick else 2000, most=2000 if run.quick else 0)
            run.results.add(name, run.figures(module, given, python=str(PEER_PYTHON), env=env))
            key = f"{name.split(',')[0].lower()}_import_ms"
            run.results.add(name, {"import_ms": imports.get(key, [])})
            run.children.end(*processes)


def setup() -> int:
    """The peers' environment, pinned."""
    if not PEER_PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER_PYTHON.parents[1])], check=True)
    needed = str(BENCHMARKS / "requirements.txt")
    return subprocess.run([str(PEER_PYTHON), "-m", "pip", "install", "-q", "-r", needed], check=False).returncode


def say(words: str) -> None:
    """Progress goes to stderr: stdout is the result."""
    print(words, file=sys.stderr, flush=True)


def whole(run: Run) -> None:
    """Everything of ours."""
    floors(run)
    startup(run)
    control_plane(run)
    local(run, "power")
    local(run, "process")
    claims(run)
    held(run)


def milliseconds(words: str) -> tuple[float, ...]:
    """`1,5` as numbers, with 0, in order. Raises ValueError."""
    found = {float(word) for word in words.split(",")}
    if not all(0 <= ms <= 1000 for ms in found):
        raise ValueError("from 0 to 1000 ms")
    return (0.0, *sorted(found - {0.0}))


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code: 0, 1 when a row failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", action="store_true", help="leave the peers out")
    parser.add_argument("--quick", action="store_true", help=f"small counts, {QUICK_LIMIT_S:.0f} s at most")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--all-json", action="store_true", help="every sample, of every column, as JSON")
    parser.add_argument("--rows", default="", help="only these rows of ours, by name, with commas")
    parser.add_argument("--dir", type=Path, help="where state is kept: the disk that is measured (default: build/)")
    parser.add_argument("--limit", type=float, help="seconds after which the run ends with what it has")
    parser.add_argument("--setup", action="store_true", help="make the peers' environment, then exit")
    parser.add_argument(
        "--slow-disk",
        type=milliseconds,
        default=(),
        metavar="MS,MS",
        help="only the HTTP plane's rows, with so much added to each sync of the server, beside 0 ms",
    )
    given = parser.parse_args(argv)
    if given.setup:
        return setup()
    with_peers = not given.ours and not given.rows and not given.slow_disk
    if with_peers and not PEER_PYTHON.exists():
        parser.error("the peers are not installed: run benchmarks/run.py --setup, or measure --ours")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of every `with`
    place = given.dir or ROOT / "build"
    place.mkdir(exist_ok=True)
    limit = given.limit or (QUICK_LIMIT_S * max(1, len(given.slow_disk)) if given.quick else LIMIT_S)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=place, ignore_cleanup_errors=True) as directory:
        about = machine.describe(Path(directory))
        with Children(Path(directory)) as children:
            rows = frozenset(filter(None, given.rows.split(",")))
            run = Run(children, given.quick, rows, started + limit, max(1.0, limit / QUICK_LIMIT_S))
            try:
                if given.slow_disk:
                    slow_disks(run, given.slow_disk)
                else:
                    whole(run)
                if with_peers:
                    peers(run)
                    about["versions"].update(machine.peer_versions(PEER_PYTHON))
            except slow_sync.NoSlowDisk as exc:
                say(f"skipped: {exc}")
                return 0
            except OutOfTime:
                run.results.failures["the run"] = f"ended at its limit of {limit:.0f} s"
                say(run.results.failures["the run"])
        about["load_after"] = round(os.getloadavg()[0], 1)
        about["took_s"] = round(time.monotonic() - started, 1)
    if given.slow_disk and not given.all_json:
        report_slow(run.results, about, given.slow_disk, as_json=given.json)
    else:
        report(run.results, about, as_json=given.json, everything=given.all_json)
    return 1 if run.results.failures else 0


def report(results: Results, about: dict[str, Any], *, as_json: bool, everything: bool) -> None:
    """Print what was found."""
    if everything:
        print(json.dumps({"machine": about, "samples": results.samples, "failures": results.failures}))
    elif as_json:
        print(json.dumps({key: _rounded(results.median(OURS, key)) for key in JSON_KEYS}))
    else:
        _say_all(table.markdown(results), results, about)


def report_slow(results: Results, about: dict[str, Any], added: Sequence[float], *, as_json: bool) -> None:
    """Print the disks side by side."""
    if as_json:
        columns = {slow_table.column(ms): results.samples.get(slow_table.column(ms), {}) for ms in added}
        print(
            json.dumps({name: {key: _rounded(results.median(name, key)) for key in columns[name]} for name in columns})
        )
    else:
        _say_all(slow_table.markdown(results, added), results, about)


def _say_all(rows: str, results: Results, about: dict[str, Any]) -> None:
    print(f"{rows}\n")
    print("\n".join(f"- {name}: {value}" for name, value in about.items()))
    for what, why in results.failures.items():
        print(f"- FAILED {what}: {why}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


if __name__ == "__main__":
    sys.exit(main())
