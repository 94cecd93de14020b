"""A call or a wait with little time, or none, ends soon also where a name, a connection or an answer never comes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LATE_S = 4.5
"""Two seconds of grace, and a busy machine's. A resolver alone takes ten."""
SETUP = """
    set -e
    ip link set lo up
    echo 'nameserver 127.0.0.1' > "$1/resolv.conf"
    printf '127.0.0.1 localhost several\\n127.0.0.2 several\\n127.0.0.3 several\\n' > "$1/hosts"
    mount --bind "$1/resolv.conf" /etc/resolv.conf
    mount --bind "$1/hosts" /etc/hosts
    shift
    exec "$@"
"""
SCRIPT = """
    import asyncio, json, logging, socket, time
    from concurrent.futures import ThreadPoolExecutor
    import trio
    import dreamlake.lakeshore as dls
    from lakeshore.sdk.errors import DispatchError
    from lakeshore.sdk.http_dispatch import HttpDispatch

    logging.disable()
    resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    resolver.bind(("127.0.0.1", 53))  # takes every question
    mute = socket.create_server(("127.0.0.1", 0), backlog=128)  # takes connections, and no request
    full = socket.create_server(("", 0), backlog=0)  # takes no connection
    waiting = [socket.socket() for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", full.getsockname()[1]))
    closed = socket.create_server(("127.0.0.1", 0))
    nobody = closed.getsockname()[1]
    closed.close()
    places = {
        "nobody": f"http://127.0.0.1:{nobody}",
        "mute": f"http://127.0.0.1:{mute.getsockname()[1]}",
        "mute with TLS": f"https://127.0.0.1:{mute.getsockname()[1]}",
        "full": f"http://127.0.0.1:{full.getsockname()[1]}",
        "several that are full": f"http://several:{full.getsockname()[1]}",
        "a name that nobody tells": "http://lakeshore.example:8000",
    }

    @dls.udf(queue="q")
    def f(x):
        return x

    async def call(plane, limit):
        await dls.Queue("q", dispatch=plane).call(1, timeout=limit)

    async def result(plane, limit):
        await dls.Queue("q", dispatch=plane).result("someid", timeout=limit)

    ways = {
        "remote": lambda plane, limit: f.remote(1, _timeout=limit, _dispatch=plane),
        "call": lambda plane, limit: dls.SyncQueue("q", dispatch=plane).call(1, timeout=limit),
        "result": lambda plane, limit: dls.SyncQueue("q", dispatch=plane).result("someid", timeout=limit),
        "stream": lambda plane, limit: list(dls.SyncQueue("q", dispatch=plane).stream("someid", timeout=limit)),
        "asyncio call": lambda plane, limit: asyncio.run(call(plane, limit)),
        "asyncio result": lambda plane, limit: asyncio.run(result(plane, limit)),
        "trio call": lambda plane, limit: trio.run(call, plane, limit),
        "trio result": lambda plane, limit: trio.run(result, plane, limit),
    }

    def took(url, way, limit):
        plane = HttpDispatch(url)
        began = time.monotonic()
        try:
            way(plane, limit)
        except (DispatchError, TimeoutError):
            return time.monotonic() - began - limit
        finally:
            plane.close()
        return "no error"

    with ThreadPoolExecutor(len(ways)) as threads:
        tried = {
            f"{way} of {limit} s at {place}": threads.submit(took, url, ways[way], limit)
            for place, url in places.items()
            for way in ways
            for limit in (0, 0.3)
        }
    print(json.dumps({name: done.result() for name, done in tried.items()}))
"""


@pytest.fixture
def alone(tmp_path: Path) -> list[str]:
    """What runs a command where no name server answers."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare and ip")
    found = ["unshare", "--user", "--map-root-user", "--net", "--mount", "bash", "-c", textwrap.dedent(SETUP), "bash"]
    tried = subprocess.run([*found, str(tmp_path), "true"], capture_output=True, text=True, check=False, timeout=60)
    if tried.returncode:
        pytest.skip(f"no name space of its own: {tried.stderr.strip()}")
    return [*found, str(tmp_path)]


def test_none_with_little_time_takes_seconds_more(alone: list[str]) -> None:
    done = subprocess.run(
        [*alone, sys.executable, "-W", "ignore::UserWarning", "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    took = json.loads(done.stdout)
    assert len(took) == 96
    assert {name: late for name, late in took.items() if not isinstance(late, float) or late > LATE_S} == {}
