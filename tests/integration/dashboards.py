"""The dashboard without a terminal: its keys, the text that is on it, and a namespace of its own on a real server."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from served import JSON, Served, new_id, one
from textual.pilot import Pilot
from worker_peer import Daemon

from lakeshore.tui.dashboard.app import Dashboard
from lakeshore.tui.dashboard.server import Server

NEVER_S = 3600.0
WIDE = (140, 40)
Main = Callable[[], Coroutine[Any, Any, None]]


class Told(Daemon):
    """One that says this of itself."""

    def __init__(self, server: Served, ns: str, label: str, **told: Any) -> None:
        self.told = {"label": label, **told}
        super().__init__(server, ns=ns)

    def hello(self, **more: Any) -> dict[str, Any]:
        return super().hello(**{**self.told, **more})


class Shown:
    """The app without a terminal."""

    def __init__(self, app: Dashboard, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    def lines(self) -> list[str]:
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    def text(self) -> str:
        return "\n".join(self.lines())

    def rows(self) -> list[str]:
        """What is in the list, without what follows it."""
        region = self.app.query_one("#list").region
        return [line.strip(" ▁▂▃▄▅▆▇█") for line in self.lines()[region.y : region.bottom]]

    def row(self, words: str) -> str:
        return next((line for line in self.rows() if words in line), "")

    def said(self) -> str:
        """The confirm and status line."""
        return self.lines()[-2].strip()

    def selected(self) -> str:
        item = self.app._active.selected
        return "" if item is None else item.id

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, true: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 60
        while not true():
            assert time.monotonic() < deadline, self.text()
            await self.pilot.pause(0.02)

    async def select(self, name: str) -> None:
        """With the arrow keys, the row of that id, or that people call so."""
        view = self.app._active

        def place() -> int | None:
            return next((at for at, item in enumerate(view.shown) if name in (item.id, item.name)), None)

        await self.until(lambda: place() is not None)
        for _ in view.shown:
            if (at := place()) is None or at == view.at:
                break
            await self.press("down" if at > view.at else "up")
        assert view.selected is not None and name in (view.selected.id, view.selected.name), self.text()


@asynccontextmanager
async def dashboard(
    server: Served | str,
    ns: str = "default",
    *,
    size: tuple[int, int] = WIDE,
    interval: float = NEVER_S,
    tab: str = "workers",
    told: str | None = None,
    follows: bool = False,
) -> AsyncIterator[Shown]:
    """Opened, and all that it reads at the start read."""
    url = server if isinstance(server, str) else server.url
    app = Dashboard(Server(url=url, namespace=ns), interval=interval, tab=tab, told=told, follows=follows)
    async with app.run_test(size=size) as pilot:
        shown = Shown(app, pilot)
        if not isinstance(server, str):
            await shown.until(lambda: all(view.loaded for view in app._views.values()))
        yield shown


def run(main: Main) -> None:
    asyncio.run(main())


def namespace(server: Served) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    return name


def submitted(server: Served, ns: str, queue: str) -> str:
    body = one(queue=queue)
    assert server.post("/v1/producer/submit", body, X_LS_Namespace=ns).status == 200
    return str(body["invocation_id"])


def made(server: Served, ns: str, name: str, **fields: Any) -> None:
    """A queue."""
    assert server.post(f"/v1/namespaces/{ns}/queues", {"name": name, **fields}, encoding=JSON).status == 201


def state_of(server: Served, ns: str, what: str) -> str:
    """`queues/gpu`, `workers/…`, `invocations/…`; the status, where there is none."""
    answer = server.get(f"/v1/namespaces/{ns}/{what}")
    return str(answer.body["state"] if answer.status == 200 else answer.status)


def told_by_a_provider(state_dir: Path, worker_id: str, *, provider: str | None, host_status: str | None) -> None:
    """What a provider says of a worker, in the records of a server that does not run."""
    with sqlite3.connect(state_dir / "records.db") as records:
        records.execute(
            "UPDATE worker SET provider = ?, host_status = ? WHERE id = ?", (provider, host_status, worker_id)
        )
    records.close()
