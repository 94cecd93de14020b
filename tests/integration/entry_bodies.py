"""Functions that the per-job entry runs: importable, as a user's module is."""

from __future__ import annotations

import atexit
import os
import signal
import sys
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
def variables(prefix: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}


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
def beats(heart: str) -> None:
    """While it lives, the file has an instant of now (time.monotonic), of 32 bytes."""
    file = os.open(heart, os.O_WRONLY | os.O_CREAT, 0o600)
    while True:
        os.pwrite(file, f"{time.monotonic():032.9f}".encode(), 0)
        time.sleep(0.002)


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
    Path("frames", f"{2:020}").symlink_to(target)
    yield 1


_kept: list[Any] = []


@dls.udf
def about_me() -> dict[str, Any]:
    """What a body can see of its process."""
    here = os.getcwd()
    sys.stdin.close()
    return {
        "warm": "lakeshore.sdk.entry.warm" in sys.modules,
        "pid": os.getpid(),
        "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "parent": os.getppid(),
        "cwd": here,
        "argv": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "main": sys.modules["__main__"].__spec__.name,
        "env": {name: value for name, value in os.environ.items() if name != "DREAMLAKE_JOB"},
        "mark": os.environ["DREAMLAKE_JOB"],
        "path": sys.path,
        "flags": str(sys.flags),
        "umask": os.umask(0o022),
        "streams": [
            (stream.encoding, stream.line_buffering, stream.write_through) for stream in (sys.stdout, sys.stderr)
        ],
        "files": {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)},
        "others": sorted(set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2})[:-1],
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP)],
        "kept": len(_kept),
        "threads": len(os.listdir("/proc/self/task")) if sys.platform.startswith("linux") else 1,
    }


class _Last:
    def __init__(self, path: str) -> None:
        self.path = path

    def __del__(self) -> None:
        with open(self.path, "a") as file:
            file.write("finalized ")


@dls.udf
def ends_untidily(path: str) -> None:
    """What it leaves to the end of its process: an exit handler, a file that nobody closes, an object that lives on."""
    unclosed = open(f"{path}.unclosed", "w")  # noqa: SIM115
    unclosed.write("all of it")
    _kept.extend([unclosed, _Last(path)])
    atexit.register(lambda: Path(path).write_text("handled "))
    print("last words", end="")


@dls.udf
def leaves_a_stray(path: str) -> None:
    """A process that has left the job's session and runs no other program."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(path).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not Path(path).exists() or not Path(path).read_text():
        time.sleep(0.01)


@dls.udf
def doubled(data: bytes) -> bytes:
    return data + data
