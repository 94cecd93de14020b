"""Bodies that print."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings

import dreamlake.lakeshore as dls


@dls.udf(queue="printed")
def both(n: int) -> int:
    for number in range(n):
        print("out", number)
        print("err", number, file=sys.stderr)
    return n


@dls.udf(queue="printed")
def silent(x: int) -> int:
    return x


@dls.udf(queue="printed")
def in_every_way() -> None:
    print("printed without an end", end="")
    sys.stdout.buffer.write(b" \x00\xff\xfe ")
    logging.warning("logged")
    warnings.warn("warned", stacklevel=1)
    thread = threading.Thread(target=print, args=("of a thread",))
    thread.start()
    thread.join()
    print("one, two\n" + "three")
    sys.stdout.close()  # is not the worker's to lose


@dls.udf(queue="printed")
def until_told(path: str) -> None:
    print("begun")
    while not os.path.exists(path):
        time.sleep(0.01)
    print("told")


@dls.udf(queue="printed")
def flood(mib: int) -> None:
    line = "x" * 1023 + "\n"
    print("the first line")
    for _ in range(mib * 1024):
        sys.stdout.write(line)
    print("the last line")


@dls.udf(queue="printed")
def dies(path: str) -> None:
    print("before the end")
    while not os.path.exists(path):
        time.sleep(0.01)
    os._exit(7)


@dls.udf(queue="printed")
def fails_once(path: str) -> str:
    if not os.path.exists(path):
        open(path, "w").close()
        print("the first attempt")
        raise ValueError("once")
    print("the second attempt")
    return "done"


@dls.udf(queue="printed")
def fails_when_told(tried: str, told: str) -> None:
    if not os.path.exists(tried):
        open(tried, "w").close()
        print("the first attempt")
        while not os.path.exists(told):
            time.sleep(0.01)
        raise ValueError("once")
    print("the second attempt")


@dls.udf(queue="printed")
def forks() -> None:
    print("parent")
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        print("child")
        os._exit(0)
    os.waitpid(child, 0)
    print("parent again")
