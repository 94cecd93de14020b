"""A producer of the soak: submits calls, reads streams and results, and writes down what it was told. Dies at any time.

argv: url directory name seed. A line is written only after what it says was acknowledged:
    A <id> <kind> <number> <seed>      the submit returned
    F <id> <seq> <sha256>              a frame was read
    R <id> <sha256>                    the result was read
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from pathlib import Path
from typing import Any

import fault_bodies as bodies

from lakeshore.sdk.errors import LakeshoreError
from lakeshore.sdk.http_dispatch import HttpDispatch

ATTEMPTS = {"max_attempts": 1000}


def main(url: str, directory: str, name: str, seed: int) -> None:
    rng = random.Random(seed)
    plane = HttpDispatch(url, timeout=60.0)
    said = open(Path(directory, f"said-{name}"), "ab", buffering=0)  # noqa: SIM115 - as long as the process
    waiting: list[tuple[str, str]] = []
    count = 0
    while not Path(directory, "stop").exists():
        for _ in range(rng.randrange(1, 6)):
            count += 1
            kind = rng.choices(("small", "streamed", "large"), (6, 3, 1))[0]
            number, value = f"{name}-{seed}-{count}", rng.randrange(1000)
            given: list[Any] = [directory, number, value]
            if kind == "large":
                given.append(number.encode() * (bodies.BIG // len(number)))
            inv = getattr(bodies, kind).submit(*given, _queue="soak", _dispatch=plane, _run_config=ATTEMPTS)
            said.write(f"A {inv} {kind} {number} {value}\n".encode())
            waiting.append((inv, kind))
        inv, kind = waiting.pop(rng.randrange(len(waiting)))
        try:
            if kind == "streamed":
                for seq, frame in plane.journal_read(inv, timeout=5.0):
                    said.write(f"F {inv} {seq} {hashlib.sha256(frame).hexdigest()}\n".encode())
            said.write(f"R {inv} {hashlib.sha256(plane.result(inv, timeout=5.0)).hexdigest()}\n".encode())
        except TimeoutError:
            pass  # it is behind others, or its worker has just died
        except LakeshoreError as error:
            said.write(f"E {inv} {error}\n".encode().replace(b"\n", b" ") + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    os._exit(0)
