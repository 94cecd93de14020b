"""Invocation ids: new ones, of one ULID source a process, and what is none; and what is no queue's name. Loaded by the
remote half only.
"""

from __future__ import annotations

import functools
import inspect
import os
import time

from lakeshore.wire.errors import NameError_
from lakeshore.wire.names import Ulids, check_queue

from .errors import DispatchError


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


_source = Ulids(_milliseconds, os.urandom)


def new_id() -> str:
    """A ULID that sorts after every earlier one of this process."""
    return _source.new()


def check_id(given: object) -> None:
    """TypeError, with what to do, for what cannot be the id of an invocation: several of them, None, a coroutine."""
    if isinstance(given, str):
        return
    advice = ""
    if isinstance(given, list | tuple | set | frozenset | dict):
        advice = "; give one at a time: [q.result(id) for id in ids]"
    elif inspect.isawaitable(given):
        advice = "; await what submits"
        if inspect.iscoroutine(given):
            given.close()  # this error says it: no warning of Python's beside
    elif given is None:
        advice = "; `submit` returns it"
    raise TypeError(f"the id of an invocation is a str, got {type(given).__name__}{advice}")


@functools.lru_cache(maxsize=1024)
def check_name(queue: str) -> None:
    """Raise DispatchError for what no plane takes as the name of a queue to submit to."""
    try:
        check_queue(queue)
    except NameError_ as error:
        raise DispatchError(str(error)) from None
