"""A producer of the soak: submits, reads streams and results, cancels, retries by hand; writes down what it is told.

main(where, directory, name, seed, how): `where` is a URL, or the file of a local plane. It dies at any time. `how`:
`loop` (one call after the other), `threads` (four of those in one process), `gather` (batches on an asyncio loop, all
at once), `bursts` (many, and a look at a few).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from pathlib import Path

import soak_bodies as bodies
from history import Log

from lakeshore import wire
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import InvocationFailed, LakeshoreError, Timeout
from lakeshore.sdk.functions import thunk
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import Queue

THREADS = 4
PATIENCE_S = 5.0


class Producer:
    """One process."""

    def __init__(self, where: str, directory: str, name: str, seed: int) -> None:
        self.directory, self.name, self.seed = directory, name, seed
        self.plane: HttpDispatch | Dispatch = (
            HttpDispatch(where, timeout=120.0) if where.startswith("http:") else Dispatch(where, durability="process")
        )
        self.queue = Queue(bodies.QUEUE, dispatch=self.plane)
        self.log = Log(directory, name)
        self._numbers = itertools.count()

    def stopped(self) -> bool:
        return Path(self.directory, "stop").exists()

    def draw(self, rng: random.Random) -> bodies.Drawn:
        return bodies.draw(rng, self.directory, f"{self.name}-{self.seed}-{next(self._numbers)}")

    def submit(self, call: bodies.Drawn, delay: float | None = None) -> str:
        inv = call.function.submit(
            *call.arguments,
            _queue=bodies.QUEUE,
            _dispatch=self.plane,
            _run_config=call.run_config,
            _delay=delay,
        )
        call.write_down(self.log, inv)
        return inv

    def follow(self, inv: str, call: bodies.Drawn) -> None:
        """Read its stream, then its result."""
        try:
            if call.yields is not None:
                for seq, frame in self.plane.journal_read(inv, timeout=PATIENCE_S):
                    self.log.read(inv, seq, frame)
            self.log.told(inv, "succeeded", self.plane.result(inv, timeout=PATIENCE_S))
        except Timeout:
            pass  # it is behind others, or its worker has just died
        except InvocationFailed as error:
            self.log.told(inv, error.state)
        except LakeshoreError as error:
            self.log.refused(inv, error)

    def meddle(self, inv: str, rng: random.Random) -> None:
        """Cancel it; and, some time after, perhaps have it run again."""
        try:
            self.log.cancelling(inv)
            if self.plane.cancel(inv):
                self.log.cancelled(inv)
                if rng.random() < 0.5:
                    self.log.retrying(inv)
                    self.plane.retry(inv)
        except LakeshoreError as error:
            self.log.refused(inv, error)

    def loop(self, rng: random.Random) -> None:
        waiting: list[tuple[str, bodies.Drawn]] = []
        while not self.stopped():
            for _ in range(rng.randrange(1, 6)):
                call = self.draw(rng)
                waiting.append((self.submit(call, rng.random() if rng.random() < 0.1 else None), call))
            if rng.random() < 0.2:
                self.meddle(rng.choice(waiting)[0], rng)
            self.follow(*waiting.pop(rng.randrange(len(waiting))))

    def threads(self, rng: random.Random) -> None:
        rngs = [random.Random(rng.random()) for _ in range(THREADS)]
        running = [threading.Thread(target=self.loop, args=(each,)) for each in rngs]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def bursts(self, rng: random.Random) -> None:
        while not self.stopped():
            calls = [self.draw(rng) for _ in range(rng.randrange(20, 100))]
            ids = [self.submit(call) for call in calls]
            for place in rng.sample(range(len(ids)), 3):
                self.follow(ids[place], calls[place])

    async def gather(self, rng: random.Random) -> None:
        while not self.stopped():
            calls = [self.draw(rng) for _ in range(rng.randrange(2, 60))]
            ids = await asyncio.gather(*(self._submit(call) for call in calls))
            await asyncio.gather(*(self._follow(inv, call) for inv, call in zip(ids, calls, strict=True)))

    async def _submit(self, call: bodies.Drawn) -> str:
        envelope = thunk(call.function, *call.arguments).to_envelope()
        inv = await self.plane.aio.submit(bodies.QUEUE, envelope.to_bytes(), id=envelope.id, run_config=call.run_config)
        call.write_down(self.log, inv)
        return inv

    async def _follow(self, inv: str, call: bodies.Drawn) -> None:
        try:
            if call.yields is not None:
                index = 0
                async for value in self.queue.stream(inv, timeout=PATIENCE_S):
                    self.log.value(inv, index, wire.pack(value))
                    index += 1
            self.log.told(inv, "succeeded", await self.plane.aio.result(inv, timeout=PATIENCE_S))
        except Timeout:
            pass
        except InvocationFailed as error:
            self.log.told(inv, error.state)
        except LakeshoreError as error:
            self.log.refused(inv, error)


def main(where: str, directory: str, name: str, seed: str, how: str) -> None:
    producer, rng = Producer(where, directory, name, int(seed)), random.Random(int(seed))
    if how == "gather":
        asyncio.run(producer.gather(rng))
    else:
        getattr(producer, how)(rng)
