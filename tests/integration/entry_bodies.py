"""Functions that the per-job entry runs: importable, as a user's module is."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import dreamlake.lakeshore as dls

NAMED = (
    "DREAMLAKE_INVOCATION_ID",
    "DREAMLAKE_WORKDIR",
    "DREAMLAKE_PARENT_INVOCATION_ID",
    "DREAMLAKE_ROOT_INVOCATION_ID",
)


@dls.udf
def pair(a: int, b: int) -> tuple[int, int]:
    return a, b


@dls.udf
def slow_pair(seconds: float) -> tuple[int, int]:
    time.sleep(seconds)
    return 1, 2


@dls.udf
def told() -> dict[str, Any]:
    child = dls.thunk(pair, 1, 2).to_envelope()
    secrets = [name for name in os.environ if "TOKEN" in name and name.startswith("LAKESHORE_")]
    return {"parent": child.parent, "secrets": secrets, **{name: os.environ.get(name) for name in NAMED}}


@dls.udf
def shards(n: int) -> Iterator[list[str]]:
    for i in range(n):
        dls.run.write(f"shards/{i}.txt").write_text(str(i))
        yield [f"shards/{i}.txt"]


@dls.udf
async def later_shards(n: int) -> AsyncIterator[list[str]]:
    for i in range(n):
        dls.run.write(f"shards/{i}.txt").write_text(str(i))
        yield [f"shards/{i}.txt"]


@dls.udf
def fails() -> None:
    raise ValueError("no such scene")


@dls.udf
def sloppy() -> None:
    dls.run.write("kept.txt").write_text("x")


@dls.udf
def submits(queue: str) -> str:
    return pair.submit(3, 4, _queue=queue)


@dls.udf
def waits_for_ever(begun: str) -> None:
    Path(begun).write_text("begun")
    while True:
        time.sleep(60)


@dls.udf
def splats_to_mesh(key: str, store: str) -> str:
    with dls.Storage("my-data", base_url=store) as objects:
        mesh = b"mesh of " + objects.get(f"scenes/0007/{key}")
        objects.put("process/mesh.ply", mesh)
    dls.run.write("process/mesh.ply").write_bytes(mesh)
    return "process/mesh.ply"


@dls.udf
def counted(n: int, gate: str = "") -> Iterator[int]:
    """Yields, and prints, n numbers; with a gate it waits in the middle until that file is there."""
    for i in range(n):
        if gate and i == n // 2:
            while not Path(gate).exists():
                time.sleep(0.01)
        print(f"line {i}")
        yield i


@dls.udf
def heavy(n: int, size: int) -> Iterator[bytes]:
    for i in range(n):
        yield i.to_bytes(4, "big") + bytes(size)


@dls.udf
def forged() -> Iterator[int]:
    yield 0
    next(Path("frames").iterdir()).write_bytes(b"\xc1 no frame")
    yield 1


@dls.udf
def linked(target: str) -> Iterator[int]:
    yield 0
    Path("frames", f"{1:020}").symlink_to(target)
    yield 1
