"""What one small POST costs the HTTP server: user and system CPU per request, over one keep-alive connection each.

    python benchmarks/http_echo.py [--requests 20000] [--clients 1] [--vary]

`--vary` makes every head new, so that each one is parsed; without it the heads repeat, as a client's do.
The server runs in a child process and its own CPU clock is read around the run; the clients live in this one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

BODY = b"x" * 200
REQUEST = (
    b"POST /v1/echo HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
    b"content-type: application/x-msgpack\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


def serve() -> None:
    """The child: echo until stdin closes; each line on stdin asks for the CPU used so far."""
    import trio

    from lakeshore.server.http import HttpServer, Request, Response, Router, open_listeners

    headers = (("content-type", "application/x-msgpack"),)

    async def echo(request: Request) -> Response:
        return Response(headers=headers, body=await request.body())

    async def main() -> None:
        router = Router()
        router.add("POST", "/v1/echo", echo)
        server = HttpServer(router)
        listeners = open_listeners("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            print(listeners[0].address[1], flush=True)
            commands = trio.lowlevel.FdStream(os.dup(0))
            while await commands.receive_some(100):
                used = os.times()
                print(json.dumps([used.user, used.system]), flush=True)
            nursery.cancel_scope.cancel()

    trio.run(main)


def client(port: int, requests: int, latencies: list[float], vary: bool = False) -> None:
    """One connection, one request at a time."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(requests):
            request = REQUEST.replace(b"0123456789abcdef", b"%016d" % number, 1) if vary else REQUEST
            started = time.perf_counter()
            sock.sendall(request)
            answer = sock.recv(65536)
            while not answer.endswith(BODY):
                answer += sock.recv(65536)
            latencies.append(time.perf_counter() - started)


def main() -> None:
    """Run and print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--vary", action="store_true")
    options = parser.parse_args()
    here = dict(os.environ, PYTHONPATH=str(Path(__file__).resolve().parents[1]))  # works from a bare checkout too
    child = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=-1, stdout=-1, text=True, env=here)
    assert child.stdin is not None
    assert child.stdout is not None
    port = int(child.stdout.readline())

    def used() -> list[float]:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        return list(json.loads(child.stdout.readline()))

    client(port, 500, [])
    before, started = used(), time.perf_counter()
    latencies: list[float] = []
    each = options.requests // options.clients
    work = (port, each, latencies, options.vary)
    threads = [threading.Thread(target=client, args=work) for _ in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, after = time.perf_counter() - started, used()
    child.stdin.close()
    child.wait(10)
    count = each * options.clients
    user, system = ((after[i] - before[i]) / count * 1e6 for i in (0, 1))
    print(
        json.dumps(
            {
                "requests": count,
                "clients": options.clients,
                "heads": "each new" if options.vary else "repeated",
                "server_cpu_us": round(user + system, 1),
                "user_us": round(user, 1),
                "system_us": round(system, 1),
                "per_second": round(count / seconds),
                "p50_us": round(statistics.median(latencies) * 1e6, 1),
                "python": platform.python_version(),
                "trio": version("trio"),
                "h11": version("h11"),
            }
        )
    )


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
