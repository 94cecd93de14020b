"""The plane a row is given: a control plane (`url`) or a file (`file`, `durability`). Warmed up before it is timed."""

from __future__ import annotations

import functools
from typing import Any, Literal

from harness.given import Given
from harness.stats import must_be

from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import SyncQueue

from .bodies import QUEUE, add

WARM_UP = 30


@functools.cache
def _open(url: str, file: str, durability: Literal["power", "process"]) -> Any:
    return HttpDispatch(url) if url else Dispatch(file, durability=durability)


def plane_of(given: Given) -> Any:
    """One plane per process, as a program has."""
    durability: Literal["power", "process"] = "process" if given.durability == "process" else "power"
    return _open(given.url, given.file, durability)


def warm_up(given: Given) -> None:
    """Connections open, workers past their imports."""
    plane = plane_of(given)
    queue = SyncQueue(QUEUE, dispatch=plane)
    ids = [add.submit(i, i, _dispatch=plane) for i in range(WARM_UP)]
    for i, id_ in enumerate(ids):
        must_be(queue.result(id_), 2 * i)


def finish(given: Given) -> None:
    """Close the plane."""
    plane_of(given).close()
