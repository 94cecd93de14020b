"""A daemon becomes another program, by an order or by its namespace's target, and the old one when that one dies."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daemons as d
import entry_bodies as bodies
import kept as k
import programs as p
import pytest
from daemons import NOTHING, Daemon
from net_scripted import Served as Connection
from net_scripted import scripted
from served import ADMIN, JSON, Served
from test_server_releases import push

from lakeshore.net.target import parse_target
from lakeshore.nymph.transport import Transport
from lakeshore.nymph.update import Program, UpdateError, install

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")


class Host:
    """A daemon that was started from one file."""

    def __init__(self, server: Served, daemon: Daemon) -> None:
        self.server, self.daemon, self.worker_id = server, daemon, ""
        self.file = p.put(daemon.directory / "lakeshore", p.program("1.0.0"))

    def start(self) -> Host:
        self.daemon.start(program=(sys.executable, str(self.file), "nymph"))
        self.daemon.polls()
        self.worker_id = str(self.daemon.events("HelloAnswered")[-1]["answer"]["worker_id"])
        return self

    def release(self, version: str, before: str = "") -> bytes:
        data = p.program(version, before)
        assert push(self.server, data).status == 201
        return data

    def order(self, version: str) -> None:
        path = f"/v1/namespaces/default/workers/{self.worker_id}/update"
        answer = self.server.post(path, {"version": version}, encoding=JSON)
        assert answer.status == 200, answer.body

    def beside(self) -> set[str]:
        """Our files beside the program."""
        return {one.name for one in self.file.parent.iterdir() if one.name.startswith((".lakeshore.", ".nymph-"))}

    def version(self) -> str:
        """As the server knows it."""
        found = self.server.get(f"/v1/namespaces/default/workers/{self.worker_id}", encoding=JSON).body
        worker = found.get("worker", found)
        return str(worker["versions"]["daemon"])


@pytest.fixture
def host(secured_server: Served, tmp_path: Path) -> Iterator[Host]:
    with d.daemon(secured_server.url, tmp_path / "host", LAKESHORE_TOKEN=ADMIN) as daemon:
        yield Host(secured_server, daemon)


@pytest.mark.inventory("N-171", "N-173", "N-174")
@pytest.mark.inventory("N-170", "N-177", "N-005")
def test_ordered_to_it_becomes_the_new_program_with_its_arguments_and_its_jobs_go_on(host: Host) -> None:
    host.start()
    daemon, gate = host.daemon, host.daemon.directory / "gate"
    id_ = d.submit(host.server, daemon.queue, bodies.counted, 6, str(gate))
    daemon.until(lambda: daemon.events("JobStarted"))
    new = host.release("2.0.0")
    host.order("2.0.0")
    daemon.until(lambda: host.version() == "2.0.0")
    gate.touch()
    found = d.ended(host.server, id_)
    assert (found["state"], found["attempt"]) == ("succeeded", 1)
    assert host.file.read_bytes() == new
    assert stat.S_IMODE(host.file.stat().st_mode) == 0o755
    daemon.until(lambda: host.beside() == {".lakeshore.previous"})
    assert daemon.process.poll() is None  # the same process
    assert daemon.stop() == 0
    assert daemon.left() == NOTHING


def test_a_program_that_does_not_come_up_is_taken_back_and_the_old_one_goes_on_with_its_jobs(host: Host) -> None:
    host.start()
    daemon, gate, before = host.daemon, host.daemon.directory / "gate", host.file.read_bytes()
    id_ = d.submit(host.server, daemon.queue, bodies.counted, 6, str(gate))
    daemon.until(lambda: daemon.events("JobStarted"))
    host.release("3.0.0", p.DIES)
    host.order("3.0.0")
    daemon.until(lambda: "back to the program before" in daemon.said())
    daemon.record.unlink()
    daemon.polls()
    gate.touch()
    found = d.ended(host.server, id_)
    assert (found["state"], found["attempt"]) == ("succeeded", 1)
    assert host.file.read_bytes() == before
    assert host.beside() == {".lakeshore.refused"}
    assert host.version() == "1.0.0"
    assert daemon.process.wait(d.PATIENCE_S) != 0  # the old one runs in another process
    for pid in daemon.processes():
        if b"nymph" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, 15)
    assert daemon.left() == NOTHING


def test_a_trial_that_nobody_has_ended_is_ended_by_the_next_start(host: Host) -> None:
    before = host.file.read_bytes()
    os.rename(host.file, host.file.with_name(".lakeshore.previous"))
    p.put(host.file, p.program("4.0.0"))
    told = {"version": "4.0.0", "program": str(host.file), "previous": str(host.file.with_name(".lakeshore.previous"))}
    host.file.with_name(".lakeshore.trial").write_text(json.dumps(told))
    host.start()
    assert host.version() == "1.0.0"
    assert host.file.read_bytes() == before
    assert host.daemon.stop() == 0


@pytest.mark.inventory("N-175", "N-176", "N-408")
@pytest.mark.inventory("C-1414", "C-1452", "N-380")
def test_the_target_version_is_followed_where_the_host_says_so(secured_server: Served, tmp_path: Path) -> None:
    ns = f"target-{os.getpid()}"
    assert secured_server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201
    sections: dict[str, Any] = {
        "runtime": {"auto_update": True},
        "server": {"url": secured_server.url, "namespace": ns},
    }
    sections["poll"] = {"wait_max_s": 0.5}
    with d.daemon(secured_server.url, tmp_path / "host", sections, LAKESHORE_TOKEN=ADMIN) as daemon:
        host = Host(secured_server, daemon)
        new = host.release("5.0.0")
        path = f"/v1/namespaces/{ns}/nymph-target"
        assert secured_server.call("PUT", path, {"version": "5.0.0"}, encoding=JSON).status == 200
        host.start()
        daemon.until(lambda: host.file.read_bytes() == new)
        daemon.until(lambda: len(daemon.said().split("queue ")) == 3, "the new program polls")
        assert daemon.stop() == 0


# ---- what is not installed


def refused(url: str, path: Path, wanted: str, server: str) -> str:
    """Why an update is refused; nothing has changed by it."""
    told: list[str] = []
    target = p.put(path, p.program("1.0.0"))
    before = target.read_bytes()

    async def main() -> None:
        transport = Transport(parse_target(server), token=ADMIN)
        with pytest.raises(UpdateError) as error:
            await install(transport, Program(path=target, arguments=()), "01J", version="9.9.9", url=url, sha256=wanted)
        told.append(str(error.value))
        transport.close()

    k.run(main)
    assert target.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    return told[0]


@pytest.mark.inventory("N-172", "N-406")
def test_a_file_of_another_sha256_or_that_does_not_start_is_not_installed(
    secured_server: Served, tmp_path: Path
) -> None:
    data = p.program("9.9.9", p.IS_BROKEN)
    url = push(secured_server, data).body["url"]
    digest = hashlib.sha256(data).hexdigest()
    path = tmp_path / "lakeshore"
    said = refused(url, path, "0" * 64, secured_server.url)
    assert f"sha256 mismatch (expected {'0' * 64}, got {digest})" in said
    assert "does not start: it does not start" in refused(url, path, digest, secured_server.url)
    assert "no such release" in refused(url + "0", path, digest, secured_server.url)


def test_a_download_that_ends_early_is_not_installed(tmp_path: Path) -> None:
    data = p.program("9.9.9")

    def half(connection: Connection) -> None:
        connection.read_head()
        connection.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(data) + data[:100])

    with scripted(half) as server:
        said = refused("/file", tmp_path / "lakeshore", hashlib.sha256(data).hexdigest(), server.url)
    assert "/file" in said
