"""How far something with a known end has come, on stderr: a live bar on a terminal, a line per quarter elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .output import console, say

QUARTERS = 4


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar, or lines; the value is called after each step, by one thread at a time."""
    if sys.stderr.isatty():
        with _bar(title, total) as advance:
            yield advance
        return
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if done == total or done * QUARTERS // total != (done - 1) * QUARTERS // total:
            say(f"{title}: {done} of {total}")

    yield step


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # wall: a terminal

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr)) as shown:
        task = shown.add_task(f"{title:<15}", total=total)
        yield lambda: shown.advance(task)
