"""A worker process on a plane file: `python -m ours.local_worker FILE power|process`."""

from __future__ import annotations

import signal
import sys

from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.queues import SyncQueue
from lakeshore.sdk.worker import Worker

from .bodies import QUEUE


def main() -> None:
    """Work until SIGTERM."""
    plane = Dispatch(sys.argv[1], durability="process" if sys.argv[2] == "process" else "power")
    worker = Worker(SyncQueue(QUEUE, dispatch=plane), own_process=True)
    signal.signal(signal.SIGTERM, lambda *_: worker.drain())
    worker.run()
    plane.close()


if __name__ == "__main__":
    main()
