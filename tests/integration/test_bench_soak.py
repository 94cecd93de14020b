"""benchmarks/soak.py runs to its end and says what it saw; whether anything grows is for its long run to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import served

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


def test_a_short_soak_prints_the_slopes_of_every_process(tmp_path: Path) -> None:
    short = ["--seconds", "12", "--measure", "2", "--fill", "300", "--dir", str(tmp_path), "--json"]
    command = [sys.executable, str(SOAK), *short]
    ran = subprocess.run(command, env=served.environment(), capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    told = json.loads(ran.stdout)
    whose = {f"{who}.{what}" for who in ("server", "worker-1", "worker-2", "producer") for what in ("pss_mib", "fds")}
    latencies = {"producer.rtt_p50_ms", "producer.rtt_p95_ms", "producer.request_p50_ms"}
    assert whose | latencies <= set(told["slopes"])
    assert all(slope["mean"] > 0 and slope["error"] >= 0 for slope in told["slopes"].values())
    assert told["load"]["failed"] == 0
    assert told["load"]["asked_per_s"] == told["load"]["most_per_s"] / 2
    assert told["load"]["ended_per_s"] > 0
    grown = {name for name, slope in told["slopes"].items() if slope["grows"]}
    assert ran.returncode == bool(grown)
    assert not list(tmp_path.iterdir()), "it left its state behind"
