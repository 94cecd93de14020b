"""A submit of the local plane as its row: what makes two of them the same one, and when it may begin."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgpack

from ..net.backoff import full_jitter
from ..plane import submits
from ..plane.contract import Payload, QueueFull, Refused, Submission
from ..wire.messages import native_function
from .errors import DispatchError
from .ids import check_id

T = TypeVar("T")
Call = tuple[str, bytes, dict[str, Any]]
"""Queue, arguments and the options of `Dispatch.submit`."""
_MOST = 2**63 - 1
HOLD_S = 30.0
"""So long a queue holds a submit that finds it full: as a control plane's does by default for this SDK."""


def submission(
    ns: str,
    queue: str,
    id_: str,
    args: Payload,
    key: str | None,
    priority: float,
    parent: str | None,
    run_config: dict[str, Any] | None,
    retry_failed: str | None,
    delay: float | None,
    due: float | None,
    name: str | None,
) -> Submission:
    """The row to insert; `args` are in their place by now. Raises DispatchError or TypeError for what no row can have:
    in the inbox it would be in everybody's way.
    """
    check_id(id_)
    if parent is not None:
        check_id(parent)
    if math.isnan(priority := float(priority) + 0.0):  # -0.0 is 0.0: one call has one fingerprint
        raise DispatchError("the priority of a submit is a number, got nan")
    attempts = int((run_config or {}).get("max_attempts") or 3)
    if not -_MOST <= attempts <= _MOST:
        raise DispatchError(f"max_attempts of a submit is at most {_MOST}, got {attempts}")
    function = _function(name)
    if run_config or key is not None:
        packed = msgpack.packb({**(run_config or {}), "queue": queue, "priority": priority, "key": key})
        frame = submits.fingerprint_frame(queue, function, packed)
    else:
        packed, frame = _usual(queue, function, priority)
    return Submission(
        ns=ns,
        queue=queue,
        id=id_,
        args=args,
        hash=submits.fingerprint_within(frame, args),
        function=function,
        run_config=packed,
        priority=priority,
        key=key,
        parent=parent,
        max_attempts=attempts,
        retry_nonce=retry_failed,
        due=due if delay is None else time.time() + delay,
    )


def each(ns: str, calls: Sequence[Call], kept: Callable[[str, bytes], Payload]) -> list[Submission | Exception]:
    """Of each call its row, or what is wrong with it: that is for who made it alone."""
    made: list[Submission | Exception] = []
    for queue, envelope, how in calls:
        try:
            made.append(submission(ns, queue, str(how["id"]), kept(how["id"], envelope), **plain(how)))
        except Exception as exc:  # noqa: BLE001  # carried to its caller
            made.append(exc)
    return made


def is_new(how: dict[str, Any]) -> bool:
    """Whether nothing about a submit with these options is to be looked up: it can leave with others."""
    return bool(how.get("new")) and all(how.get(name) is None for name in ("key", "retry_failed", "delay", "due"))


def plain(how: dict[str, Any]) -> dict[str, Any]:
    """What `submission` takes of the options of such a submit."""
    said = {name: how.get(name) for name in ("key", "parent", "run_config", "retry_failed", "delay", "due", "name")}
    return {**said, "priority": how.get("priority", 0.0)}


def refusal(refused: Refused) -> DispatchError:
    """What `submit` raises for this."""
    error = DispatchError(str(refused))
    error.__cause__ = refused
    return error


def is_held(error: object) -> bool:
    """Whether this was refused by a queue that holds what finds it full."""
    full = error.__cause__ if isinstance(error, DispatchError) else None
    return isinstance(full, QueueFull) and full.blocks


def held(submit: Callable[[], T]) -> T:
    """`submit()`, again and again while its queue is full and is to hold it (K-19). Raises DispatchError."""
    deadline = time.monotonic() + HOLD_S
    waits = full_jitter(random.random, base=0.005, cap=0.1)
    while True:
        try:
            return submit()
        except DispatchError as exc:
            if not is_held(exc) or time.monotonic() >= deadline:
                raise
            time.sleep(next(waits))


@functools.lru_cache(maxsize=256)
def _usual(queue: str, function: bytes, priority: float) -> tuple[bytes, tuple[bytes, bytes]]:
    """The packed config of calls that name nothing else, and the frame of their fingerprints."""
    packed: bytes = msgpack.packb({"queue": queue, "priority": priority, "key": None})
    return packed, submits.fingerprint_frame(queue, function, packed)


@functools.lru_cache(maxsize=256)
def _function(name: str | None) -> bytes:
    packed: bytes = msgpack.packb(native_function(name))
    return packed
