"""What the dashboard asks with: a question that was given up leaves no open connection behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from net_scripted import Served, scripted

from lakeshore.client.api import ApiClient
from lakeshore.tui.dashboard.reading import Lane
from lakeshore.tui.dashboard.server import Server


def test_a_question_that_was_given_up_closes_its_connection_when_it_has_its_answer() -> None:
    begun, go = threading.Event(), threading.Event()

    def script(served: Served) -> None:
        while served.read_request() is not None:
            served.answer(b"{}", extra=b"content-type: application/json\r\n")

    def question(api: ApiClient) -> dict[str, Any]:
        begun.set()
        go.wait(60)
        return api.whoami()

    with scripted(script) as server:

        async def main() -> None:
            lane = Lane(Server(url=server.url, namespace="default"))
            assert await lane.ask(ApiClient.whoami) == {}
            asking = asyncio.create_task(lane.ask(question))
            await asyncio.to_thread(begun.wait, 60)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            await lane.close()
            assert server.ended == 0, "it was closed under the hands of the thread"
            go.set()
            await asyncio.to_thread(server.closed, server.connections)

        asyncio.run(main())
        assert server.connections == 1
