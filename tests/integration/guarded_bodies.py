"""Functions for the guardian's tests: one that sleeps, one that never lets go of the interpreter, and a quick one."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

from lakeshore.sdk.functions import udf


@udf
def sleeps(seconds: float, began: str) -> str:
    Path(began).touch()
    time.sleep(seconds)
    return "slept"


@udf
def keeps_the_interpreter(seconds: float, began: str) -> str:
    """`PyDLL` calls keep the GIL."""
    Path(began).touch()
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return "kept"


@udf
def quick(x: int) -> tuple[int, float]:
    return x, time.time()
