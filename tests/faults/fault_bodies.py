"""Functions that the fault tests submit. Their results follow from their arguments, whoever runs them how often."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from lakeshore.sdk.functions import udf

BIG = 300_000
"""Bytes of a payload that travels beside the call, and is a file at both ends."""


def note_run(directory: str, number: str) -> None:
    """One line for each execution; appends of this size are whole."""
    with open(os.path.join(directory, "runs"), "ab", buffering=0) as runs:
        runs.write(f"{number}\n".encode())


@udf
def slow(directory: str, number: str, seconds: float) -> str:
    note_run(directory, number)
    Path(directory, f"began-{number}").touch()
    time.sleep(seconds)
    return number


def _wait_for_go(directory: str, number: str) -> None:
    note_run(directory, number)
    Path(directory, f"began-{number}").touch()
    while not Path(directory, "go").exists():
        time.sleep(0.01)


@udf
def large_after_go(directory: str, number: str) -> bytes:
    _wait_for_go(directory, number)
    return b"r" * BIG


@udf
def streamed_after_go(directory: str, number: str) -> Iterator[bytes]:
    _wait_for_go(directory, number)
    for step in range(3):
        yield bytes([step]) * 50_000


@udf
def fails_after(steps: int) -> Iterator[int]:
    yield from range(steps)
    raise ValueError("on purpose")


@udf
def plus_one(x: int) -> int:
    return x + 1
