"""benchmarks/run.py --slow-disk prints the disks side by side; what the figures must be is for no test to say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import served

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUN), "--quick", "--rows", "submits", "--limit", "90", *arguments]
    return subprocess.run(
        command, env=served.environment(**env), capture_output=True, text=True, timeout=150, check=False
    )


def test_a_row_is_measured_on_every_disk_and_its_syncs_are_counted(tmp_path: Path) -> None:
    ran = run("--slow-disk", "2", "--json", "--dir", str(tmp_path))
    if "skipped: " in ran.stderr:
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert list(told) == ["+0 ms", "+2 ms"]
    assert all(disk["submit_one_s"] > 0 and disk["submits_tasks_sync"] > 0 for disk in told.values())
    assert told["+2 ms"]["sync_ms"] >= 2
    assert told["+2 ms"]["submit_one_s"] < 500, "each of these waits for a sync of 2 ms"
    assert not list(tmp_path.iterdir()), "it left its state behind"


def test_without_a_compiler_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    ran = run("--slow-disk", "2", "--dir", str(tmp_path), PATH=os.devnull)
    assert ran.returncode == 0, ran.stderr
    assert "skipped: " in ran.stderr
    assert "C compiler" in ran.stderr
    assert ran.stdout == ""


def test_no_delay_is_taken_that_is_none() -> None:
    ran = run("--slow-disk", "soon")
    assert ran.returncode == 2
    assert "--slow-disk" in ran.stderr
