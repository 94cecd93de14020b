"""What a person sees while a server takes its time: after a second a line on stderr that counts, and then is gone.

Rule: only on a terminal; a script's stderr gets nothing. What waits for news by itself (`wait_s`) is not counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TextIO

QUIET_S = 1.0
"""Nobody is told anything before."""
_TICK_S = 0.2
_FRAMES = "|/-\\"
_START_OF_LINE, _REST_OF_LINE = "\r", "\x1b[K"


@contextmanager
def counted(what: str, file: TextIO | None = None) -> Iterator[None]:
    """`what`, and for how long it has been going on, on `file` (stderr) where that is a terminal."""
    file = sys.stderr if file is None else file
    if not file.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    done = Event()
    shown = Thread(target=_show, args=(what, file, done), daemon=True)
    shown.start()
    try:
        yield
    finally:
        done.set()
        shown.join()


def _show(what: str, file: TextIO, done: Event) -> None:
    began, told = monotonic(), 0
    wait = QUIET_S
    while not done.wait(wait):
        wait = _TICK_S
        seconds = int(monotonic() - began)
        file.write(f"{_START_OF_LINE}{_FRAMES[told % len(_FRAMES)]} {what} {seconds}s{_REST_OF_LINE}")
        file.flush()
        told += 1
    if told:
        file.write(_START_OF_LINE + _REST_OF_LINE)
        file.flush()
