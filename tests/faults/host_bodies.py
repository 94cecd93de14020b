"""What runs on the hosts of test_fault_hosts.py: each body writes down that it began, and beats while it lives.

A beat is the machine's monotonic clock, which every host here shares; a file of them is one execution, by one host.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from history import Log

import dreamlake.lakeshore as dls

BEAT_S = 0.02


def _beats(directory: str, for_s: float, name: str) -> Iterator[None]:
    inv, claim, host = os.environ["DREAMLAKE_INVOCATION_ID"], int(os.environ["DREAMLAKE_CLAIM"]), os.getuid()
    Log(directory, f"{host}-{os.getpid()}").began(inv, claim)
    until = time.monotonic() + for_s
    with Path(directory, f"beats-{name}-{inv}-{claim}-{host}").open("a", buffering=1) as file:
        while (now := time.monotonic()) < until:
            file.write(f"{now}\n")
            yield
            time.sleep(BEAT_S)


@dls.udf
def steady(directory: str, seed: int, for_s: float) -> int:
    """It goes on, and ends as soon as it is asked to."""
    for _ in _beats(directory, for_s, "steady"):
        pass
    return seed * seed


@dls.udf
def stubborn(directory: str, seed: int, for_s: float) -> int:
    """It does not listen when it is asked to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in _beats(directory, for_s, "stubborn"):
        pass
    return seed + 1


@dls.udf
def streamed(directory: str, seed: int, for_s: float) -> Iterator[int]:
    """Ten values, spread over its time."""
    due = [time.monotonic() + for_s * step / 10 for step in range(10)]
    given = 0
    for _ in _beats(directory, for_s, "streamed"):
        while given < 10 and time.monotonic() >= due[given]:
            yield seed + given
            given += 1
    for step in range(given, 10):
        yield seed + step
