"""A Tab with the one file: what the shell waits for."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest


def processor_ms(command: list[str], environment: dict[str, str]) -> float:
    """Milliseconds of processor time, the least of five: other processes do not count."""

    def used() -> float:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime

    spent = []
    for _ in range(5):
        before = used()
        done = subprocess.run(command, check=True, capture_output=True, env=environment)
        assert (done.stderr, bool(done.stdout)) == (b"", True)
        spent.append(used() - before)
    return 1000 * min(spent)


@pytest.mark.inventory("C-301")
def test_a_tab_takes_little_more_than_the_start_of_python(pyz: Path, warm_cache: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(warm_cache)}
    script = tmp_path / "script"
    script.write_bytes(
        subprocess.run(
            [sys.executable, pyz, "completion", "bash"], check=True, capture_output=True, env=environment
        ).stdout
    )
    line = "lakeshore --namespace x jobs list --json --state queued --"
    tab = f"source {script}; COMP_LINE='{line}' COMP_POINT={len(line)}; _lakeshore; echo ${{COMPREPLY[@]}}"
    static = processor_ms(["bash", "--norc", "-c", tab], environment)
    asked = processor_ms([sys.executable, str(pyz), "completion", "__suggest", "job-states"], environment)
    print(f"a Tab: {static:.0f} ms for bash and its script, {asked:.0f} ms for an answer of the one file")
    assert static < 250
    assert asked < 400
