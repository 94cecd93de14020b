"""Workers and calls for a dashboard to show: in a process of its own, each worker on a connection that stays open.

    python -m dashboard.fleet '{"url": …, "workers": 500, "calls": 10000, "changes_s": 50, "ready": file}'

Every worker polls as a daemon does, one poll after the other, and runs what it gets for `RUNS_S`. `ready` is written
once all are there and the calls are stored. A call that is run changes twice: it starts (its worker waits), it ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgpack

RUNS_S = 0.7
LIVE = 25
"""Queues that have workers."""
SEEDED = 20
"""Queues that have none: what is stored there stays queued."""
BATCH = 1000
CHANGES_OF_ONE = 2


class Connection:
    """One request after the other; answers are maps of msgpack with a Content-Length."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80

    async def open(self) -> None:
        """Before the first request."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """What is answered; ValueError for a refusal."""
        data = msgpack.packb(body)
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/x-msgpack\r\n"
        self._writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        told = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(told.partition("content-length:")[2].partition("\r\n")[0])
        answer = msgpack.unpackb(await self._reader.readexactly(length))
        if " 200 " not in told.partition("\r\n")[0]:
            raise ValueError(f"{path}: {answer}")
        return answer

    def close(self) -> None:
        """After the last one."""
        self._writer.close()


class Worker:
    """One daemon, as far as a server sees it."""

    def __init__(self, url: str, number: int) -> None:
        self._connection, self._number = Connection(url), number
        self._machine, self._session = secrets.token_hex(12), secrets.token_hex(12)
        self._n, self._acks = 0, list[dict[str, Any]]()
        self.queue = f"live-{number % LIVE}"

    async def hello(self) -> None:
        """Register."""
        await self._connection.open()
        body = {
            "machine_id": self._machine,
            "label": f"host-{self._number:04}",
            "tags": ["host=bench"],
            "capabilities": {"runners": ["process"], "max_invocations": 1, "workdir": "/w"},
            "versions": {"daemon": "0.1.4", "protocol": "1", "kernel": "6.1", "python": "3.12.1"},
            "lanes": [self.queue],
            "session": self._session,
        }
        told = await self._connection.post("/v1/daemon/hello", body)
        if told["reject"] is not None:
            raise ValueError(told["reject"])
        self._id = told["worker_id"]

    async def work(self) -> None:
        """Until it is cancelled."""
        await asyncio.sleep(random.uniform(0, 2))  # not all at once
        while True:
            self._n += 1
            body = {
                "worker_id": self._id,
                "session": self._session,
                "n": self._n,
                "seen": self._n - 1,
                "queue": self.queue,
                "capacity": 1,
                "timeout_s": random.uniform(15, 20),
                "acks": self._acks,
            }
            told = await self._connection.post("/v1/daemon/poll", body)
            runs = [command["body"] for command in told["commands"] if command["kind"] == "run"]
            self._acks = [
                {"invocation_id": run["invocation_id"], "claim": run["claim"], "state": "succeeded", "result_blob": b""}
                for run in runs
            ]
            if runs:
                await asyncio.sleep(RUNS_S)


def call(queue: str) -> dict[str, Any]:
    """A submit's body."""
    function = {"module": "train", "qualname": f"train.epoch_{secrets.randbelow(9)}", "version": "v1"}
    return {"invocation_id": secrets.token_hex(12), "queue": queue, "function": function, "args_blob": b"x" * 64}


async def submit(connection: Connection, a_second: float) -> None:
    """Evenly, without end."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        await connection.post("/v1/producer/submit", call(f"live-{random.randrange(LIVE)}"))
        due += 1 / a_second
        await asyncio.sleep(max(due - loop.time(), 0))


async def main(given: dict[str, Any]) -> None:
    """Without end."""
    producer = Connection(given["url"])
    await producer.open()
    for start in range(0, given["calls"], BATCH):
        many = [call(f"seeded-{at % SEEDED}") for at in range(start, min(start + BATCH, given["calls"]))]
        await producer.post("/v1/producer/submit", {"invocations": many})
    workers = [Worker(given["url"], number) for number in range(given["workers"])]
    for worker in workers:
        await worker.hello()
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.work())
        if given["changes_s"]:
            group.create_task(submit(producer, given["changes_s"] / CHANGES_OF_ONE))
        Path(given["ready"]).touch()  # noqa: ASYNC240  (nobody waits)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
