"""A hand-written worker of the soak that writes down each frame and each ending that the plane acknowledged to it.

argv: url directory. It submits its own jobs, so that there is always one to take. Lines:
    A <id>                          the submit returned
    J <id> <claim> <seq> <sha256>   the append returned
    K <id> <claim> <sha256>         the ack returned
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

from lakeshore import wire
from lakeshore.sdk.errors import LakeshoreError
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.ids import new_id

QUEUE = "by-hand"


def main(url: str, directory: str) -> None:
    plane = HttpDispatch(url, timeout=60.0)
    said = open(Path(directory, "said-hand"), "ab", buffering=0)  # noqa: SIM115 - as long as the process
    me = f"hand-{os.getpid()}"
    while True:
        stopping = Path(directory, "stop").exists()
        if not stopping:
            inv = plane.submit(QUEUE, b"by hand", id=new_id(), run_config={"max_attempts": 1000})
            said.write(f"A {inv}\n".encode())
        job = plane.claim(QUEUE, me)
        if job is None:
            if stopping and plane.count(QUEUE, "running") == 0:
                return
            time.sleep(0.05)
            continue
        try:
            last = job.first_seq - 1
            for step in range(3):
                frame = wire.FrameWriter(last + 1).value([job.id, job.claim, step])
                last = plane.journal_append(job.id, last + 1, frame, claim=job.claim)
                said.write(f"J {job.id} {job.claim} {last} {hashlib.sha256(frame).hexdigest()}\n".encode())
            result = f"{job.id} {job.claim}".encode() * 3000
            plane.ack(job.id, me, result=result, claim=job.claim, last_seq=last)
            said.write(f"K {job.id} {job.claim} {hashlib.sha256(result).hexdigest()}\n".encode())
        except LakeshoreError as error:
            said.write(f"E {job.id} {error}\n".encode().replace(b"\n", b" ") + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    os._exit(0)
