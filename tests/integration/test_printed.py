"""What bodies print, from a worker process over a real server to `lakeshore jobs logs`."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import printed_bodies as bodies
import pytest
from ports import free_port
from served import Served, new_id, running, start

from lakeshore import HttpDispatch
from lakeshore.cli.jobs.logs import _Reader
from lakeshore.cli.main import main
from lakeshore.client.api import ApiClient
from lakeshore.sdk.errors import DispatchError

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
PATIENCE_S = 60.0


def worker(server: Served, log: Path, ns: str = "default") -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-um", "dreamlake.lakeshore.daemon", "--queue", "printed", "--url", server.url],
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "LAKESHORE_NAMESPACE": ns},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )


class Place:
    """A server's namespace with one worker process in it."""

    def __init__(self, server: Served, folder: Path) -> None:
        self.server, self.ns, self.terminal = server, f"ns-{new_id()}", folder / "terminal"
        self.plane = HttpDispatch(server.url, namespace=self.ns)
        self.worker = worker(server, self.terminal, self.ns)

    def submit(self, body: Any, *arguments: Any) -> str:
        return str(body.submit(*arguments, _dispatch=self.plane))

    def run(self, body: Any, *arguments: Any) -> str:
        """Submit, and wait for the end; the id."""
        id_ = self.submit(body, *arguments)
        with contextlib.suppress(DispatchError):
            self.plane.result(id_, timeout=PATIENCE_S)
        return id_

    def page(self, id_: str, query: str = "", **more: Any) -> dict[str, Any]:
        answer = self.server.get(f"/v1/namespaces/{self.ns}/invocations/{id_}/logs?{query}", **more)
        assert answer.status == 200, answer.raw
        body: dict[str, Any] = answer.body
        return body

    def text(self, id_: str, stream: str | None = None, query: str = "") -> bytes:
        data, offset = b"", 0
        while True:
            page = self.page(id_, f"offset={offset}&{query}" + (f"&stream={stream}" if stream else ""))
            data += b"".join(base64.b64decode(part["bytes"]) for part in page["parts"])
            if page["offset"] == offset:
                return data
            offset = page["offset"]

    def until(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not there():
            assert time.monotonic() < deadline, self.terminal.read_text(errors="replace")
            time.sleep(0.02)

    def close(self) -> None:
        self.worker.kill()
        self.worker.wait(60)
        self.plane.close()


@pytest.fixture
def place(server: Served, tmp_path: Path) -> Iterator[Place]:
    found = Place(server, tmp_path)
    yield found
    found.close()


@pytest.fixture
def jobs_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(place: Place, *arguments: str) -> tuple[int, bytes, bytes]:
        monkeypatch.setenv("LAKESHORE_URL", place.server.url)
        monkeypatch.setenv("LAKESHORE_NAMESPACE", place.ns)
        capfdbinary.readouterr()
        code = main(["jobs", "logs", *arguments])
        said = capfdbinary.readouterr()
        return code, said.out, said.err

    return run


def test_both_streams_are_kept_in_order_and_are_on_the_terminal_too(place: Place, jobs_logs: Any) -> None:
    id_ = place.run(bodies.both, 3)
    lines = [f"{name} {n}" for n in range(3) for name in ("out", "err")]
    assert place.text(id_).decode().splitlines() == lines
    assert place.text(id_, "stderr") == b"err 0\nerr 1\nerr 2\n"
    assert place.terminal.read_text().splitlines()[-6:] == lines
    page = place.page(id_)
    assert (page["attempt"], page["attempts"], page["state"]) == (1, [1], "succeeded")
    assert jobs_logs(place, id_) == (0, "".join(f"{line}\n" for line in lines).encode(), b"")
    assert jobs_logs(place, id_, "--stdout", "--tail", "2")[1] == b"out 1\nout 2\n"
    assert jobs_logs(place, id_, "--tail", "1", "--follow")[1] == b"err 2\n"
    told = json.loads(jobs_logs(place, id_, "--json")[1])
    assert "".join(part["text"] for part in told["parts"] if part["stream"] == "stdout") == "out 0\nout 1\nout 2\n"
    assert jobs_logs(place, id_, "--stdout", "--stderr")[0] == 2
    assert jobs_logs(place, "01M8NOSUCHINVOCATION00000")[0] == 1


def test_a_silent_body_leaves_nothing_and_is_said_to_have_printed_nothing(place: Place, jobs_logs: Any) -> None:
    id_ = place.run(bodies.silent, 1)
    page = place.page(id_)
    assert (page["parts"], page["attempts"], page["end"]) == ([], [], True)
    assert jobs_logs(place, id_, "--follow") == (0, b"", f"{id_} has printed nothing\n".encode())


def test_every_way_of_python_to_print_is_kept_as_bytes(place: Place) -> None:
    id_ = place.run(bodies.in_every_way)
    data = place.text(id_)
    assert data.startswith(b"printed without an end \x00\xff\xfe ")
    for said in (b"logged\n", b"UserWarning: warned", b"of a thread\n", b"one, two\nthree\n"):
        assert said in data
    assert place.text(place.run(bodies.both, 1)) == b"out 0\nerr 0\n", "a closed stdout is the body's own loss"
    assert place.text(place.run(bodies.forks)) == b"parent\nparent again\n"


def followed(place: Place, id_: str) -> subprocess.Popen[bytes]:
    where = ("--url", place.server.url, "--namespace", place.ns)
    command = [sys.executable, "-m", "lakeshore", "jobs", "logs", id_, "-f", *where]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def test_what_is_printed_is_there_while_the_body_runs_and_follow_ends_with_it(place: Place, tmp_path: Path) -> None:
    told = tmp_path / "told"
    id_ = place.submit(bodies.until_told, str(told))
    began = time.monotonic()
    page = place.page(id_, "wait_s=30")
    assert next(base64.b64decode(part["bytes"]) for part in page["parts"]).startswith(b"begun")
    assert not page["end"]
    assert time.monotonic() - began < 25, "the wait ends with the first bytes"
    follower = followed(place, id_)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"begun\n"
    told.touch()
    assert follower.stdout.read() == b"told\n"
    assert follower.wait(60) == 0
    follower.stdout.close()


def test_ctrl_c_ends_a_follower_with_130(place: Place, tmp_path: Path) -> None:
    id_ = place.submit(bodies.until_told, str(tmp_path / "told"))
    follower = followed(place, id_)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"begun\n"
    follower.send_signal(signal.SIGINT)
    assert follower.wait(60) == 130
    follower.stdout.close()
    (tmp_path / "told").touch()


def test_a_flood_is_bounded_everywhere_and_keeps_its_ends(place: Place, jobs_logs: Any) -> None:
    place.run(bodies.silent, 1)
    status = Path(f"/proc/{place.worker.pid}/status")
    before = int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0])
    id_ = place.run(bodies.flood, 100)
    grown = int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) - before
    assert grown < 32 * 1024, f"{grown} KiB for 100 MiB that were printed"
    data = place.text(id_)
    assert data.startswith(b"the first line\n")
    assert data.endswith(b"the last line\n")
    assert len(data) < 3 * 2**20
    code, out, err = jobs_logs(place, id_)
    assert (code, out) == (0, data)
    assert re.search(rb"[\d,]+ bytes of stdout were not kept", err)


def test_what_was_flushed_before_a_crash_is_there(place: Place, tmp_path: Path) -> None:
    id_ = place.submit(bodies.dies, str(tmp_path / "go"))
    place.until(lambda: place.text(id_) == b"before the end\n")
    (tmp_path / "go").touch()
    place.worker.wait(PATIENCE_S)
    assert place.text(id_, query="attempt=1") == b"before the end\n"


def test_each_attempt_has_its_log_and_follow_goes_through_them(place: Place, tmp_path: Path, jobs_logs: Any) -> None:
    id_ = place.submit(bodies.fails_once, str(tmp_path / "tried"))
    code, out, err = jobs_logs(place, id_, "--follow")
    assert code == 0
    assert out.endswith(b"the second attempt\n")
    place.until(lambda: place.page(id_)["end"])
    assert jobs_logs(place, id_)[1] == b"the second attempt\n"
    assert jobs_logs(place, id_, "--attempt", "1")[1].startswith(b"the first attempt\n")
    assert place.page(id_)["attempts"] == [1, 2]
    assert b"attempt 2\n" in err or out == b"the second attempt\n"


def test_who_follows_slowly_is_not_done_before_the_attempt_that_was_over_meanwhile(
    place: Place, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    id_ = place.submit(bodies.fails_when_told, str(tmp_path / "tried"), str(told))
    began: list[int] = []
    with contextlib.closing(ApiClient(place.server.url, namespace=place.ns)) as api:
        following = _Reader(api, id_, attempt=None, stream=None).followed(began.append)
        found = b""
        while found != b"the first attempt\n":
            found += b"".join(part["data"] for part in next(following)[1])
        told.touch()
        place.plane.result(id_, timeout=PATIENCE_S)
        found += b"".join(part["data"] for _answer, parts in following for part in parts)
    assert found.startswith(b"the first attempt\n") and found.endswith(b"the second attempt\n")
    assert began == [2]


def test_a_log_is_its_namespaces_and_its_claims(server: Served, place: Place, tmp_path: Path) -> None:
    told = tmp_path / "told"
    id_ = place.submit(bodies.until_told, str(told))
    place.until(lambda: bool(place.page(id_)["parts"]))
    other = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": other}).status == 201
    assert server.get(f"/v1/namespaces/{other}/invocations/{id_}/logs").status == 404
    chunk = {"invocation_id": id_, "claim": 1, "parts": [["stdout", 0, b"forged"]]}
    assert server.post("/v1/daemon/log-chunk", chunk, X_LS_Namespace=other).status == 404
    stale = server.post("/v1/daemon/log-chunk", {**chunk, "claim": 99}, X_LS_Namespace=place.ns)
    assert (stale.status, stale.body["error"]) == (409, "stale")
    claim = place.page(id_)["claim"]
    query = f"invocation_id={id_}&claim={claim}&stream=stderr&offset=0"
    headers = {"Content-Type": "application/octet-stream", "X-LS-Namespace": place.ns}
    for _ in range(2):  # sent twice, stored once
        assert server.raw("POST", f"/v1/daemon/log-chunk?{query}", b"raw \xff", headers).status == 200
    assert place.text(id_, "stderr") == b"raw \xff"
    for wrong in (
        {"parts": [["stdin", 0, b""]]},
        {"parts": [["stdout", 2**52, b"x"]]},
        *({"attempt": attempt} for attempt in (0, 3, 2**53)),  # else one claim could fill a disk, an attempt at a time
    ):
        refused = server.post("/v1/daemon/log-chunk", {**chunk, "claim": claim, **wrong}, X_LS_Namespace=place.ns)
        assert refused.status == 422, wrong
    for wait_s in ("nan", "-nan", "x", ""):
        query = f"/v1/namespaces/{place.ns}/invocations/{id_}/logs?offset=99999&wait_s={wait_s}"
        assert server.get(query).status == 422, wait_s
    told.touch()
    place.until(lambda: place.page(id_)["end"])
    late = server.post("/v1/daemon/log-chunk", {**chunk, "claim": claim}, X_LS_Namespace=place.ns)
    assert (late.status, late.body["error"]) == (409, "stale")


def test_a_log_goes_with_its_row(server: Served, place: Place) -> None:
    ids = [place.run(bodies.both, n) for n in (1, 2)]
    logs = server.state_dir / "logs"
    before = set(logs.glob("*/*"))
    body = {"olderThanHours": 0, "queue": "printed"}
    place.until(lambda: server.post(f"/v1/namespaces/{place.ns}/invocations/prune", body).body["count"] == 0)
    assert [server.get(f"/v1/namespaces/{place.ns}/invocations/{id_}/logs").status for id_ in ids] == [404, 404]
    assert len(before - set(logs.glob("*/*"))) == 2


def test_a_server_that_is_killed_has_what_it_took_and_gets_the_rest(tmp_path: Path, jobs_logs: Any) -> None:
    port = str(free_port())
    first = start(tmp_path / "server", "--port", port)
    place = Place(first, tmp_path)
    try:
        told = tmp_path / "told"
        id_ = place.submit(bodies.until_told, str(told))
        place.until(lambda: place.text(id_) == b"begun\n")
        first.stop(signal.SIGKILL)
        told.touch()
        with running(tmp_path / "server", "--port", port) as place.server:
            code, out, _err = jobs_logs(place, id_, "--follow")
            assert (code, out) == (0, b"begun\ntold\n")
            backup = tmp_path / "copy"
            assert main(["backup", str(backup), "--state-dir", str(place.server.state_dir)]) == 0
            assert [path.read_bytes() for path in backup.glob("logs/*/*")] == [
                path.read_bytes() for path in place.server.state_dir.glob("logs/*/*")
            ]
    finally:
        place.close()
        first.stop(signal.SIGKILL)
