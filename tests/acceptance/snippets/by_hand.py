"""A worker as the reference lets people write one: claim, answer, ack. `python by_hand.py QUEUE`"""

from __future__ import annotations

import sys
import time

import dreamlake.lakeshore as dls


def main(queue: str) -> None:
    q = dls.SyncQueue(queue)
    while True:
        job = q.claim()
        if job is None:
            time.sleep(0.02)
        else:
            q.ack(job, result={"answered": job.payload})


if __name__ == "__main__":
    main(sys.argv[1])
