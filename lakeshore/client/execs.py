"""Commands on daemons: start one, follow what it prints, learn how it ended, cancel it.

Rule: a command runs at most once, so a start whose answer was lost is not sent again.
Reference: nymph/daemon-lifecycle.md, "Run something on a daemon"; cli/examples/daemons-and-exec.md.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .api import ApiClient

Row = dict[str, Any]
ENDS: Final = frozenset({"done", "timeout", "failed"})
LONGEST_WAIT_S: Final = 25.0
"""Of one request that waits for the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command line for `bash -c`, and what it runs with. `timeout_s` None: no limit. `log`: its output is sent while
    it runs.
    """

    command: str
    env: Mapping[str, str]
    workdir: str | None = None
    stdin: bytes | None = None
    timeout_s: float | None = None
    log: bool = True

    def body(self) -> Row:
        """As it is sent."""
        body: Row = {"command": self.command, "env": dict(self.env), "log": self.log}
        if self.workdir is not None:
            body["workdir"] = self.workdir
        if self.stdin is not None:
            body["stdin_b64"] = base64.b64encode(self.stdin).decode()
        if self.timeout_s is not None:
            body["timeout_s"] = self.timeout_s
        return body


class Execs:
    """The commands of the namespace that `api` is for."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def start(self, worker_id: str, asked: Asked) -> Row:
        """Queue it on that daemon: `{exec_id, worker_id}`."""
        return self._api.map("POST", self._api.ours("exec"), body={**asked.body(), "worker_id": worker_id})

    def run(self, worker_id: str, asked: Asked, *, wait_s: float = LONGEST_WAIT_S) -> Row:
        """Queue it there and wait, in one request: the whole record when it has ended within `wait_s`, else as `start`
        answers. Whoever loses the answer does not know its id.
        """
        body = {**asked.body(), "worker_id": worker_id}
        return self._api.map("POST", self._api.ours("exec"), [("wait_s", f"{wait_s:g}")], body=body)

    def route(self, queue: str, asked: Asked) -> Row:
        """Queue it on a member of that queue: `{exec_id, worker_id}`."""
        return self._api.map("POST", self._api.ours("exec"), body={**asked.body(), "queue": queue})

    def all(self) -> list[Row]:
        """What there is, newest first."""
        return self._api.rows(self._api.ours("exec"), "execs")

    def last_of(self, worker_id: str) -> Row | None:
        """The newest one of that daemon; None when it has none."""
        found = self._api.map("GET", self._api.ours("exec"), [("worker", worker_id), ("limit", 1)]).get("execs")
        return found[0] if found else None

    def show(self, exec_id: str, *, wait_s: float = 0.0) -> Row:
        """The whole record, at once or when it has ended, within `wait_s` (`LONGEST_WAIT_S` at most)."""
        return self._api.map("GET", self._api.ours("exec", exec_id), [("wait_s", f"{wait_s:g}")])

    def cancel(self, exec_id: str) -> Row:
        """Stop it. ApiError 409 for one that has ended."""
        return self._api.insist(lambda: self._api.map("POST", self._api.ours("exec", exec_id, "cancel"), body={}), [])

    def log(self, exec_id: str, *, offset: int, wait_s: float) -> Row:
        """What it has written, from the position `offset` on: `{status, end, offset, parts: [{stream, offset, position,
        at, bytes}]}`; bytes are base64. Waits up to `wait_s` until there is something. After `end` nothing comes.
        """
        query = [("offset", str(offset)), ("wait_s", f"{wait_s:g}")]
        return self._api.map("GET", self._api.ours("exec", exec_id, "log"), query)
