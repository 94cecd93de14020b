"""Runs a module of ours with a wall clock of its own: `shifted.py <seconds> <module> [args]`.

SIGUSR2 moves the clock by so many seconds more, as a suspended machine's or an operator's `date` does.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time
from typing import Any

if __name__ == "__main__":
    by = [float(sys.argv[1])]
    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() + by[0]
    time.time_ns = lambda: true_ns() + int(by[0] * 1e9)

    def jump(*_: Any) -> None:
        by[0] += float(sys.argv[0])

    module = sys.argv[2]
    sys.argv[:] = [sys.argv[1], *sys.argv[3:]]
    signal.signal(signal.SIGUSR2, jump)
    runpy.run_module(module, run_name="__main__")
