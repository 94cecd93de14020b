"""Does anything grow? A server and two workers at half of what they can do, for ten minutes.

    python benchmarks/soak.py                    ten minutes
    python benchmarks/soak.py --seconds 60       a shorter look
    python benchmarks/soak.py --json             one object: every slope, with its standard error

First the server's page cache is filled, and the maximum rate is measured for some seconds; then calls come evenly at
half of it. Each second it samples memory (PSS and RSS), open files and threads of the server, of each worker with its
guardian, and of the producer; round trips and small requests as the producer sees them; and how long the machine
itself takes for a fixed piece of work, so that a neighbour on the machine is not taken for a growth of ours. A minute
or less shows warm-up more than anything.

The exit code is 1 when something grows: it is significant (harness/slopes.py says how that is decided: t > 3, still
rising in the later half) *and* an hour of it would be more than
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCHMARKS))

from harness import machine, procfs  # noqa: E402  # the script's directory first
from harness.processes import ROOT, Children, NotStarted  # noqa: E402
from harness.slopes import Slope, slope_of  # noqa: E402
from ours import stages  # noqa: E402

LIMITS: dict[str, tuple[str, float, bool]] = {
    "pss_mib": ("MiB", 4.0, False),
    "rss_mib": ("MiB", 4.0, False),
    "fds": ("", 2.0, False),
    "threads": ("", 2.0, False),
    "wal_mib": ("MiB", 4.0, False),
    "rtt_p50_ms": ("ms", 0.25, True),
    "rtt_p95_ms": ("ms", 0.50, True),
    "request_p50_ms": ("ms", 0.25, True),
}
"""(unit, what an hour may add, whether that is a share of the mean)."""
FLOOR = "machine_ms"

__doc__ = f"{__doc__}\n" + "\n".join(
    f"    {name:15} {f'{limit:.0%} of its mean' if share else f'{limit:g} {unit}'}"
    for name, (unit, limit, share) in LIMITS.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One series of one process, judged."""

    who: str
    what: str
    slope: Slope

    @property
    def limit(self) -> float:
        """What an hour may add."""
        _unit, limit, share = LIMITS[self.what]
        return limit * self.slope.mean if share else limit

    @property
    def grows(self) -> bool:
        """Significantly, and so that it matters."""
        return self.slope.significant and self.slope.slope > self.limit

    def line(self) -> str:
        """For people."""
        unit, s = LIMITS[self.what][0], self.slope
        verdict = "GROWS" if self.grows else "significant, does not matter" if s.significant else "not significant"
        return (
            f"{self.who:10} {self.what:15} mean {s.mean:9.2f} {unit:3} slope {s.slope:+10.3f} ± {s.error:8.3f} /h "
            f"t {s.t:+7.1f}  later {s.later:+10.3f}  may {self.limit:7.2f}  {verdict}"
        )


def sample(roots: dict[str, int]) -> dict[str, float]:
    """One line of samples: `<who>.<what>`."""
    found: dict[str, float] = {FLOOR: floor_ms()}
    for who, root in roots.items():
        pids = procfs.tree([root])
        found[f"{who}.pss_mib"] = procfs.pss_mib(pids)
        found[f"{who}.rss_mib"] = procfs.rss_mib(pids)
        found[f"{who}.fds"] = procfs.count(pids, "fd")
        found[f"{who}.threads"] = procfs.count(pids, "task")
    return found


def floor_ms() -> float:
    """A fixed piece of work, five times, on average: what this machine gives to whoever asks, right now."""
    before = time.perf_counter()
    for _ in range(5):
        sum(i * i for i in range(4000))
        time.sleep(0)
    return (time.perf_counter() - before) / 5 * 1e3


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    """What the producer has said so far; a last line that is not whole yet is left."""
    with contextlib.suppress(FileNotFoundError):
        for line in file.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def watch(children: Children, given: argparse.Namespace) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """(samples, what the producer said). Raises NotStarted when a process of ours ends."""
    url, (server, *workers) = stages.control_plane(children)
    file = children.directory / "paced.jsonl"
    asked = {"url": url, "file": str(file), "fill": given.fill, "measure_s": given.measure}
    asked |= {"for_s": given.seconds, "share": given.share}
    producer = children.start([sys.executable, "-m", "ours.paced", json.dumps(asked)], "producer")
    children.until(lambda: any(lines_of(file)), producer, "producer", within_s=given.measure * 3 + 240)
    told = next(lines_of(file))
    say(f"at most {told['most']:.0f} calls/s; now {told['rate']:.0f}/s for {given.seconds:g} s")
    named = {"server": server, **{f"worker-{i}": worker for i, worker in enumerate(workers, 1)}, "producer": producer}
    wal = children.directory / "state" / "lakeshore.db-wal"
    samples: list[dict[str, float]] = []
    due, ends_at = time.monotonic(), time.monotonic() + given.seconds
    while time.monotonic() < ends_at:
        seen = {"t": time.monotonic(), **sample({who: child.pid for who, child in named.items()})}
        samples.append(seen | {"server.wal_mib": wal.stat().st_size / 2**20})
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))
        _all_live(children, named)
    try:
        code = producer.wait(90)
    except subprocess.TimeoutExpired:
        raise NotStarted("the producer's last calls did not end") from None
    if code != 0:
        raise NotStarted(f"the producer failed:\n{children.last_words('producer')}")
    return samples, list(lines_of(file))


def _all_live(children: Children, named: dict[str, subprocess.Popen[bytes]]) -> None:
    for who, child in named.items():
        if child.poll() and who != "producer":
            raise NotStarted(f"{who} ended by itself:\n{children.last_words(who)}")


def judge(samples: list[dict[str, float]], said: list[dict[str, Any]], warm_up: float) -> list[Found]:
    """Every series. Latencies are judged beside the machine's own slowness at the nearest instant."""
    times, floor = [one["t"] for one in samples], [one[FLOOR] for one in samples]
    found = [
        Found(who=who, what=what, slope=slope_of(times, [one[key] for one in samples], warm_up=warm_up))
        for key in samples[0]
        for who, _, what in [key.partition(".")]
        if what
    ]
    seconds = [one for one in said if "rtt_p50_ms" in one]
    beside = [min(zip(times, floor, strict=True), key=lambda at: abs(at[0] - one["t"]))[1] for one in seconds]
    for what in ("rtt_p50_ms", "rtt_p95_ms", "request_p50_ms"):
        values = [one[what] for one in seconds]
        slope = slope_of([one["t"] for one in seconds], values, beside, warm_up=warm_up)
        found.append(Found(who="producer", what=what, slope=slope))
    return found


def say(words: str) -> None:
    """Progress goes to stderr: stdout is the result."""
    print(words, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code: 0, 1 when something grows or a call failed, 2 when it could not be run to its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long at the paced rate (600)")
    parser.add_argument("--fill", type=int, default=40_000, help="rows that fill the server's page cache first (40000)")
    parser.add_argument("--measure", type=float, default=10.0, help="how long the maximum is measured (10)")
    parser.add_argument("--share", type=float, default=0.5, help="the part of it that is then asked for (0.5)")
    parser.add_argument(
        "--warm-up", type=float, default=0.2, help="the first part of the samples that is dropped (0.2)"
    )
    parser.add_argument("--dir", type=Path, help="where state is kept (default: build/)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the lines")
    parser.add_argument("--samples", type=Path, help="write every sample to this file, as JSON")
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of every `with`
    place = given.dir or ROOT / "build"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=place, ignore_cleanup_errors=True) as directory:
        about = machine.describe(Path(directory))
        with Children(Path(directory)) as children:
            try:
                samples, said = watch(children, given)
            except NotStarted as exc:
                say(f"FAILED: {exc}")
                return 2
        about["load_after"] = round(os.getloadavg()[0], 1)
    if given.samples:
        given.samples.write_text(json.dumps({"samples": samples, "said": said}))
    return report(judge(samples, said, given.warm_up), said, about, given)


def report(found: list[Found], said: list[dict[str, Any]], about: dict[str, Any], given: argparse.Namespace) -> int:
    """Print what was found; the exit code."""
    told, ended = said[0], said[-1]
    seconds = said[1:-1]
    load = {
        "most_per_s": told["most"],
        "asked_per_s": told["rate"],
        "ended_per_s": sum(one["done"] for one in seconds) / max(1, len(seconds)),
        "held_back": sum(one["held_back"] for one in seconds),
        "failed": ended["failed"],
        "seconds": given.seconds,
    }
    grown = [one for one in found if one.grows]
    if given.json:
        slopes = {
            f"{one.who}.{one.what}": {
                "mean": one.slope.mean,
                "per_hour": one.slope.slope,
                "error": one.slope.error,
                "t": one.slope.t,
                "significant": one.slope.significant,
                "limit": one.limit,
                "grows": one.grows,
            }
            for one in found
        }
        print(json.dumps({"load": load, "slopes": slopes, "machine": about}))
    else:
        print("\n".join(one.line() for one in found))
        print("\n".join(f"- {name}: {value}" for name, value in {**load, **about}.items()))
    for error in ended["errors"]:
        say(f"a call failed: {error}")
    for one in grown:
        say(f"GROWS: {one.line()}")
    if load["held_back"]:
        say("the load was more than went through: calls were held back, latencies say how long they queued")
    return 1 if grown or ended["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
