"""A program on a plane of its own that produces and works: `power_local.py PATH SEED ROUNDS DURABILITY…`.

With several durabilities the plane is made by the first, has them all open at once, and is used with the last.

What each call promised it writes to stdout, one line of JSON, when the call has returned; the trace shows when.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import msgpack

from lakeshore import wire
from lakeshore.sdk import local_wait
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.ids import new_id

SIZES = (10, 10, 3_000, 70_000)
_said = threading.Lock()


def say(kind: str, inv: str, data: bytes = b"", claim: int = 0, seq: int = 0) -> None:
    """A promise, on its way to whoever reads stdout."""
    line = json.dumps({"kind": kind, "id": inv, "claim": claim, "seq": seq, "data": data.hex()})
    with _said:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def play(plane: Dispatch, name: str, rng: random.Random, rounds: int) -> None:
    """Submit, stream, ack, nack, retry, cancel and post on a queue of one's own."""

    def payload() -> bytes:
        return rng.randbytes(8).ljust(rng.choice(SIZES), rng.randbytes(1))

    topic = -1
    for number in range(rounds):
        inv, args = f"{name}-{number}", payload()
        plane.submit(name, args, id=inv, new=number % 3 != 2)
        say("submitted", inv, args)
        if number % 5 == 4:
            plane.cancel(inv)
            say("ended", inv)
            continue
        job = plane.claim(name, "w")
        assert job is not None
        say("claimed", job.id, claim=job.claim)
        for seq in range(job.first_seq, job.first_seq + rng.randrange(3)):
            frame = wire.FrameWriter(seq).value(payload())
            plane.journal_append(job.id, seq, frame, claim=job.claim)
            say("frame", job.id, frame, job.claim, seq)
        if number % 5 == 3:
            plane.nack(job.id, "w", error="no", retry=False, claim=job.claim)
            say("ended", job.id, claim=job.claim)
            plane.retry(job.id)
            say("claimed", job.id, claim=job.claim + 1)
            continue
        result = payload()
        plane.ack(job.id, "w", result=result, claim=job.claim)
        say("succeeded", job.id, result, job.claim)
        if number % 3 == 0:
            call(plane, f"{name}-calls", f"{inv}-call", payload())
        if number % 4 == 0:
            body = msgpack.packb(payload())
            topic += 1
            assert plane.topic_post(name, "t", body) == topic
            say("posted", name, body, seq=topic)


def call(plane: Dispatch, queue: str, inv: str, result: bytes) -> None:
    """Submit and wait in one, with a worker beside it: what is promised is the result alone."""

    def work() -> None:
        while (job := plane.claim(queue, "w")) is None:
            plane.wait_for_work(queue, 60.0)
        plane.ack(job.id, "w", result=result, claim=job.claim)

    worker = threading.Thread(target=work)
    worker.start()
    assert plane.submit_and_wait(queue, b"called", id=inv, timeout=60.0, new=True) == result
    say("succeeded", inv, result, claim=1)
    worker.join()


def main(path: str, seed: str, rounds: int, *durabilities: str) -> None:
    local_wait.SOON_S = 60.0  # no call syncs what it leaves: its row's commits do
    *others, plane = [Dispatch(path, durability=one) for one in durabilities]  # type: ignore[arg-type]  # names of it
    for one in others:  # queues that are known
        for name in ("q0", "q1"):
            one.cancel(one.submit(name, b"", id=new_id()))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda k: play(plane, f"q{k}", random.Random(f"{seed}-{k}"), rounds), range(2)))
    state = plane._state()
    with state.combiner.turn:
        state.plane.checkpoint_if_large(Path(f"{path}.d/checkpoint.lock"), over_bytes=0)
    plane.submit("q", b"after the checkpoint", id="last")
    say("submitted", "last", b"after the checkpoint")
    for one in (plane, *others):
        one.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
