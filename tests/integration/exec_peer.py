"""The daemon's side of commands, spoken by hand: hello, polls, chunks and results over HTTP."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from served import JSON, Answer, Served, new_id

POOL = ThreadPoolExecutor(32, thread_name_prefix="peer")


class Peer:
    """One daemon. With `session=None` one of those that know no sessions."""

    def __init__(
        self,
        server: Served,
        *,
        ns: str = "default",
        queue: str | None = None,
        machine: str | None = None,
        session: str | None = "1",
        token: str | None = None,
    ) -> None:
        self.server, self.ns, self.token = server, ns, token
        self.machine = machine or new_id()
        self.queue = queue
        self.session = None if session is None else f"{session}-{self.machine}"
        self.numbers = itertools.count(1)
        self.seen = 0
        self.id = ""
        self.hello()

    def post(self, path: str, body: Any, **more: Any) -> Answer:
        return self.server.post(path, body, token=self.token, X_LS_Namespace=self.ns, **more)

    def hello(self) -> None:
        body: dict[str, Any] = {
            "machine_id": self.machine,
            "label": "",
            "tags": [],
            "capabilities": {"runners": ["process"]},
            "versions": {"daemon": "1", "protocol": "1"},
            "lanes": [self.queue] if self.queue else [],
        }
        if self.session is not None:
            body["session"] = self.session
        told = self.post("/v1/daemon/hello", body).body
        assert told["reject"] is None, told
        self.id = told["worker_id"]

    def newer(self, session: str = "2") -> Peer:
        """The same daemon, started again."""
        return Peer(self.server, ns=self.ns, queue=self.queue, machine=self.machine, session=session, token=self.token)

    def poll(
        self, *, capacity: int = 4, timeout_s: float = 0.0, read: bool = True, **more: Any
    ) -> list[dict[str, Any]]:
        """The commands of one answer; with `read=False` it got lost on its way."""
        body: dict[str, Any] = {
            "worker_id": self.id,
            "queue": self.queue or f"none-{self.machine}",
            "timeout_s": timeout_s,
            "capacity": capacity,
            **more,
        }
        n = next(self.numbers)
        if self.session is not None:
            body |= {"session": self.session, "n": n, "seen": self.seen}
        answer = self.post("/v1/daemon/poll", body)
        assert answer.status == 200, answer.body
        if read:
            self.seen = n
        commands: list[dict[str, Any]] = answer.body["commands"]
        return commands

    def polling(self, **more: Any) -> Future[list[dict[str, Any]]]:
        """A poll that is parked while nothing waits."""
        return POOL.submit(lambda: self.poll(timeout_s=20.0, **more))

    def taken(self) -> dict[str, Any]:
        """The body of the one command that a poll brings."""
        (command,) = self.poll()
        assert command["kind"] == "exec"
        body: dict[str, Any] = command["body"]
        assert command["id"] == body["exec_id"]
        return body

    def end(self, exec_id: str, exit_code: int = 0, *, encoding: str | None = None, **more: Any) -> Answer:
        more = {"stdout": b"", "stderr": b"", "duration_ms": 3, **more}
        given = {} if encoding is None else {"encoding": encoding}
        return self.post(f"/v1/daemon/exec/{exec_id}/result", {"exit_code": exit_code, **more}, **given)

    def chunk(self, exec_id: str, data: bytes, **query: Any) -> Answer:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        headers = {"Content-Type": "application/octet-stream", "X-LS-Namespace": self.ns}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return self.server.raw("POST", f"/v1/daemon/exec/{exec_id}/chunk?{asked}", data, headers)

    # -- and what people do

    def path(self, rest: str = "") -> str:
        return f"/v1/namespaces/{self.ns}/exec{rest}"

    def run(self, command: str = "true", **more: Any) -> str:
        """Submit a command for this daemon; its id."""
        answer = self.server.post(
            f"/v1/namespaces/{self.ns}/workers/{self.id}/exec", {"command": command, **more}, encoding=JSON
        )
        assert answer.status == 202, answer.body
        assert answer.body["worker_id"] == self.id
        id_: str = answer.body["exec_id"]
        return id_

    def show(self, exec_id: str, wait_s: float = 0.0) -> dict[str, Any]:
        answer = self.server.get(self.path(f"/{exec_id}?wait_s={wait_s}"))
        assert answer.status == 200, answer.body
        row: dict[str, Any] = answer.body
        return row
