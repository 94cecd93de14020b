"""A hand-written worker of the soak: writes down each frame and each ending that the plane acknowledged to it.

main(url, directory, seed): it submits its own jobs, so that there is always one to take; some it reports as failed,
with and without another attempt, and what it reported so speaks up once more when it is too late.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from history import Log

from lakeshore import wire
from lakeshore.sdk.claimed import Claimed
from lakeshore.sdk.errors import LakeshoreError
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.ids import new_id

QUEUE = "by-hand"
MAY = {"succeeded": (), "failed": ("ValueError",)}


class Hand:
    """One life of it. `given_up`: claims that it reported as failed, which speak once more when a newer one runs."""

    def __init__(self, url: str, directory: str, seed: str) -> None:
        self.plane, self.log = HttpDispatch(url, timeout=120.0), Log(directory, "hand")
        self.rng, self.me = random.Random(int(seed)), f"hand-{os.getpid()}"
        self.given_up: dict[str, int] = {}

    def submit(self) -> None:
        inv = self.plane.submit(QUEUE, b"by hand", id=new_id(), run_config={"max_attempts": 1000})
        self.log.submitted(inv, may=MAY)

    def work(self, job: Claimed) -> None:
        self.log.began(job.id, job.claim)
        last = self.append(job, job.claim, job.first_seq)
        if (older := self.given_up.pop(job.id, None)) is not None:
            self.too_late(job, older, last)
        for _ in range(2):
            last = self.append(job, job.claim, last + 1)
        how = self.rng.choices(("succeeded", "again", "failed"), (7, 2, 1))[0]
        if how == "succeeded":
            self.ack(job, job.claim, f"{job.id} {job.claim}".encode() * 3000, last)
            return
        sent_at, again = time.monotonic(), how == "again"
        self.plane.nack(job.id, self.me, error=ValueError(how), retry=again, claim=job.claim)
        self.log.settled(job.id, job.claim, "failed", sent_at=sent_at, final=not again)
        if again:
            self.given_up[job.id] = job.claim

    def append(self, job: Claimed, claim: int, seq: int) -> int:
        frame = wire.FrameWriter(seq).value([job.id, claim])
        self.plane.journal_append(job.id, seq, frame, claim=claim)
        self.log.appended(job.id, claim, seq, frame)
        return seq

    def ack(self, job: Claimed, claim: int, result: bytes, last: int) -> None:
        sent_at = time.monotonic()
        self.plane.ack(job.id, self.me, result=result, claim=claim, last_seq=last)
        self.log.settled(job.id, claim, "succeeded", sent_at=sent_at, result=result)

    def too_late(self, job: Claimed, older: int, last: int) -> None:
        """What an older claim says must be refused; were it acknowledged, the history would tell."""
        for speak in (lambda: self.append(job, older, last + 1), lambda: self.ack(job, older, b"late", last)):
            try:
                speak()
            except LakeshoreError as error:
                self.log.refused(job.id, error)


def main(url: str, directory: str, seed: str) -> None:
    hand = Hand(url, directory, seed)
    plane = hand.plane
    while True:
        stopping = Path(directory, "stop").exists()
        if not stopping:
            hand.submit()
        job = plane.claim(QUEUE, hand.me)
        if job is None:
            if stopping and plane.count(QUEUE, "running") == plane.count(QUEUE, "queued") == 0:
                return
            time.sleep(0.05)
            continue
        try:
            hand.work(job)
        except LakeshoreError as error:
            hand.log.refused(job.id, error)
