"""How long the program and the package take to start: whole processes, from fork to exit, beside a bare Python."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Sequence

from harness.given import Given
from harness.processes import ROOT, environment
from harness.stats import percentile

BUILT = ROOT / "dist" / "lakeshore"


def prepare(given: Given) -> None:
    """Byte code written, archive unpacked."""
    for command in _commands().values():
        _ms(command)


def measure(given: Given) -> dict[str, float]:
    """`help_ms` of the built file (none where it does not run), `help_source_ms`, `import_ms`, `python_ms`."""
    return {key: percentile([_ms(command) for _ in range(given.count)], 0.5) for key, command in _commands().items()}


@functools.cache
def _commands() -> dict[str, Sequence[str]]:
    built = [sys.executable, str(BUILT), "--help"]
    try:
        runs = BUILT.exists() and bool(_ms(built))  # it unpacks itself here
    except subprocess.CalledProcessError:
        runs = False
    return {
        **({"help_ms": built} if runs else {}),
        "help_source_ms": [sys.executable, "-m", "lakeshore", "--help"],
        "import_ms": [sys.executable, "-c", "import dreamlake.lakeshore"],
        "python_ms": [sys.executable, "-c", "pass"],
    }


def _ms(command: Sequence[str]) -> float:
    env = environment(PYTHONPATH=str(ROOT)) if str(BUILT) not in command else environment(PYTHONPATH="")
    before = time.perf_counter()
    # no timeout: waiting with one looks at growing intervals, and a figure would be 32, 64 or 115 ms
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - before) * 1e3
