"""Functions that the worker tests submit: importable, as a user's module is. Some are poison."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from lakeshore.sdk.context import current, run
from lakeshore.sdk.functions import udf


def _until(path: str) -> None:
    deadline = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < deadline
        time.sleep(0.005)


@udf
def add(a: int, b: int) -> int:
    return a + b


@udf
def who(*_: Any) -> int:
    return os.getpid()


@udf
def count(n: int) -> Iterator[int]:
    yield from range(n)


@udf
async def acount(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


@udf
async def aadd(a: int, b: int) -> int:
    return a + b


@udf
def fails_until(attempt_file: str, succeed_at: int) -> Iterator[int]:
    """Yields twice; fails as long as it has run fewer than `succeed_at` times."""
    path = Path(attempt_file)
    runs = len(path.read_text()) + 1 if path.exists() else 1
    path.write_text("x" * runs)
    yield runs
    if runs < succeed_at:
        raise ValueError(f"run {runs}")
    yield -runs


@udf
def wait_for(started: str, go: str) -> int:
    """Says that it has started, and ends when told to."""
    Path(started).write_text(str(os.getpid()))
    _until(go)
    return os.getpid()


@udf
def hold_once(started: str) -> str:
    """The first run never ends by itself; the next one does."""
    path = Path(started)
    if path.exists():
        return "again"
    path.write_text(str(os.getpid()))
    time.sleep(600)
    return "first"


@udf
def deaf(started: str) -> None:
    """Cannot be stopped: it blocks in C with the interpreter held."""
    Path(started).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)


@udf
def swallows(started: str) -> None:
    """Stops for nothing that Python can raise."""
    Path(started).write_text(str(os.getpid()))
    while True:
        try:
            time.sleep(600)
        except BaseException:  # that is the point
            continue


@udf
def child(x: int) -> str:
    """Submits from inside a body, naming no plane."""
    return add.submit(x, x, _queue="inner")


@udf
def environment() -> dict[str, Any]:
    names = [name for name in os.environ if name.startswith("LAKESHORE_") and "TOKEN" in name]
    return {"tokens": names, "root": str(current().root), "cwd": os.getcwd()}


@udf
def write_key(text: str) -> str:
    run.write("out.txt").write_text(text)
    return "out.txt"


@udf
def exits_hard() -> None:
    os._exit(7)


@udf
def segfaults() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(600)


@udf
def closes_files() -> str:
    os.closerange(3, 512)
    return "closed"


@udf
def closes_standard_files() -> str:
    for name in ("stdin", "stdout", "stderr"):
        getattr(sys, name).close()
    for number in range(3):
        with contextlib.suppress(OSError):
            os.close(number)
    return "closed"


@udf
def changes_directory(to: str) -> str:
    os.chdir(to)
    return os.getcwd()


@udf
def recurses(n: int = 0) -> int:
    return int(recurses.__wrapped__(n + 1)) + 1


@udf
def exits() -> None:
    sys.exit(3)


@udf
def unpackable() -> object:
    return object()


@udf
def takes_signals() -> str:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGURG):
        signal.signal(number, signal.SIG_IGN)
    return "taken"


@udf
def floods(megabytes: int) -> int:
    line = "x" * 1023 + "\n"
    for _ in range(megabytes * 1024):
        sys.stdout.write(line)
        sys.stderr.write(line)
    return megabytes


@udf
def sleeps(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@udf
def starts_thread_that_stays() -> str:
    import threading

    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    return "started"
