"""How long importing each peer takes: a whole process, as for ours."""

from __future__ import annotations

import subprocess
import sys
import time

from harness.given import Given
from harness.stats import percentile

MODULES = ("huey", "celery")


def measure(given: Given) -> dict[str, float]:
    """`<peer>_import_ms`; medians."""
    return {f"{name}_import_ms": percentile([_ms(name) for _ in range(given.count)], 0.5) for name in MODULES}


def _ms(name: str) -> float:
    before = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"from {name} import *"], check=True, timeout=20)
    return (time.perf_counter() - before) * 1e3
