"""What clients follow: `Watch` on a loop, and the commands that are drawn at each change."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from served import JSON, Served, environment, new_id, one, running, start

from lakeshore.client.errors import ApiError
from lakeshore.client.watch import ALL, News, Watch


async def until(news: AsyncIterator[News], fits: Callable[[News], bool]) -> News:
    async with asyncio.timeout(30):
        async for one_ in news:
            if fits(one_):
                return one_
    raise AssertionError("the watch ended")


def test_a_watch_lists_first_then_follows_and_ends_when_it_is_closed(server: Served) -> None:
    ns = f"ns-{new_id()}"

    async def go() -> None:
        watch = Watch(server.url, namespace=ns, kinds=("invocations",))
        async with aclosing(aiter(watch)) as news:  # type: ignore[type-var]  # it is a generator
            first = await anext(news)
            assert first.reset == ("invocations",) and first.changes == ()
            call = one()
            headers = {"X_LS_Namespace": ns}
            await asyncio.to_thread(lambda: server.post("/v1/producer/submit", call, **headers))
            told = await until(news, lambda said: bool(said.changes))
            (change,) = told.changes
            assert (change.kind, change.id, change.gone) == ("invocations", call["invocation_id"], False)
            assert change.row is not None and change.row["state"] == "queued"
            ending = asyncio.ensure_future(anext(news, None))
            await asyncio.sleep(0.05)
            watch.close()
            async with asyncio.timeout(10):
                assert await ending is None

    server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON)
    asyncio.run(go())


def test_a_server_that_was_killed_is_told_once_and_then_all_is_listed_anew(tmp_path: Path) -> None:
    port = str(free_port())
    first = start(tmp_path, "--port", port)

    async def go() -> None:
        watch = Watch(first.url, namespace=ALL, kinds=("invocations", "workers"))
        async with aclosing(aiter(watch)) as news:  # type: ignore[type-var]  # as above
            assert (await anext(news)).reset
            first.stop(signal.SIGKILL)
            away = await until(news, lambda said: said.away is not None)
            assert away.changes == () and away.reset == ()
            following = asyncio.ensure_future(anext(news))
            second = await asyncio.to_thread(start, tmp_path, "--port", port)
            try:
                back = await asyncio.wait_for(following, 30)
                assert back.away is None and set(back.reset) == {"invocations", "workers"}
                call = one()
                await asyncio.to_thread(second.post, "/v1/producer/submit", call)
                told = await until(news, lambda said: bool(said.changes))
                assert [change.id for change in told.changes] == [call["invocation_id"]]
            finally:
                await asyncio.to_thread(second.stop, signal.SIGKILL)

    try:
        asyncio.run(go())
    finally:
        first.stop(signal.SIGKILL)


def test_a_refusal_is_raised(secured_server: Served) -> None:
    async def go() -> int:
        with pytest.raises(ApiError) as refused:
            await until(aiter(Watch(secured_server.url, namespace="default", token="dlk_nobody")), lambda _: False)
        return refused.value.status

    assert asyncio.run(go()) == 401


@pytest.fixture
def watching(server: Served) -> Iterator[Callable[..., Iterator[str]]]:
    """Start a command with `--watch`; its lines as they come."""
    started: list[subprocess.Popen[str]] = []

    def watching(*arguments: str, ns: str) -> Iterator[str]:
        env = environment(LAKESHORE_URL=server.url, LAKESHORE_NAMESPACE=ns)
        command = [sys.executable, "-m", "lakeshore", *arguments]
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        timer = threading.Timer(40, process.kill)
        timer.daemon = True
        timer.start()
        assert process.stdout is not None
        return iter(process.stdout.readline, "")

    yield watching
    for process in started:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode in (0, 130), "Ctrl-C ends it"


@pytest.mark.parametrize(
    ("arguments", "change"),
    [
        (("jobs", "list"), lambda server, ns, name: server.post("/v1/producer/submit", _call(name), X_LS_Namespace=ns)),
        (("queues", "ls"), lambda server, ns, name: _queue(server, ns, name)),
    ],
)
def test_a_watched_list_shows_a_change_long_before_its_seconds_are_over(
    server: Served, watching: Callable[..., Iterator[str]], arguments: tuple[str, ...], change: Any
) -> None:
    ns, name = f"ns-{new_id()}", f"n-{new_id()}"
    server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON)
    lines = watching(*arguments, "--watch", "3600", ns=ns)
    next(lines)
    change(server, ns, name)
    assert any(name in line for line in lines)


def _call(queue: str) -> dict[str, Any]:
    return {**one(), "queue": queue}


def _queue(server: Served, ns: str, name: str) -> None:
    assert server.post(f"/v1/namespaces/{ns}/queues", {"name": name}, encoding=JSON).status == 201


def test_an_envelope_is_not_watched(server: Served, run: Callable[..., tuple[int, str, str]]) -> None:
    code, _out, said = run("jobs", "list", "--envelope", "--watch", "--url", server.url)
    assert code == 2 and "--envelope" in said
    code, out, _said = run("queues", "ls", "--json", "--url", server.url)
    assert code == 0 and json.loads(out)


def test_a_server_that_is_restarted_keeps_its_number_rising(tmp_path: Path) -> None:
    async def first_of(server: Served) -> int:
        async with aclosing(aiter(Watch(server.url, namespace="default"))) as news:  # type: ignore[type-var]  # as above
            return (await anext(news)).cursor

    cursors = []
    for _ in range(2):
        with running(tmp_path) as server:
            cursors.append(asyncio.run(first_of(server)))
            assert server.stop() == 0
    assert cursors[0] < cursors[1]
