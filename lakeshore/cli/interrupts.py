"""What INT, TERM and HUP do to a command that has something to clear up.

    with unwinding():     TERM and HUP unwind the stack like Ctrl-C does; the exit code is 128 + the signal
        with held(…):     one that comes waits until the block is over: what it made is known by then
        with ignored():   none counts, for the programs that are started meanwhile neither

Rule: for the main thread alone. A signal that was ignored from the start (`nohup`) stays ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .output import say

if TYPE_CHECKING:
    from types import FrameType

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """TERM and HUP raise SystemExit while the block lasts, so that everything is cleared up."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handled((signal.SIGTERM, signal.SIGHUP), unwind):
        yield


@contextmanager
def held(told: str) -> Iterator[None]:
    """What comes while the block lasts has its effect at the end of it, however it ended; that it waits is `told`."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            say(told)

    try:
        with _handled(_ALL, note):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def ignored() -> Iterator[None]:
    """Nothing that comes while the block lasts has an effect."""
    with _handled(_ALL, signal.SIG_IGN):
        yield


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[None]:
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
