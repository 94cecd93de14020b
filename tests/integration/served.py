"""A real server in a process of its own, and a plain client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgpack

MSGPACK = "application/x-msgpack"
JSON = "application/json"
ADMIN = "operator-chosen-admin-token"


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    raw: bytes

    @property
    def body(self) -> Any:
        kind = self.headers.get("content-type", "")
        if kind.startswith(MSGPACK):
            return msgpack.unpackb(self.raw, strict_map_key=False)
        return json.loads(self.raw)


@dataclass
class Served:
    """One running server. `token` is sent as the bearer unless a call names its own headers."""

    process: subprocess.Popen[bytes]
    url: str
    state_dir: Path
    log: Path
    token: str | None = None
    extra: dict[str, str] = field(default_factory=dict)

    def connection(self, timeout: float = 60.0) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)

    def raw(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        with contextlib.closing(self.connection()) as connection:
            given = dict(headers or {})
            if self.token is not None and "Authorization" not in given:
                given["Authorization"] = f"Bearer {self.token}"
            if given.get("Authorization") == "":
                del given["Authorization"]
            connection.request(method, path, body=body, headers=given)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        encoding: str = MSGPACK,
        token: str | None = None,
        **headers: str,
    ) -> Answer:
        """Send a map; names of headers are written with `_` for `-`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {token}" if token else ""
        data = None
        if body is not None:
            given["Content-Type"] = encoding
            data = msgpack.packb(body) if encoding == MSGPACK else json.dumps(body).encode()
        return self.raw(method, path, data, given)

    def post(self, path: str, body: Any, **more: Any) -> Answer:
        return self.call("POST", path, body, **more)

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", path, **more)

    def said(self) -> str:
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)


def environment(**more: str) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LAKESHORE_", "SECRETS_", "NODE_ENV", "ADMIN_"))}
    return {**clean, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": "1", **more}


def launch(state_dir: Path, log: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "lakeshore.server.serve", "--port", "0", "--state-dir", str(state_dir), *arguments],
            env=environment(**(env or {})),
            stdout=out,
            stderr=out,
        )


def start(directory: Path, *arguments: str, env: dict[str, str] | None = None, token: str | None = None) -> Served:
    """Start a server whose state is in `directory/state`, and wait until it answers."""
    directory.mkdir(exist_ok=True)
    name = secrets.token_hex(4)
    ready, log = directory / f"ready-{name}", directory / f"log-{name}"
    process = launch(directory / "state", log, "--ready-file", str(ready), "--reserve-bytes", "0", *arguments, env=env)
    deadline = time.monotonic() + 60
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise AssertionError(f"the server did not start:\n{log.read_text()}")
        time.sleep(0.01)
    return Served(process, ready.read_text().strip(), directory / "state", log, token)


@contextlib.contextmanager
def running(directory: Path, *arguments: str, **more: Any) -> Iterator[Served]:
    served = start(directory, *arguments, **more)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()


def refused(directory: Path, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Start a server that must not start: its exit code and what it said."""
    directory.mkdir(exist_ok=True)
    log = directory / f"log-{secrets.token_hex(4)}"
    process = launch(directory / "state", log, *arguments, env=env)
    try:
        return process.wait(60), log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def new_id() -> str:
    return secrets.token_hex(12)


def one(**more: Any) -> dict[str, Any]:
    """A submit's body."""
    return {"invocation_id": new_id(), "queue": f"q-{new_id()}", "args_blob": b"args", **more}
