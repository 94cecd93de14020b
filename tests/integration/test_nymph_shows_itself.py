"""The status page over a real socket, and the record of this machine's own daemon."""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from lakeshore._version import __version__
from lakeshore.nymph import introspect
from lakeshore.nymph.config import IntrospectSection
from lakeshore.nymph.core.core import Core
from lakeshore.nymph.core.settings import Settings
from lakeshore.nymph.local_record import LocalRecord, place, read
from lakeshore.nymph.logs import Ring


@asynccontextmanager
async def page(bind: str = "127.0.0.1", port: int = 0, ring: Ring | None = None) -> AsyncIterator[int]:
    core = Core(Settings(worker_id="host-01J", session="01J", version="1", queue="gpu"))
    section = IntrospectSection(enabled=True, bind=bind, port=port)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(60):
            found = await nursery.start(introspect.serve, section, core.status, ring or Ring(16))
            assert found is not None
            yield found
        nursery.cancel_scope.cancel()


def ask(port: int, path: str, method: str = "GET", host: str = "127.0.0.1", **headers: str) -> tuple[int, Any, Any]:
    line = http.client.HTTPConnection(host, port, timeout=60)
    try:
        line.request(method, path, headers=headers)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        line.close()


async def asked(*arguments: Any, **more: Any) -> tuple[int, Any, Any]:
    return await trio.to_thread.run_sync(lambda: ask(*arguments, **more))


def test(main: Callable[[], Any]) -> None:
    trio.run(main)


test.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.inventory("N-271", "N-272", "N-273")
@pytest.mark.inventory("N-274", "N-276", "N-278")
@pytest.mark.inventory("N-266", "N-267", "N-268")
@pytest.mark.inventory("C-459", "C-460")
def test_status_has_the_documented_fields_in_their_order_before_hello_as_well() -> None:
    async def main() -> None:
        async with page() as port:
            code, body, headers = await asked(port, "/status")
            assert code == 200
            assert list(body) == [
                "version",
                "worker_id",
                "queue",
                "run_state",
                "backoff_s",
                "last_poll_ok_ts",
                "uptime_s",
                "inflight",
            ]
            assert 0 <= body.pop("uptime_s") < 60
            assert body == {
                "version": __version__,
                "worker_id": None,
                "queue": "gpu",
                "run_state": "starting",
                "backoff_s": 0.0,
                "last_poll_ok_ts": None,
                "inflight": {"count": 0, "last_exec_id": None},
            }
            assert (headers["connection"], headers["content-type"]) == ("close", "application/json")
            assert headers["content-length"] is not None

    test(main)


@pytest.mark.inventory("N-281", "N-282", "N-285")
@pytest.mark.inventory("C-461")
def test_events_are_those_of_the_ring_by_level_and_number() -> None:
    async def main() -> None:
        ring = Ring(8)
        for number in range(300):
            level = logging.WARNING if number % 2 else logging.INFO
            ring.handle(logging.makeLogRecord({"name": "lakeshore.nymph.x", "levelno": level, "msg": str(number)}))
        async with page(ring=ring) as port:
            for query, messages in (
                ("", [str(n) for n in range(292, 300)]),
                ("?limit=2", ["298", "299"]),
                ("?limit=2&level=WARN", ["297", "299"]),
                ("?level=loud&limit=", [str(n) for n in range(292, 300)]),
                ("?limit=-1", [str(n) for n in range(292, 300)]),
            ):
                _, body, _ = await asked(port, f"/events{query}")
                assert [event["message"] for event in body["events"]] == messages, query
                assert (body["count"], body["capacity"]) == (len(messages), 8)

    test(main)


@pytest.mark.inventory("N-286", "N-287", "N-288")
@pytest.mark.inventory("C-455", "C-456", "C-457")
def test_other_paths_and_methods_are_answered_in_the_documented_words() -> None:
    async def main() -> None:
        async with page() as port:
            for path in ("/", "/healthz", "/healthz?x=1"):
                assert (await asked(port, path))[:2] == (200, {"ok": True})
            missing = {"error": "not_found", "message": "no such route"}
            assert (await asked(port, "/nothing"))[:2] == (404, missing)
            only = {"error": "method_not_allowed", "message": "only GET is supported"}
            for method, path in (("POST", "/status"), ("DELETE", "/nothing"), ("PUT", "/")):
                assert (await asked(port, path, method))[:2] == (405, only)

    test(main)


@pytest.mark.parametrize(("host", "code"), [("evil.example", 403), ("localhost:1", 200), ("[::1]:9876", 200)])
def test_who_came_by_another_name_gets_nothing(host: str, code: int) -> None:
    async def main() -> None:
        async with page() as port:
            assert (await asked(port, "/status", Host=host))[0] == code

    test(main)


def test_a_silent_or_garbled_visitor_keeps_nobody_out() -> None:
    async def main() -> None:
        async with page() as port:
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
            garbled = socket.create_connection(("127.0.0.1", port))
            garbled.sendall(b"\x16\x03\x01\r\n\r\n")
            assert (await asked(port, "/healthz"))[0] == 200
            assert (await trio.to_thread.run_sync(garbled.recv, 1000)).startswith(b"HTTP/1.1 400 ")
            for line in (*silent, garbled):
                line.close()

    test(main)


@pytest.mark.inventory("N-058", "N-270", "N-403")
@pytest.mark.inventory("N-059", "N-066", "C-808")
@pytest.mark.inventory("C-458")
@pytest.mark.parametrize("bind", ["0.0.0.0", "192.0.2.1", "example.com", "taken"])
def test_an_address_that_cannot_be_had_is_one_warning_and_no_end(bind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        taken = socket.create_server(("127.0.0.1", 0))
        named = "127.0.0.1" if bind == "taken" else bind
        section = IntrospectSection(enabled=True, bind=named, port=taken.getsockname()[1])
        async with trio.open_nursery() as nursery:
            assert await nursery.start(introspect.serve, section, dict, Ring(0)) is None
        taken.close()

    test(main)
    (record,) = caplog.records
    assert record.levelname in ("WARN", "WARNING")
    assert record.getMessage().startswith("no status page: ")
    assert bind == "taken" or bind in record.getMessage()


@pytest.mark.inventory("N-423", "C-236", "C-366")
def test_the_record_is_private_names_the_worker_and_goes_with_its_daemon(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    record = LocalRecord("http://cp", environ)
    assert record.write()
    assert place(environ) == tmp_path / ".config" / "dreamlake" / "daemons" / "local.json"
    assert place(environ).stat().st_mode & 0o777 == 0o600
    assert record.write("w-1")
    found = read(environ)
    assert found is not None
    assert (found.pid, found.worker_id, found.server) == (os.getpid(), "w-1", "http://cp")
    assert found.lives()
    assert {"pid", "worker_id", "server", "started_at"} <= set(json.loads(place(environ).read_text()))
    record.remove()
    assert read(environ) is None


@pytest.mark.inventory("C-056")
def test_a_living_daemon_keeps_its_place_and_a_dead_ones_is_taken(tmp_path: Path) -> None:
    environ = {"DREAMLAKE_STATE_DIR": str(tmp_path)}
    code = (
        "import sys; from lakeshore.nymph.local_record import LocalRecord; "
        "assert LocalRecord('http://first').write(); print('here', flush=True); sys.stdin.read()"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout is not None
    assert first.stdout.readline() == b"here\n"
    second = LocalRecord("http://second", environ)
    assert not second.write()
    second.remove()
    found = read(environ)
    assert found is not None
    assert (found.pid, found.server) == (first.pid, "http://first")
    first.kill()
    first.communicate()
    assert not found.lives()
    assert second.write()
    found = read(environ)
    assert found is not None
    assert found.server == "http://second"


def test_a_place_that_cannot_be_written_and_a_record_that_is_none_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"DREAMLAKE_STATE_DIR": str(tmp_path / "file")}
    record = LocalRecord("http://cp", environ)
    assert not record.write()
    record.remove()
    environ = {"DREAMLAKE_STATE_DIR": str(tmp_path)}
    for text in ("", "[]", '{"pid": "1"}', '{"pid": 0}', "{"):
        place(environ).write_text(text)
        assert read(environ) is None, text
    assert LocalRecord("http://cp", environ).write()
