"""What a body yields arrives whole and in order, however its pauses and the requests fall together (K-13, K-24)."""

from __future__ import annotations

import os
import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from served import Served, new_id

from lakeshore import wire
from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.frame_sender import MAX_BYTES, MAX_FRAMES, RUN_FRAMES, SLOW_RUN_FRAMES, SLOW_S, FrameSender
from lakeshore.sdk.http_dispatch import HttpDispatch

SEED = int(os.environ.get("FRAMES_SEED", random.randrange(2**32)))


class Streaming:
    """A claimed job of a real server, and the sender of its frames."""

    def __init__(self, server: Served) -> None:
        self.plane = HttpDispatch(server.url, timeout=20.0)
        queue = f"q-{new_id()}"
        self.plane.submit(queue, b"", id=new_id())
        job = self.plane.claim(queue, "w")
        assert job is not None
        self.job: Any = job
        self.sender = FrameSender(self.plane.client, self.job, lambda: True)

    def stored(self, last_seq: int) -> list[bytes]:
        self.plane.ack(self.job.id, "w", claim=self.job.claim, last_seq=last_seq)
        frames = [frame for _seq, frame in self.plane.journal_read(self.job.id, timeout=60)]
        return frames[:-1]

    def close(self) -> None:
        self.sender.close(0.0)
        self.plane.close()


@pytest.fixture
def streaming(server: Served) -> Any:
    made = Streaming(server)
    yield made
    made.close()


def frame(seq: int, size: int) -> bytes:
    return wire.pack([0, seq, b"\xab" * size, None])


@pytest.mark.inventory("K-24")
def test_frames_of_every_size_and_pause_arrive_once_and_in_order(streaming: Streaming) -> None:
    print(f"FRAMES_SEED={SEED}")
    rng = random.Random(SEED)
    frames: list[bytes] = []
    for _ in range(60):
        for _ in range(rng.choice((1, 1, 1, 2, 50, 400))):
            frames.append(frame(len(frames), rng.choice((0, 0, 1, 10, 300, 4000))))
            streaming.sender.put(len(frames) - 1, frames[-1])
        time.sleep(rng.choice((0.0, 0.0, 0.0005, 0.002, 0.005)))  # it falls asleep, or is about to
        if rng.random() < 0.1:
            streaming.sender.flush()
    streaming.sender.flush()
    assert streaming.stored(len(frames) - 1) == frames


def test_a_body_that_is_faster_than_its_server_is_held_back_and_memory_is_bounded(streaming: Streaming) -> None:
    sender = streaming.sender
    frames = [frame(seq, 20_000) for seq in range(600)] + [frame(seq, 0) for seq in range(600, 9000)]
    most_bytes = most_frames = 0
    for seq, data in enumerate(frames):
        sender.put(seq, data)
        most_frames = max(most_frames, len(sender._frames))
        most_bytes = max(most_bytes, sender._put_bytes - sender._taken_bytes)
    sender.flush()
    assert most_frames <= MAX_FRAMES
    assert most_bytes <= MAX_BYTES + 20_100
    assert streaming.stored(len(frames) - 1) == frames


def test_runs_are_longer_where_they_take_long(streaming: Streaming) -> None:
    runs: list[int] = []

    class Slow(FrameSender):
        def _send_once(self, first: int, run: list[bytes]) -> None:
            runs.append(len(run))
            time.sleep(SLOW_S)  # as a slow disk would
            super()._send_once(first, run)

    streaming.sender = Slow(streaming.plane.client, streaming.job, lambda: True)
    frames = [frame(seq, 0) for seq in range(4 * MAX_FRAMES)]
    for seq, data in enumerate(frames):
        streaming.sender.put(seq, data)
    streaming.sender.flush()
    assert runs[0] <= RUN_FRAMES
    assert max(runs) == SLOW_RUN_FRAMES
    assert streaming.stored(len(frames) - 1) == frames


@pytest.mark.inventory("K-5", "K-24")
def test_a_body_whose_claim_is_lost_hears_it_at_one_of_its_next_yields(streaming: Streaming) -> None:
    job = streaming.job
    other = FrameSender(
        streaming.plane.client,
        SimpleNamespace(id=job.id, claim=job.claim + 1),  # a Work of another claim
        lambda: False,
    )
    heard = threading.Event()

    def body() -> None:
        try:
            for seq in range(10_000_000):
                other.put(seq, frame(seq, 10))
        except DispatchError:
            heard.set()

    threading.Thread(target=body, daemon=True).start()
    assert heard.wait(60)
    with pytest.raises(DispatchError, match="were not taken"):
        other.flush()
    other.close(0.0)
    streaming.sender.put(0, frame(0, 1))
    streaming.sender.flush()
    assert streaming.stored(0) == [frame(0, 1)]
