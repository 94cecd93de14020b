"""Hosts of this machine: a network namespace each, with an sshd and a user of its own, on one bridge with the server.

A host is cut off by taking its link down: nothing is refused, nothing is answered. One that is killed loses its power:
the link first, then every process in it at once. Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sshd import RemoteUser, Sshd, running_sshd


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60).stdout


@dataclass
class Host:
    """One of them."""

    alias: str
    namespace: str
    link: str
    sshd: Sshd
    user: RemoteUser
    uid: int

    def cut_off(self) -> None:
        _ip("link", "set", self.link, "down")

    def come_back(self) -> None:
        _ip("link", "set", self.link, "up")

    def kill(self) -> None:
        """As a power cut: whatever runs there is gone, and nobody is told."""
        self.cut_off()
        while pids := _ip("netns", "pids", self.namespace).split():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            self.sshd.process.poll()  # it is our child, and stays in the list until it is reaped
            time.sleep(0.01)


@contextlib.contextmanager
def network(directory: Path, aliases: tuple[str, ...]) -> Iterator[tuple[str, list[Host]]]:
    """The address for the server, and a host for each alias. Nothing of them is left."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    tag, net = secrets.token_hex(3), f"10.{secrets.choice(range(64, 128))}.{secrets.randbelow(256)}"
    bridge = f"lb{tag}"
    try:
        _ip("link", "add", bridge, "type", "bridge")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no bridges here: {error.stderr}")
    with contextlib.ExitStack() as stack:
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        hosts = []
        for number, alias in enumerate(aliases, 2):
            namespace, link, place = f"ls{tag}-{number}", f"lv{tag}-{number}", directory / alias
            try:
                _ip("netns", "add", namespace)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces here: {error.stderr}")
            stack.callback(_ip, "netns", "del", namespace)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            stack.callback(_ip, "link", "del", link)  # its namespace goes when the last that knows of it does
            _ip("link", "set", link, "master", bridge, "up")
            for words in (
                ("addr", "add", f"{net}.{number}/24", "dev", "eth0"),
                *(("link", "set", name, "up") for name in ("eth0", "lo")),
            ):
                _ip("-n", namespace, *words)
            place.mkdir()
            within = ("ip", "netns", "exec", namespace)
            sshd = stack.enter_context(running_sshd(place, address=f"{net}.{number}", within=within))
            user = sshd.host(alias)
            host = Host(alias, namespace, link, sshd, user, user.home.stat().st_uid)
            stack.callback(host.kill)
            hosts.append(host)
        yield f"{net}.1", hosts
