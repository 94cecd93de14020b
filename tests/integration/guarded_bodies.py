"""Functions for the guardian's tests: some take long, one never lets go of the interpreter, and one is quick."""

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
def until_told(began: str, go: str) -> str:
    Path(began).touch()
    while not Path(go).exists():
        time.sleep(0.01)
    return "told"


@udf
def keeps_the_interpreter(seconds: float, began: str) -> str:
    """`PyDLL` calls keep the GIL."""
    Path(began).touch()
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return "kept"


@udf
def quick(x: int) -> tuple[int, float]:
    return x, time.time()
