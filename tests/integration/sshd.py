"""Real hosts for the tests of what goes over ssh: an sshd on loopback, and fresh users whose homes are the hosts'.

Needs root (users are made), OpenSSH's server and client. One `Sshd` is one host key, one port, one configuration of
the client; each `host(alias)` is an alias of a user of its own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machine_users import add_user, remove_user
from ports import free_port

SSHD = "/usr/sbin/sshd"
FIXED_PORT = 2222
"""In a network of its own."""


@dataclass
class RemoteUser:
    """One host as the tests see it: a user with a home."""

    alias: str
    name: str
    home: Path

    @property
    def launches(self) -> list[Path]:
        """The launch directories there."""
        place = self.home / ".local/share/nymph/launches"
        return sorted(place.iterdir()) if place.is_dir() else []

    @property
    def logs(self) -> list[Path]:
        return sorted((self.home / ".local/share").glob("nymph-*.log"))

    def processes(self, *, besides: tuple[str, ...] = ("sshd", "sftp-server")) -> list[int]:
        """What runs there, without sshd's own and what only waits to be reaped."""
        uid = pwd.getpwnam(self.name).pw_uid
        found = []
        for about in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                runs = about.name.isdecimal() and about.stat().st_uid == uid and os.readlink(about / "exe")
                if runs and (about / "comm").read_text().strip() not in besides:
                    found.append(int(about.name))
        return found


@dataclass
class Sshd:
    """One running sshd and the client configuration that leads to it."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes]
    config: Path
    users: list[RemoteUser] = field(default_factory=list)

    def host(self, alias: str, *more: str) -> RemoteUser:
        """A fresh user, reached by this alias; `more` lines of the client's configuration."""
        name = f"lt{secrets.token_hex(5)}"
        home = Path("/home") / name
        add_user(name, home, password="*")
        keys = home / ".ssh" / "authorized_keys"
        keys.parent.mkdir(mode=0o700)
        shutil.copy(self.directory / "key.pub", keys)
        about = home.stat()
        for path in (keys.parent, keys):
            os.chown(path, about.st_uid, about.st_gid)
        block = f"Host {alias}\n    User {name}\n" + "".join(f"    {line}\n" for line in more)
        self.config.write_text(block + self.config.read_text())  # the first value wins
        user = RemoteUser(alias, name, home)
        self.users.append(user)
        return user

    def said(self) -> str:
        return (self.directory / "sshd.log").read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for user in self.users:
            deadline = time.monotonic() + 60
            while user.processes(besides=()) and time.monotonic() < deadline:
                subprocess.run(["pkill", "-KILL", "-u", user.name], check=False)
                time.sleep(0.02)
            remove_user(user.name)


@contextlib.contextmanager
def running_sshd(directory: Path, *more: str, address: str = "127.0.0.1", within: Sequence[str] = ()) -> Iterator[Sshd]:
    """Start one; `more` lines of its configuration. Skips where it cannot be had.

    `address` may be another network's, which it is started `within` (the words before its command line).
    """
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes users")
    if not os.access(SSHD, os.X_OK) or shutil.which("ssh") is None:
        pytest.skip("needs openssh-server and openssh-client")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("hostkey", "key"):
        subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    port = FIXED_PORT if within else free_port(address)
    (directory / "sshd_config").write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {directory}/hostkey\nPidFile {directory}/sshd.pid\n"
        f"AuthorizedKeysFile .ssh/authorized_keys\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\nMaxStartups 100\nLogLevel VERBOSE\n"
        + "".join(f"{line}\n" for line in more)
    )
    key = (directory / "hostkey.pub").read_text().split(" ", 2)
    (directory / "known_hosts").write_text(f"[{address}]:{port} {key[0]} {key[1]}\n")
    config = directory / "config"
    config.write_text(
        f"Host *\n    HostName {address}\n    Port {port}\n    IdentityFile {directory}/key\n    IdentitiesOnly yes\n"
        f"    UserKnownHostsFile {directory}/known_hosts\n    GlobalKnownHostsFile none\n"
        "    StrictHostKeyChecking yes\n"
    )
    command = [SSHD, "-D", "-f", str(directory / "sshd_config"), "-E", str(directory / "sshd.log")]
    process = subprocess.Popen([*within, *command])
    sshd = Sshd(directory, port, process, config)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=5):
                break
            assert process.poll() is None, sshd.said()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield sshd
    finally:
        sshd.close()
