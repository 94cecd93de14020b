"""A submit of the local plane as its row: what makes two of them the same one, and when it may begin."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgpack

from ..net.backoff import full_jitter
from ..plane import submits
from ..plane.contract import Payload, QueueFull, Submission
from ..wire.messages import native_function
from .errors import DispatchError

T = TypeVar("T")
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
    """The row to insert; `args` are in their place by now."""
    config = {**(run_config or {}), "queue": queue, "priority": float(priority), "key": key}
    packed = msgpack.packb(config)
    function = _function(name)
    return Submission(
        ns=ns,
        queue=queue,
        id=id_,
        args=args,
        hash=submits.fingerprint(queue, function, args, packed),
        function=function,
        run_config=packed,
        priority=float(priority),
        key=key,
        parent=parent,
        max_attempts=int(config.get("max_attempts") or 3),
        retry_nonce=retry_failed,
        due=due if delay is None else time.time() + delay,
    )


def held(submit: Callable[[], T]) -> T:
    """`submit()`, again and again while its queue is full and is to hold it (K-19). Raises DispatchError."""
    deadline = time.monotonic() + HOLD_S
    waits = full_jitter(random.random, base=0.005, cap=0.1)
    while True:
        try:
            return submit()
        except DispatchError as exc:
            full = exc.__cause__
            if not (isinstance(full, QueueFull) and full.blocks) or time.monotonic() >= deadline:
                raise
            time.sleep(next(waits))


@functools.lru_cache(maxsize=256)
def _function(name: str | None) -> bytes:
    packed: bytes = msgpack.packb(native_function(name))
    return packed
