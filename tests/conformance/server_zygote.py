"""Forks real servers in a few milliseconds: imported once, then one child per start, killed with SIGKILL.

Reads `start <json arguments>` and `kill` on stdin; answers with one line each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback


def main() -> None:
    from lakeshore.server.serve import main as serve

    child = 0
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "start":
            child = os.fork()
            if child == 0:
                os.setsid()
                status = 1
                try:
                    status = serve(json.loads(rest))
                except BaseException:
                    traceback.print_exc()
                os._exit(status)
        elif word == "kill" and child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            child = 0
        print("done", flush=True)
    if child:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
