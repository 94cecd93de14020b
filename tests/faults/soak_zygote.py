"""Forks the processes of a soak in a few milliseconds each, so that time goes into work and not into imports.

Reads one JSON array a line on stdin, `[verb, name, ...]`, and answers each with one JSON value a line:
    ["start", name, module, arguments, log]    module.main(*arguments) in a child; its pid
    ["signal", name, number]                   null
    ["wait", name, seconds]                    how it ended, as in subprocess (null: it has not)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

import soak_hand
import soak_producer
import soak_worker

from lakeshore.server import serve


def _server(*arguments: str) -> int:
    return serve.main(list(arguments))


MAINS: dict[str, Callable[..., int | None]] = {
    "server": _server,
    "worker": soak_worker.main,
    "producer": soak_producer.main,
    "hand": soak_hand.main,
}


def start(module: str, arguments: list[str], log: str) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((null, 0), (out, 1), (out, 2)):
            os.dup2(old, new)
        status = MAINS[module](*arguments) or 0
    except SystemExit as exc:
        status = int(exc.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    pids: dict[str, int] = {}
    ended: dict[int, int] = {}
    for line in sys.stdin:
        verb, name, *rest = json.loads(line)
        answer: int | None = None
        if verb == "start":
            answer = pids[name] = start(*rest)
        elif verb == "signal":
            os.kill(pids[name], rest[0])
        elif verb == "wait":
            deadline = time.monotonic() + rest[0]
            while (answer := ended.get(pids[name])) is None and time.monotonic() <= deadline:
                pid, status = os.waitpid(pids[name], os.WNOHANG)
                if pid:
                    ended[pid] = os.waitstatus_to_exitcode(status)
                else:
                    time.sleep(0.002)
        print(json.dumps(answer), flush=True)
    for pid in set(pids.values()) - set(ended):  # who asked is gone: nothing outlives it
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
