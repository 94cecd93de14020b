"""The HTTP plane as a harness: a real server process, the hard one killed with -9 and started again at each step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ports import free_port

from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.http_wire import POLL
from lakeshore.sdk.session import STRIDE, Session

ROOT = Path(__file__).resolve().parents[2]
MANY_STEPS = 60
ROUTE_NAMES = {"kind_params": "kindParams", "run_config": "runConfig", "cutoff_s": "deadline_cutoff_s"}


class Zygote:
    """Starts and kills server processes."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server_zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def start(self, port: int, state_dir: Path) -> None:
        arguments = ["--port", str(port), "--state-dir", str(state_dir), "--reserve-bytes", "0"]
        self._say(f"start {json.dumps(arguments)}")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.005)
        raise TimeoutError(f"the server on port {port} did not come up")

    def kill(self) -> None:
        self._say("kill")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


class HttpHarness:
    """One server on an empty state directory. `restarts` kills it with -9 before every step; in a case of very many
    steps, which are alike by then, before each eighth after the sixtieth (EVERY_STEP=1: before each of those, too).
    """

    seeded = False
    purges = False

    def __init__(self, zygote: Zygote, state_dir: Path, *, restarts: bool) -> None:
        self._zygote = zygote
        self._state_dir = state_dir
        self._restarts = restarts
        self._steps = 0
        self._port = free_port()
        self._handles: dict[tuple[str, bool], HttpDispatch] = {}
        self._zygote.start(self._port, self._state_dir)

    def plane(self, ns: str = "default") -> HttpDispatch:
        return self._handle(ns, other=False)

    def another(self, ns: str = "default") -> HttpDispatch:
        return self._handle(ns, other=True)

    def lose(self, inv_id: str, claim: int, ns: str = "default") -> None:
        """The session that holds the claim has begun it, says so, and then lists it no more."""
        for plane in self._handles.values():
            for session in plane._state().sessions():
                if plane.namespace == ns and session.claim_of(inv_id) == claim:
                    with session.lock:
                        pairs = session.pairs()
                        self._list(plane, session, pairs)
                        self._list(plane, session, [pair for pair in pairs if pair[0] != inv_id])
                    return

    def purge(self) -> None:
        raise AssertionError("retention is the server's own affair")

    def set_queue(self, name: str, **fields: Any) -> None:
        """By the operators' routes: made and changed, then brought into its state."""
        state = fields.pop("state", "active")
        body: dict[str, Any] = {ROUTE_NAMES.get(field, field): said for field, said in fields.items()}
        named = ("max_depth", "on_full", "rate_limit", "deadline_cutoff_s")
        body["admission"] = {field: body.pop(field) for field in named if field in body} or None
        whole = {**dict.fromkeys(("kind", "kindParams", "runConfig")), **body}
        if self._ask("PATCH", f"queues/{name}", whole) == 404:
            assert self._ask("POST", "queues", {"name": name, **body}) == 201
        how = {"draining": "drain", "archived": "archive", "active": "unarchive"}
        if state == "paused":
            assert self._ask("PATCH", f"queues/{name}", {"state": "paused"}) == 200
        else:
            assert self._ask("POST", f"queues/{name}/{how[state]}", {}) == 200

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> int:
        url = f"http://127.0.0.1:{self._port}/v1/namespaces/default/{path}"
        request = urllib.request.Request(
            url, json.dumps(body).encode(), {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def between(self) -> None:
        self._steps += 1
        spared = self._steps > MANY_STEPS and self._steps % 8 and not os.environ.get("EVERY_STEP")
        if self._restarts and not spared:
            self._zygote.kill()
            self._zygote.start(self._port, self._state_dir)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()
        self._zygote.kill()

    def _list(self, plane: HttpDispatch, session: Session, pairs: list[list[object]]) -> None:
        session.n += STRIDE
        body = {
            "worker_id": session.worker,
            "queue": session.queue,
            "timeout_s": 0,
            "session": session.id,
            "n": session.n,
            "held": pairs,
            "capacity": 0,
        }
        plane.client.call("POST", POLL, body, "listing what is held")

    def _handle(self, ns: str, *, other: bool) -> HttpDispatch:
        if (ns, other) not in self._handles:
            self._handles[ns, other] = HttpDispatch(f"http://127.0.0.1:{self._port}", namespace=ns)
        return self._handles[ns, other]
