"""What the soak's workers run, and what each call must give. A body's first act is to write down that it began."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from history import Log

from lakeshore import wire
from lakeshore.sdk.context import current
from lakeshore.sdk.functions import UDF, udf

QUEUE = "soak"
BIG = 300_000
"""Bytes of a payload that travels beside the call, and is a file at both ends."""

_log: Log | None = None
_claims: dict[str, int] = {}


def running(invocation_id: str, claim: int) -> None:
    """The worker says which claim the next body runs under."""
    _claims.clear()
    _claims[invocation_id] = claim


def _began(directory: str) -> None:
    global _log
    if _log is None:
        _log = Log(directory, f"worker-{os.getpid()}")
    inv = current().invocation_id or ""
    _log.began(inv, _claims.get(inv))


@udf
def small(directory: str, number: str, seed: int) -> list[int]:
    _began(directory)
    return [seed, seed * seed]


@udf
def large(directory: str, number: str, seed: int) -> bytes:
    _began(directory)
    return bytes([seed % 256]) * BIG


@udf
def echoed(directory: str, number: str, seed: int, data: bytes) -> int:
    _began(directory)
    return len(data) + seed


@udf
def streamed(directory: str, number: str, seed: int) -> Iterator[int]:
    _began(directory)
    for step in range(4):
        time.sleep(0.005)
        yield seed + step


@udf
def flood(directory: str, number: str, seed: int) -> Iterator[list[int]]:
    _began(directory)
    for step in range(100):
        yield [step, seed]


@udf
def slow(directory: str, number: str, seed: int) -> int:
    """Long enough to be cancelled while it runs."""
    _began(directory)
    time.sleep(0.3)
    return seed


@udf
def flaky(directory: str, number: str, seed: int) -> int:
    """Fails twice, then goes through."""
    _began(directory)
    for turn in range(2):
        marker = Path(directory, f"flaky-{number}-{turn}")
        if not marker.exists():
            marker.touch()
            raise ValueError(f"turn {turn}")
    return seed


@udf
def doomed(directory: str, number: str, seed: int) -> None:
    _began(directory)
    raise ValueError("always")


PATIENT: Mapping[str, Any] = {"max_attempts": 1000}
OK: Mapping[str, Sequence[str]] = {"succeeded": ()}
MAY_DIE: Mapping[str, Sequence[str]] = {"succeeded": (), "failed": ("WorkerLost",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A call, and what is known of it before it runs."""

    function: UDF[..., Any]
    arguments: tuple[Any, ...]
    result: bytes | None = None
    yields: list[bytes] | None = None
    run_config: Mapping[str, Any] = field(default_factory=lambda: PATIENT)
    may: Mapping[str, Sequence[str]] = field(default_factory=lambda: OK)
    executions: int = 1

    def write_down(self, log: Log, inv: str) -> None:
        """Once its submit has returned."""
        log.submitted(inv, result=self.result, yields=self.yields, may=self.may, executions=self.executions)


def draw(rng: random.Random, directory: str, number: str) -> Drawn:
    """One call of some kind."""
    seed = rng.randrange(1000)
    given = (directory, number, seed)
    kinds: dict[str, tuple[int, Callable[[], Drawn]]] = {
        "small": (10, lambda: Drawn(function=small, arguments=given, result=wire.pack([seed, seed * seed]))),
        "large": (1, lambda: Drawn(function=large, arguments=given, result=wire.pack(bytes([seed % 256]) * BIG))),
        "echoed": (
            1,
            lambda: Drawn(function=echoed, arguments=(*given, rng.randbytes(BIG)), result=wire.pack(BIG + seed)),
        ),
        "streamed": (
            4,
            lambda: Drawn(function=streamed, arguments=given, yields=[wire.pack(seed + step) for step in range(4)]),
        ),
        "flood": (
            1,
            lambda: Drawn(function=flood, arguments=given, yields=[wire.pack([step, seed]) for step in range(100)]),
        ),
        "slow": (1, lambda: Drawn(function=slow, arguments=given, result=wire.pack(seed))),
        "flaky": (2, lambda: Drawn(function=flaky, arguments=given, result=wire.pack(seed), executions=3)),
        "doomed": (
            1,
            lambda: Drawn(
                function=doomed,
                arguments=given,
                run_config={"max_attempts": 2},
                may={"failed": ("ValueError", "WorkerLost")},
                executions=2,
            ),
        ),
        "fragile": (
            2,
            lambda: Drawn(
                function=small,
                arguments=given,
                result=wire.pack([seed, seed * seed]),
                run_config={"max_attempts": 1},
                may=MAY_DIE,
            ),
        ),
    }
    name = rng.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
    return kinds[name][1]()
