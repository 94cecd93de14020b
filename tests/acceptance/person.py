"""A user without rights with a home of their own: with the one file, the project's scripts, and hosts to ssh to."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from machine_users import add_user, remove_user
from one_file import ROOT
from sshd import Sshd

PYTHON = "/usr/bin/python3"
PATIENCE_S = 120
Done = subprocess.CompletedProcess[str]


@dataclass
class Person:
    """`workspace` is laid out as a clone: `dist/lakeshore` and `scripts`. `environ` is all that their shell has."""

    name: str
    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.home / "lakeshore-workspace"

    def starts(self, line: str, *, log: Path | None = None, **environ: str) -> subprocess.Popen[str]:
        """A line of shell, in the workspace, left running; its output goes to `log`, or to pipes."""
        uid, gid = self.ids
        out: Any = subprocess.PIPE if log is None else log.open("ab")
        with contextlib.nullcontext() if log is None else out:
            return subprocess.Popen(
                ["bash", "-c", line],
                cwd=self.workspace,
                env={**self.environ, **environ},
                user=uid,
                group=gid,
                extra_groups=[],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                text=True,
            )

    def shell(self, line: str, **environ: str) -> Done:
        """One that is waited for."""
        with self.starts(line, **environ) as process:
            out, err = process.communicate(timeout=PATIENCE_S)
            return Done(line, process.returncode, out, err)

    def does(self, line: str, **environ: str) -> str:
        """One that must succeed; its stdout."""
        done = self.shell(line, **environ)
        assert done.returncode == 0, f"$ {line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, path: Path, text: str, mode: int = 0o644) -> Path:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        for one in (path, path.parent):
            os.chown(one, *self.ids)
        path.chmod(mode)
        return path

    @property
    def ids(self) -> tuple[int, int]:
        found = pwd.getpwnam(self.name)
        return found.pw_uid, found.pw_gid

    def may_ssh(self, sshd: Sshd, alias: str) -> None:
        """As after a first `ssh <alias>`: a key, a `Host` in the configuration, a host key that is known."""
        there = next(one for one in sshd.users if one.alias == alias)
        ssh = self.home / ".ssh"
        self.write(ssh / "id_ed25519", (sshd.directory / "key").read_text(), 0o600)
        self.write(ssh / "known_hosts", (sshd.directory / "known_hosts").read_text())
        self.write(
            ssh / "config",
            f"Host {alias}\n    HostName 127.0.0.1\n    User {there.name}\n    Port {sshd.port}\n"
            "    IdentityFile ~/.ssh/id_ed25519\n",
        )
        ssh.chmod(0o700)


@contextmanager
def somebody(pyz: Path) -> Iterator[Person]:
    """One, for the block; nothing of them is left. Skips where users cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes users")
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    if subprocess.run([PYTHON, "-c", probe], check=False, capture_output=True).returncode:
        pytest.skip(f"needs a {PYTHON} that is new enough")
    name = f"lt{secrets.token_hex(5)}"
    home = Path("/home") / name
    add_user(name, home)
    one = Person(name, home)
    try:
        (one.workspace / "dist").mkdir(parents=True)
        shutil.copy(pyz, one.workspace / "dist" / "lakeshore")
        shutil.copytree(ROOT / "scripts", one.workspace / "scripts")
        for path in (one.workspace, *one.workspace.rglob("*")):
            os.chown(path, *one.ids)
            path.chmod(0o755)
        one.environ = {
            "HOME": str(home),
            "USER": name,
            "PATH": f"{one.workspace}/dist:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }
        yield one
    finally:
        until(lambda: not _killed(name), "their processes end")
        remove_user(name)


@contextmanager
def served(person: Person, **environ: str) -> Iterator[str]:
    """A control plane of theirs on any port; its URL."""
    ready = person.home / "ready"
    ready.unlink(missing_ok=True)
    line = f"exec lakeshore serve --port 0 --state-dir {person.home}/state --ready-file {ready}"
    process = person.starts(line, log=person.home / "log", **environ)
    try:
        until(lambda: ready.exists() or process.poll() is not None, "a server")
        yield ready.read_text().strip()
    finally:
        process.terminate()
        process.wait(60)


def _killed(name: str) -> list[int]:
    uid = pwd.getpwnam(name).pw_uid
    found = []
    for about in Path("/proc").iterdir():
        with suppress(OSError):
            if about.name.isdecimal() and about.stat().st_uid == uid and os.readlink(about / "exe"):  # no zombie
                found.append(int(about.name))
                os.kill(int(about.name), signal.SIGKILL)
    return found


def until(true: Callable[[], object], what: str, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.05)


@contextmanager
def short_place() -> Iterator[Path]:
    """A directory whose path is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="lakeshore-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
