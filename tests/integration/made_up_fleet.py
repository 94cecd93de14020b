"""A fleet that nobody has, at a moment that has passed, on the dashboard: for pictures that are always the same."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from lakeshore.tui.dashboard.app import Dashboard
from lakeshore.tui.dashboard.facts import Facts
from lakeshore.tui.dashboard.items import Item
from lakeshore.tui.dashboard.server import Server
from lakeshore.tui.dashboard.tabs import TABS

NOW = datetime(2026, 3, 5, 14, 30, tzinfo=UTC)
NS = "vision"
CAPABILITIES = {
    "runners": ["process", "docker"],
    "max_invocations": 4,
    "cpu": {"cores": 32, "model": "EPYC 7543P"},
    "gpu": [{"name": "A100", "memory_gib": 80}, {"name": "A100", "memory_gib": 80}],
    "versions": {"daemon": "0.1.0", "protocol": "1"},
}
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 88, in epoch
    batch = shard.read(index)
  File "shards.py", line 31, in read
    raise ShardMissing(self.name)
ShardMissing: scenes-0007 is not in the bucket"""


def before(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def worker(number: int, label: str, state: str, seen: float, queues: list[str], **more: Any) -> dict[str, Any]:
    return {
        "id": f"{number:024x}",
        "machineId": f"{number + 7:x}f3a9c1d2e4b5{number:x}",
        "label": label,
        "state": state,
        "lastSeenAt": before(seen),
        "helloAt": before(86_400),
        "queues": queues,
        "runners": ["process", "docker"],
        "capabilities": CAPABILITIES,
        "inFlight": 2,
        "maxInvocations": 4,
        **more,
    }


WORKERS = [
    worker(1, "gpu-box-1", "active", 2.1, ["train", "default"]),
    worker(2, "gpu-box-2", "active", 0.4, ["train"]),
    worker(3, "gpu-spot-7", "active", 3.9, ["train", "eval"], providerName="my-ec2", hostStatus="running"),
    worker(4, "gpu-spot-8", "gone", 7_300, ["train"], providerName="my-ec2", hostStatus="terminated"),
    worker(5, "", "stale", 95, ["cpu-prep"], capabilities={"runners": ["process"]}, runners=["process"]),
    worker(6, "laptop-of-ada", "hibernating", 1_260, ["default"], runners=["process"]),
    worker(7, "rack-4-node-12.example.org", "draining", 12, ["eval", "cpu-prep", "thumbnails"]),
    worker(8, "fresh", "joining", 0.9, []),
]


def queue(name: str, state: str, members: int, queued: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": NS,
        "kind": "fifo",
        "state": state,
        "memberCount": members,
        "queued": queued,
        "running": members * 2,
        "createdAt": before(900_000),
        **more,
    }


QUEUES = [
    queue("cpu-prep", "draining", 2, 12),
    queue("default", "active", 2, 0),
    queue("eval", "active", 2, 0, kind="priority"),
    queue("old-crawl", "archived", 0, 0),
    queue("thumbnails", "paused", 1, 480),
    queue("train", "active", 4, 96, providerRef="my-ec2", elasticity={"kind": "max_count", "max": 8}),
]


def call(number: int, state: str, name: str, at: float, **more: Any) -> dict[str, Any]:
    return {
        "id": f"01JG8Z4M2Q6T9W3X7V5RN{number:05}",
        "state": state,
        "queue": name,
        "worker": None,
        "attempt": 0,
        "submittedAt": before(at),
        **more,
    }


FAILED = call(
    1021,
    "failed",
    "train",
    3_680,
    worker="gpu-box-2",
    workerId=f"{2:024x}",
    attempt=3,
    maxAttempts=3,
    functionQualname="train.epoch",
    claimedAt=before(3_640),
    startedAt=before(3_639),
    finishedAt=before(3_412),
    argsBytes=48_213,
    resultBytes=None,
    frames=3,
    runConfig={"queue": "train", "runner": "docker", "image": "vision/train:1.4", "env": {"SEED": "7"}},
    error={"type": "ShardMissing", "message": "scenes-0007 is not in the bucket", "traceback": TRACEBACK},
)
CALLS = [
    call(1031, "queued", "train", 4),
    call(1030, "queued", "train", 9),
    call(
        1029,
        "running",
        "train",
        65,
        worker="gpu-box-1",
        attempt=1,
        startedAt=before(64),
        functionQualname="train.epoch",
    ),
    call(1028, "running", "train", 122, worker="gpu-spot-7", attempt=2),
    call(1027, "running", "eval", 130, worker="rack-4-node-12.example.org", attempt=1, cancelling=True),
    call(1026, "succeeded", "eval", 340, worker="gpu-spot-7", attempt=1),
    call(1025, "killed", "thumbnails", 700),
    call(1024, "timeout", "train", 1_400, worker="gpu-box-1", attempt=1),
    call(1023, "succeeded", "cpu-prep", 2_000, worker="rack-4-node-12.example.org", attempt=1),
    call(1022, "succeeded", "default", 3_500, worker="laptop-of-ada", attempt=1),
    FAILED,
]
STORAGES = [
    {
        "name": name,
        "namespace": NS,
        "kind": kind,
        "config": {"bucket": bucket, "prefix": prefix},
        "createdAt": before(age),
    }
    for name, kind, bucket, prefix, age in (
        ("artifacts", "s3-prefix", "vision-artifacts", "runs/2026", 7_000_000),
        ("scenes", "s3", "vision-scenes-eu-central-1", "", 9_000_000),
        ("thumbnails", "s3-prefix", "vision-public", "static/thumbnails/256", 90_000),
    )
]
ROWS: dict[str, list[dict[str, Any]]] = dict(
    zip(("workers", "queues", "invocations", "storage"), (WORKERS, QUEUES, CALLS, STORAGES), strict=True)
)
EXEC = {
    "exec_id": "a1b6c0eff9efee670a36283fa9679dc6",
    "command": "nvidia-smi --query-gpu=memory.used --format=csv",
    "status": "done",
    "exit_code": 0,
    "duration_ms": 412,
    "finished_at": before(1_900),
}
PRINTED = [
    ("stdout", "epoch 4 of 30, 812 scenes"),
    ("stdout", "loss 0.2514"),
    ("stderr", "shards.py:29: UserWarning: scenes-0007 was listed, and is not there"),
]
FRAMES = [f"{at:>5}  {{'epoch': {at + 1}, 'loss': {loss}}}" for at, loss in enumerate((0.8121, 0.4409, 0.2902))]


class Still(Dashboard):
    """It asks nobody."""

    def __init__(self, tab: str) -> None:
        server = Server(url="https://lake.example.org", namespace=NS)
        super().__init__(server, tab=tab, clock=lambda: NOW)

    def _start(self) -> None:
        self._who = {"authMode": "token"}
        self._of_train()
        for at, queued in ((0.0, 118), (60.0, 108)):
            self._tally.put({"queued": queued, "running": 14, "failed": 3}, at)
        for tab in TABS:
            self._put(self._views[tab.name], [tab.item(row) for row in ROWS[tab.name]])

    def _attend(self, item: Item) -> None:
        row = next(row for row in ROWS[self._active.tab.name] if item.id.endswith(row.get("id", row.get("name"))))
        if row is QUEUES[-1]:
            self._queue(row)
        elif row is WORKERS[0]:
            self._pane.put(Facts(row=row, jobs=CALLS[2:3], exec=EXEC))
        elif row is FAILED:
            self._pane.put(Facts(row=row, printed=PRINTED, frames=FRAMES, attempt=3))
        else:
            self._pane.put(Facts(row=row))

    def _of_train(self) -> None:
        """Two minutes in which much was submitted, and three workers came."""
        now = time.monotonic()
        for second in range(0, 118, 2):
            queued = 40 + 160 * math.exp(-(((second - 60) / 26) ** 2)) + 7 * math.sin(second)
            running = min(2 + second // 12, 8)
            told = {"queued": round(queued), "running": running, "throughput_per_s": running * 0.31}
            self._history.put(f"{NS}/train", told, now - 119 + second)

    def _queue(self, row: dict[str, Any]) -> None:
        members = [
            {"id": one["id"], "label": one["label"], "state": one["state"], "queues": one["queues"]}
            for one in WORKERS[:4]
        ]
        stats = {"queued": 96, "running": 8, "throughput_per_s": 2.5, "oldest_age_s": 41.0, "utilization": 0.75}
        self._pane.put(
            Facts(
                row={**row, "members": members},
                stats=stats,
                waiting=["96: all 4 workers of queue 'train' are busy"],
            )
        )


async def picture(tab: str, size: tuple[int, int], *keys: str) -> str:
    """The screen as SVG after these keys."""
    app = Still(tab)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        app._pane.redraw()
        await pilot.pause()
        return app.export_screenshot(title="lakeshore tui")
