"""A tunnel from a host to the server on this machine, kept up by a small process of its own.

    the host's 127.0.0.1:<port>  ──ssh -R──▶  <state>/tunnel.sock, where the server asks everybody for a token

Rules: the port is the host's choice once and stays the same, for the daemon there is configured with it. A connection
that dies is made again, at first at once, then after up to 15 s. What a broken network left on the host is ended there,
so that it does not keep the port. The process holds a lock while it lives: a number alone would not name it.
Reference: DESIGN, "Security" (tunnels); DECISIONS, "first hour".
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _self
from ..config.private_files import write_private
from .errors import RemoteFailure
from .installs import Install, Installs, read_json
from .scripts import compose, report_of
from .ssh import Connection, Place, explain

FIRST_S = 40.0
"""How long the first connection may take."""
_LONGEST_S = 15.0
_HELD_S = 10.0
"""A connection that lived this long was a good one: the next attempt is made at once."""
_ALIVE = ("ServerAliveInterval=10", "ServerAliveCountMax=3")
_OPTIONS = ("ExitOnForwardFailure=yes", *_ALIVE, "LogLevel=INFO", "ControlMaster=no", "ControlPath=none")
_ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward")
_TAKEN = "remote port forwarding failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """How one fares. `state`: up, down (and being made again), or stopped; `why`: of the last failure."""

    state: str
    port: int | None
    pid: int | None
    since: str
    why: str


def look(installs: Installs, launch_id: str) -> Tunnel | None:
    """The tunnel of a launch; None when it never had one."""
    told = read_json(installs.path(launch_id, "tunnel.json"))
    if not told:
        return None
    pid = _holder(installs, launch_id)
    return Tunnel(
        state=str(told.get("state", "down")) if pid is not None else "stopped",
        port=told.get("port"),
        pid=pid,
        since=str(told.get("since", "")),
        why=str(told.get("why", "")),
    )


def start(installs: Installs, install: Install, socket: Path) -> int:
    """Start the process that keeps a launch's tunnel up, and wait until it is; the port on the host. RemoteFailure."""
    installs.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if len(str(socket).encode()) > 100:
        raise RemoteFailure(
            f"the path of {socket} is too long for a tunnel's end", hint="serve from a shorter --state-dir"
        )
    asked = [install.launch_id, install.alias, install.ssh_config or "", str(install.port or 0), str(socket)]
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([*_self.python_path(), *([before] if before else [])])
    with installs.path(install.launch_id, "tunnel.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  (ourselves)
            [sys.executable, "-m", __name__, str(installs.directory.parent), *asked],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": path},
        )
    try:
        return _until_up(installs, install, process)
    except BaseException:
        stop(installs, install.launch_id)
        process.terminate()
        process.wait()
        raise


def _until_up(installs: Installs, install: Install, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + FIRST_S
    while time.monotonic() < deadline:
        found = look(installs, install.launch_id)
        if found is not None and found.pid == process.pid:
            if found.state == "up" and found.port:
                return found.port
            if found.why:
                raise RemoteFailure(f"no tunnel from {install.alias}: {found.why}")
        if process.poll() is not None:
            log = installs.path(install.launch_id, "tunnel.log")
            raise RemoteFailure(f"the tunnel to {install.alias} ended at once", hint=f"see {log}")
        time.sleep(0.05)
    raise RemoteFailure(f"the tunnel from {install.alias} was not up within {FIRST_S:g} s")


def stop(installs: Installs, launch_id: str, *, wait_s: float = 10.0) -> bool:
    """End the process that keeps a tunnel up; whether there was one."""
    pid = _holder(installs, launch_id)
    if pid is None:
        return False
    deadline = time.monotonic() + wait_s
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    while _holder(installs, launch_id) is not None:
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.02)
    return True


def _holder(installs: Installs, launch_id: str) -> int | None:
    """The process that holds a tunnel's lock."""
    try:
        with installs.path(launch_id, "tunnel.lock").open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else None
    except OSError:
        pass
    return None


# --- the process


class Keeper:
    """Keeps one tunnel up until it is told to stop."""

    def __init__(self, installs: Installs, launch_id: str, place: Place, port: int, socket: str) -> None:
        self._installs, self._launch_id = installs, launch_id
        self._place, self._socket = place, socket
        self._port = port or None
        self._ssh: subprocess.Popen[bytes] | None = None
        self._held = str(read_json(installs.path(launch_id, "tunnel.json")).get("held", ""))
        """The host's processes that hold the port: also those that a keeper before this one left there."""
        self._ending = threading.Event()

    def run(self) -> int:
        """Until SIGTERM; 0, or 1 when another process keeps this tunnel already."""
        path = self._installs.path(self._launch_id, "tunnel.lock")
        with path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 1
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, self._stop)
            try:
                self._tell("down")
                self._keep()
            finally:
                self._tell("stopped")
        return 0

    def _keep(self) -> None:
        failures = 0
        while not self._ending.is_set():
            began = time.monotonic()
            why = self._once()
            if self._ending.is_set():
                return
            print(f"{_now()} down: {why}", flush=True)  # noqa: T201  (into its log)
            if _TAKEN in why.lower() and self._held:
                self._free()
                self._held = ""
                continue
            failures = 0 if time.monotonic() - began > _HELD_S else failures + 1
            self._tell("down", why)
            if failures:
                self._ending.wait(random.uniform(0.5, 1.0) * min(2.0 ** (failures - 1), _LONGEST_S))  # noqa: S311

    def _once(self) -> str:
        """One connection, until it ends; why it did."""
        text, nonce = compose("hold", {})
        forward = f"127.0.0.1:{self._port or 0}:{self._socket}"
        options = self._place.options(*_OPTIONS)
        command = ["ssh", *options, "-T", "-R", forward, "--", self._place.alias, "bash", "-s"]
        self._ssh = process = subprocess.Popen(  # noqa: S603  (ssh, with an alias that was looked at)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        said = ""
        try:
            if not self._ending.is_set():
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(text.encode())
                    process.stdin.flush()  # and it stays open: that holds the connection
                for raw in process.stdout:
                    said = (said + raw.decode("utf-8", "replace"))[-8192:]
                    allocated = _ALLOCATED.search(said)
                    if allocated is not None:
                        self._port = int(allocated[1])
                    report = report_of(said, nonce)
                    if report.complete and report["held"] != self._held:
                        self._held = report["held"]
                        self._tell("up")
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.terminate()
            code = process.wait()
            process.stdout.close()
            self._ssh = None
        told = "\n".join(line for line in said.splitlines() if nonce not in line and "Allocated port" not in line)
        return str(explain(self._place.alias, code, told))

    def _free(self) -> None:
        try:
            with Connection(self._place) as connection:
                connection.script("free", {"stale": self._held}, timeout_s=30)
        except RemoteFailure as error:
            print(f"{_now()} {error}", flush=True)  # noqa: T201  (into its log)

    def _tell(self, state: str, why: str = "") -> None:
        path = self._installs.path(self._launch_id, "tunnel.json")
        told: dict[str, Any] = {"state": state, "port": self._port, "since": _now(), "why": why, "held": self._held}

        with contextlib.suppress(OSError):  # a full disk: the tunnel goes on
            write_private(path, json.dumps(told) + "\n", beside=f".{path.name}.part")

    def _stop(self, _number: int, _frame: object) -> None:
        self._ending.set()
        if self._ssh is not None:
            self._ssh.terminate()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main(arguments: list[str]) -> int:
    """`<state> <launch id> <alias> <ssh config or ""> <port or 0> <socket>`."""
    state, launch_id, alias, config, port, socket = arguments
    return Keeper(Installs(Path(state)), launch_id, Place(alias=alias, config=config or None), int(port), socket).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
