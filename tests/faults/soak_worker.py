"""A worker of the soak: the worker loop on a plane whose source says, before each body, under which claim it runs.

main(where): a URL, or the file of a local plane.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import soak_bodies as bodies

from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import SyncQueue
from lakeshore.sdk.sources import Source, Work
from lakeshore.sdk.worker import Worker


class Saying:
    """A source, in whose `begin` the claim is told."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def begin(self, work: Work, stop: Callable[[str], None]) -> None:
        bodies.running(work.id, work.claim)
        self._inner.begin(work, stop)


class Plane(HttpDispatch):
    """A control plane whose workers say what they begin."""

    def source(self, queue: str, worker: str, **options: Any) -> Any:
        return Saying(super().source(queue, worker, **options))


class LocalPlane(Dispatch):
    """The same of a local plane."""

    def source(self, queue: str, worker_id: str, *, once: bool, **options: Any) -> Any:
        return Saying(super().source(queue, worker_id, once=once, **options))


def main(where: str) -> None:
    plane = Plane(where) if where.startswith("http:") else LocalPlane(where, durability="process")
    worker = Worker(SyncQueue(bodies.QUEUE, dispatch=plane), retries=1000, may_pass=lambda _error: True)
    signal.signal(signal.SIGTERM, lambda *_: worker.drain())
    worker.run()
    plane.close()
