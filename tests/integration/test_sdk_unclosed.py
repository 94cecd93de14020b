"""A program that ends without a word to its planes leaves no socket open, whatever it did before."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import served

HEAD = """
    import asyncio, gc, os, threading, trio
    import dreamlake.lakeshore as dls
    from lakeshore.net.blocking import BlockingPool
    from lakeshore.net.current import async_pool_for
    from lakeshore.net.target import parse_target

    url = os.environ["LAKESHORE_URL"]
    q, aq = dls.SyncQueue("unclosed"), dls.Queue("unclosed")

    def refused(ask):
        try:
            ask()
        except ValueError:
            return
        raise AssertionError("it was sent")
"""
PROGRAMS = {
    "a default plane": "q.submit(1)",
    "a plane that goes": """
        plane = dls.HttpDispatch(url)
        plane.count("unclosed")
        del plane
        gc.collect()
    """,
    "a thread that ends": """
        thread = threading.Thread(target=q.submit, args=(1,))
        thread.start()
        thread.join()
    """,
    "a wait that is over": """
        try:
            q.result(q.submit(1), timeout=0)
        except dls.errors.Timeout:
            pass
    """,
    "a stream that is left": """
        stream = q.stream(q.submit(1), timeout=0.1)
        try:
            next(stream)
        except dls.errors.Timeout:
            pass
    """,
    "what cannot be sent": """
        pool = BlockingPool(parse_target(url))
        pool.request("GET", "/healthz")
        for path in ("/a b", "/\\n"):
            refused(lambda: pool.request("GET", path))
            refused(lambda: pool.stream("GET", path))
        assert pool.idle == 1
    """,
    "what cannot be sent, on a loop": """
        async def main():
            pool = async_pool_for(parse_target(url))
            await pool.request("GET", "/healthz")
            for ask in (pool.request, pool.stream):
                try:
                    await ask("GET", "/a b")
                except ValueError:
                    pass
            assert pool.idle == 1

        asyncio.run(main())
        trio.run(main)
    """,
    "awaits that are given up": """
        async def main():
            waits = [asyncio.create_task(aq.result(await aq.submit(1), timeout=30)) for _ in range(3)]
            await asyncio.sleep(0)
            waits[0].cancel()
            await aq.submit(1)

        asyncio.run(main())
        asyncio.run(main())
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_program_leaves_no_socket_open(server: served.Served, program: str) -> None:
    script = textwrap.dedent(HEAD) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-W", "always::ResourceWarning", "-c", script],
        env={**os.environ, "LAKESHORE_URL": server.url, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
