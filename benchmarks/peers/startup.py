"""How long importing each peer takes: a whole process, as for ours, with the class one needs."""

from __future__ import annotations

import subprocess
import sys
import time

from harness.given import Given
from harness.stats import percentile

STATEMENTS = {"huey": "from huey import SqliteHuey", "celery": "from celery import Celery"}


def measure(given: Given) -> dict[str, float]:
    """`<peer>_import_ms`; medians."""
    return {
        f"{name}_import_ms": percentile([_ms(statement) for _ in range(given.count)], 0.5)
        for name, statement in STATEMENTS.items()
    }


def _ms(statement: str) -> float:
    before = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)  # no timeout: as in ours
    return (time.perf_counter() - before) * 1e3
