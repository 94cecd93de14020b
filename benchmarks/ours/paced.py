"""A producer that first finds out how much goes through, and then asks for a share of it, evenly, for as long as told.

    python -m ours.paced '{"url": ..., "file": ..., "fill": 40000, "measure_s": 10, "for_s": 600,
        "share": 0.5}'

First it fills the server's caches: `fill` calls are submitted on a queue that nobody serves, and cancelled. Of a
hundred calls of the rest 96 are `add`, two stream a few frames, two are cancelled. Writes one JSON line to `file` each
second: how many calls ended, their round trips from when each was due, and how long one small request took.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from harness.stats import must_be, percentile

import dreamlake.lakeshore as dls
from lakeshore.sdk.errors import InvocationFailed, LakeshoreError
from lakeshore.sdk.http_dispatch import HttpDispatch

from .bodies import QUEUE, add, count_up

ASIDE, FILLING = "aside", 100
IN_FLIGHT = 256
"""While the maximum is measured. Above eight times as many nothing more is asked for: then it is not half of it."""
TICK_S = 0.005
PATIENCE_S = 60.0


@dataclass(slots=True)
class Second:
    """What a second saw."""

    rtt_ms: list[float] = field(default_factory=list)
    request_ms: list[float] = field(default_factory=list)
    held_back: int = 0


class Paced:
    """One run. `errors` are the calls that ended otherwise than they must."""

    def __init__(self, url: str, file: str) -> None:
        self.plane = HttpDispatch(url)
        self.queue = dls.Queue(QUEUE, dispatch=self.plane)
        self.out = open(file, "a", buffering=1)  # noqa: SIM115  # as long as the process
        self.done = 0
        self.errors: list[str] = []
        self.second = Second()
        self._running: set[asyncio.Task[None]] = set()

    async def call(self, number: int, due: float) -> None:
        """One call of the mix, to its end."""
        kind = number % 50
        try:
            if kind == 17:
                inv = await self.queue.submit(dls.thunk(count_up, 5))
                must_be([value async for value in self.queue.stream(inv, timeout=PATIENCE_S)], list(range(5)))
            elif kind == 34:
                inv = await self.queue.submit(dls.thunk(add, number, number))
                await self.queue.cancel(inv)
                with contextlib.suppress(InvocationFailed):  # it may have been quicker
                    must_be(await self.queue.result(inv, timeout=PATIENCE_S), 2 * number)
            else:
                must_be(await self.queue.call(dls.thunk(add, number, number), timeout=PATIENCE_S), 2 * number)
                self.second.rtt_ms.append((time.perf_counter() - due) * 1e3)
        except (LakeshoreError, AssertionError) as error:
            self.errors.append(f"{type(error).__name__}: {error}")
        self.done += 1

    def begin(self, number: int, due: float) -> None:
        """In the background."""
        task = asyncio.create_task(self.call(number, due))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def fill(self, calls: int) -> None:
        """Rows enough that the server's page cache is full: from then on it does not grow by itself.

        A few at a time: what a burst leaves free in the heap would hide a leak for as long as it lasts.
        """
        aside = dls.Queue(ASIDE, dispatch=self.plane)
        path = f"/v1/namespaces/{self.plane.namespace}/invocations/bulk-cancel?queue={ASIDE}"
        for first in range(0, calls, FILLING):
            numbers = range(first, min(first + FILLING, calls))
            await asyncio.gather(*(aside.submit(dls.thunk(add, number, number)) for number in numbers))
            told = await asyncio.to_thread(self.plane.client.call, "POST", path, {}, "cancelling what fills")
            must_be(told["cancelled"], len(numbers))

    async def most(self, for_s: float) -> float:
        """Calls a second when so many are always in flight."""
        number, ends_at = 0, 0.0
        for warm in (True, False):
            started, before = time.perf_counter(), self.done
            ends_at = started + (for_s / 3 if warm else for_s)
            while time.perf_counter() < ends_at:
                while len(self._running) < IN_FLIGHT:
                    self.begin(number, time.perf_counter())
                    number += 1
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        rate = (self.done - before) / (time.perf_counter() - started)
        await asyncio.wait(self._running)
        return rate

    async def pace(self, rate: float, for_s: float) -> None:
        """`rate` calls a second, evenly, whatever becomes of them."""
        asking = asyncio.create_task(self.ask())
        telling = asyncio.create_task(self.tell())
        started, number = time.perf_counter(), 0
        while (now := time.perf_counter()) < started + for_s:
            while (due := started + number / rate) <= now:
                if len(self._running) < 8 * IN_FLIGHT:
                    self.begin(number, due)
                else:
                    self.second.held_back += 1
                number += 1
            await asyncio.sleep(TICK_S)
        for task in (asking, telling):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def ask(self) -> None:
        """Small requests beside the load."""
        while True:
            before = time.perf_counter()
            await self.queue.count("running")
            self.second.request_ms.append((time.perf_counter() - before) * 1e3)
            await asyncio.sleep(0.1)

    async def tell(self) -> None:
        """A line a second."""
        done, due = self.done, time.monotonic()
        while True:
            due += 1.0
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            second, self.second = self.second, Second()
            line: dict[str, Any] = {"t": time.monotonic(), "done": self.done - done, "held_back": second.held_back}
            done = self.done
            if second.rtt_ms and second.request_ms:
                line["rtt_p50_ms"] = percentile(second.rtt_ms, 0.5)
                line["rtt_p95_ms"] = percentile(second.rtt_ms, 0.95)
                line["request_p50_ms"] = percentile(second.request_ms, 0.5)
            self.say(line)

    def say(self, line: dict[str, Any]) -> None:
        """To whoever reads the file."""
        self.out.write(json.dumps(line) + "\n")


async def run(url: str, file: str, fill: int, measure_s: float, for_s: float, share: float) -> None:
    """Fill, measure, then pace."""
    paced = Paced(url, file)
    await paced.fill(fill)
    most = await paced.most(measure_s)
    rate = most * share
    paced.say({"most": most, "rate": rate})
    await paced.pace(rate, for_s)
    paced.say({"ended": paced.done, "errors": paced.errors[:10], "failed": len(paced.errors)})


if __name__ == "__main__":
    asyncio.run(run(**json.loads(sys.argv[1])))
