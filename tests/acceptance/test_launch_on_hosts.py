"""`daemon launch` on hosts that there are: the control plane installs over a real sshd, and into a real SLURM queue.

Reference: DECISIONS, "SSH and SLURM launch"; nymph/daemon-lifecycle, "Launch through a provider".
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from served import JSON, Served, new_id, running
from sshd import RemoteUser, Sshd, running_sshd

Done = subprocess.CompletedProcess[str]


@dataclass
class Ground:
    """A server that may reach hosts, and the one file."""

    sshd: Sshd
    server: Served
    pyz: Path
    cache: Path

    def run(self, *arguments: str, cwd: Path | None = None, stdin: str = "", **environ: str) -> Done:
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TMPDIR")}
        env |= {"XDG_CACHE_HOME": str(self.cache), "LAKESHORE_URL": self.server.url}
        env |= {"LAKESHORE_STATE_DIR": str(self.server.state_dir), **environ}
        command = [sys.executable, "-S", str(self.pyz), *arguments]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=180, env=env, cwd=cwd, input=stdin
        )

    def provider(self, user: RemoteUser, *more: str, launcher: str = "SSH") -> str:
        """A provider that leads to a host, with the key of its tests as a secret."""
        name = f"p-{new_id()[:8]}"
        key = (self.sshd.directory / "key").read_text()
        body = {"name": name, "kind": "ssh_key", "plaintext": key}
        assert self.server.post("/v1/namespaces/default/secrets", body, encoding=JSON).status == 201
        where = {"ip": "127.0.0.1", "port": self.sshd.port, "username": user.name, "ssh_key.$secret": name}
        words = [word for key, value in where.items() for word in ("--kwarg", f"{key}={value}")]
        done = self.run("providers", "add", name, "--launcher", launcher, *words, *more)
        assert done.returncode == 0, done.stderr
        return name

    def launch(self, provider: str, *more: str, **given: Any) -> Done:
        return self.run("daemon", "launch", "--no-config", "--provider", provider, *more, **given)

    def workers(self) -> dict[str, dict[str, Any]]:
        return {row["label"]: row for row in self.server.get("/v1/namespaces/default/workers").body["workers"]}


@pytest.fixture(scope="module")
def ground(pyz: Path, warm_cache: Path) -> Iterator[Ground]:
    place = Path(tempfile.mkdtemp(prefix="lakeshore-launch-"))  # the path of a socket must be short
    try:
        with running_sshd(place) as sshd:
            config = place / "for-the-server"
            config.write_text(
                f"Host *\n    UserKnownHostsFile {place}/known_hosts\n    GlobalKnownHostsFile none\n"
                "    StrictHostKeyChecking yes\n"
            )
            with running(place / "cp", env={"LAKESHORE_SSH_CONFIG": str(config)}) as server:
                made = Ground(sshd, server, pyz, warm_cache)
                assert made.run("nymph", "push", str(pyz)).returncode == 0
                yield made
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def box(ground: Ground) -> RemoteUser:
    """A usual host. What it prints at a login is no concern of ours."""
    user = ground.sshd.host("my-box")
    rc = user.home / ".bashrc"
    rc.write_text("echo Welcome to the cluster\n" + rc.read_text())
    return user


def until(true: Callable[[], object], what: str, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.05)


def nothing_is_left(user: RemoteUser) -> bool:
    kept = user.home / ".local/state/lakeshore/nymph"
    return not (user.launches or user.processes() or (kept.is_dir() and list(kept.iterdir())))


# --- over ssh


@pytest.mark.inventory("C-668", "C-669", "C-682")
@pytest.mark.inventory("C-208", "C-220", "C-1388")
def test_a_daemon_is_launched_over_ssh_runs_commands_and_is_ended_on_its_host(ground: Ground, box: RemoteUser) -> None:
    provider = ground.provider(box)
    done = ground.launch(provider, "--name", "smoke", "--tag", "a:b", "--queue", "train", "--wait", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["label"], row["registered"]) == ("smoke", True)
    assert "smoke registered" in done.stderr
    worker = ground.workers()["smoke"]
    assert (worker["id"], worker["queues"], worker["providerName"]) == (row["id"], ["train"], provider)
    (place,) = box.launches
    assert place.name == row["id"]
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}["token"] == 0o600
    token = (place / "token").read_text().strip()
    assert token not in done.stdout + done.stderr + ground.server.said()
    for about in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert token.encode() not in about.read_bytes()
    ran = ground.run("daemon", "exec", "smoke", "whoami")
    assert (ran.returncode, ran.stdout.strip()) == (0, box.name)

    killed = ground.run("daemon", "kill", "smoke")
    assert killed.returncode == 0, killed.stderr
    until(lambda: nothing_is_left(box), "the daemon is gone from its host")
    assert "smoke" not in ground.workers()
