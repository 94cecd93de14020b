"""A daemon spoken by hand, and what people ask of it, for tests of the worker routes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic, sleep
from typing import Any

from exec_peer import POOL, Peer
from served import JSON, Answer


class Daemon(Peer):
    """`ask` is a poll's whole answer; `order`, `row` and `events` are the operator's."""

    def hello(self, **more: Any) -> dict[str, Any]:
        body = {
            "machine_id": self.machine,
            "label": f"box-{self.machine[:6]}",
            "tags": ["host=local", "gpu:none"],
            "capabilities": {"runners": ["process"], "max_invocations": 4, "workdir": "/w"},
            "versions": {"daemon": "0.1.4", "protocol": "1", "kernel": "6.1"},
            "lanes": [self.queue] if self.queue else [],
            **({} if self.session is None else {"session": self.session}),
            **more,
        }
        told: dict[str, Any] = self.post("/v1/daemon/hello", body).body
        assert told["reject"] is None, told
        self.id = told["worker_id"]
        return told

    def restarted(self, session: str = "2", **more: Any) -> Daemon:
        """Its next process."""
        made = Daemon.__new__(Daemon)
        made.__dict__.update(self.__dict__)
        made.session, made.seen = f"{session}-{self.machine}", 0
        made.numbers = iter(range(1, 10**6))  # type: ignore[assignment]  # only next() is asked of it
        made.hello(**more)
        return made

    def raw_poll(self, *, read: bool = True, **more: Any) -> Answer:
        body: dict[str, Any] = {"worker_id": self.id, "timeout_s": 0, "capacity": 4, **more}
        if self.session is not None:
            n = next(self.numbers)
            body = {"session": self.session, "n": n, "seen": self.seen, **body}
            if read:
                self.seen = n
        return self.post("/v1/daemon/poll", body)

    def ask(self, **more: Any) -> dict[str, Any]:
        answer = self.raw_poll(**more)
        assert answer.status == 200, answer.body
        told: dict[str, Any] = answer.body
        return told

    def kinds(self, **more: Any) -> list[str]:
        return [command["kind"] for command in self.ask(**more)["commands"]]

    def asking(self, **more: Any) -> Future[dict[str, Any]]:
        """A poll that is parked while nothing waits."""
        return POOL.submit(lambda: self.ask(**{"timeout_s": 20.0, **more}))

    # -- and what people do

    def at(self, rest: str = "") -> str:
        return f"/v1/namespaces/{self.ns}/workers/{self.id}{rest}"

    def order(self, verb: str, body: Any = None) -> Answer:
        return self.server.post(self.at(f"/{verb}"), body or {}, encoding=JSON)

    def script(self, script: str = "true", **more: Any) -> str:
        answer = self.order("setup", {"script": script, **more})
        assert answer.status == 202, answer.body
        id_: str = answer.body["setup_id"]
        return id_

    def row(self) -> dict[str, Any]:
        answer = self.server.get(self.at())
        assert answer.status == 200, answer.body
        row: dict[str, Any] = answer.body
        return row

    def state(self) -> str:
        return str(self.row()["state"])


def until(what: Callable[[], bool], *, within_s: float = 15.0) -> None:
    """Wait for something that happens by itself."""
    deadline = monotonic() + within_s
    while not what():
        assert monotonic() < deadline, "it did not happen"
        sleep(0.02)
