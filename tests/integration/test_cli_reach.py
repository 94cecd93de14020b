"""Whom the commands talk to, in what, and what works without them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from exec_peer import Peer
from http_recorder import recording
from served import JSON, Served, environment, new_id

Run = Callable[..., tuple[int, str, str]]
READS = (
    "jobs list",
    "queues ls",
    "daemon list",
    "providers list",
    "secrets list",
    "modes list",
    "tunnels list",
    "mounts list",
    "storage list",
    "code list",
    "schedule list",
    "daemon target-version",
)
CHANGES = (
    "queues add {name}",
    "queues pause {name}",
    "modes add {name} --field runner=process",
    "providers add {name} --launcher SSH --kwarg ip=10.0.0.1",
    "providers update {name} --kwarg port=2222",
    "mounts add {name} --kind bind --kwarg hostPath=/p",
    "tunnels add {name} --conf [Interface]",
    "storage add {name} --kind s3 --bucket b",
    "jobs bulk-cancel --queue {name}",
)
_heard: list[list[Any]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _heard:
        _heard[-1].append(arguments[1])


@pytest.fixture(scope="module", autouse=True)
def ears() -> None:
    sys.addaudithook(_hook)  # it cannot be taken away, and hears nothing outside `connected`


@contextmanager
def connected() -> Iterator[list[Any]]:
    """The addresses that this process connects to."""
    _heard.append([])
    try:
        yield _heard[-1]
    finally:
        _heard.pop()


@pytest.fixture
def lake(server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    return run


@pytest.mark.inventory("C-020")
def test_what_a_command_says_to_a_server_and_wants_from_it_is_json(
    server: Served, lake: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording(server.url) as recorder:
        monkeypatch.setenv("LAKESHORE_URL", recorder.url)
        name = f"n-{new_id()}"
        for line in (*READS, *CHANGES):
            code, _, err = lake(*line.format(name=name).split())
            assert code == 0, (line, err)
        asked = recorder.requests()
    assert len(asked) >= len(READS) + len(CHANGES)
    assert {one.headers["accept"] for one in asked} == {JSON}
    with_body = [one for one in asked if int(one.headers.get("content-length", 0))]
    assert {one.method for one in with_body} == {"POST", "PATCH"}
    assert {one.headers["content-type"] for one in with_body} == {JSON}


@pytest.mark.inventory("C-021")
def test_what_an_operator_does_to_a_daemon_goes_to_the_control_plane_alone(server: Served, lake: Run) -> None:
    daemon = Peer(server)
    with connected() as addresses:
        for line in ("daemon show {}", "daemon hibernate {} --until +1h", "daemon reset {}", "daemon list"):
            code, _, err = lake(*line.format(daemon.id).split())
            assert code == 0, (line, err)
        lake("daemon", "exec", "--wait", "0.1", daemon.id, "true")
    parts = urlsplit(server.url)
    assert set(addresses) == {(parts.hostname, parts.port)}
    told = {command["kind"] for command in daemon.poll()}
    assert {"hibernate", "reset_backoff"} <= told, told
    assert len(told) == 3, told  # and the command that is to run


@pytest.mark.inventory("C-049")
def test_a_variables_server_is_every_commands_but_those_of_a_login_and_gets_no_token_of_the_login(
    server: Served, secured_server: Served, lake: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = secured_server.post("/v1/namespaces/default/tokens", {"name": f"t-{new_id()}"}).body["plaintext"]
    assert lake("auth", "login", "--server", secured_server.url, "--token", token)[0] == 0
    with recording(server.url) as recorder:
        monkeypatch.setenv("LAKESHORE_URL", recorder.url)
        code, out, err = lake("auth", "status")
        assert (code, secured_server.url in out) == (0, True), err
        assert recorder.requests() == []
        for number, line in enumerate(READS, 1):
            code, _, err = lake(*line.split())
            assert code == 0, (line, err)
            assert len(recorder.requests()) >= number, line
        assert not [one for one in recorder.requests() if "authorization" in one.headers]


LOCAL = """
import sys
import dreamlake.lakeshore as dls

@dls.udf(queue="q")
def double(n):
    return 2 * n

q = dls.SyncQueue("q")
id_ = double.submit(21)
dls.run_worker(q, once=True)
print(q.result(id_), sorted(name for name in sys.modules if name.startswith(("lakeshore.cli", "click"))))
"""


@pytest.mark.inventory("C-007")
def test_the_local_tier_needs_no_command_and_machines_and_logins_have_commands_alone(tmp_path: Path) -> None:
    (tmp_path / "local.py").write_text(LOCAL)
    done = subprocess.run(
        [sys.executable, "local.py"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=environment(LAKESHORE_HOME=str(tmp_path / "home")),
    )
    assert (done.stdout, done.returncode) == ("42 []\n", 0), done.stderr
    from dreamlake import lakeshore as sdk  # wall: the rest of this file is about commands

    spelt = " ".join(sdk.__all__).lower()
    assert not [word for word in ("providers", "daemon", "nymph", "login", "auth") if word in spelt]


def test_the_ears_of_this_file_hear() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, connected() as addresses:
        socket.create_connection(there.getsockname()).close()
        assert addresses == [there.getsockname()]
