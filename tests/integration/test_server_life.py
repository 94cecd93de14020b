"""Starting, refusing to start, going down, coming back."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from net_certs import certificate
from served import ADMIN, Served, environment, new_id, one, refused, running, start

from lakeshore.server.serve import DRAIN_S

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.mark.inventory("S-013", "S-049")
def test_the_start_says_where_it_listens_where_its_state_is_and_who_may_call(server: Served) -> None:
    said = server.said()
    assert f"lakeshore serve: listening on {server.url}" in said
    assert str(server.state_dir) in said
    assert "open mode" in said
    assert str(server.state_dir / "admin.token") in said
    assert (server.state_dir / "admin.token").read_text().strip() not in said


def test_the_state_directory_is_private(server: Served) -> None:
    assert stat.S_IMODE(server.state_dir.stat().st_mode) == 0o700
    for name in ("secrets.key", "admin.token", "records.db", "server.lock"):
        assert stat.S_IMODE((server.state_dir / name).stat().st_mode) == 0o600, name


@pytest.mark.inventory("S-047", "S-048")
@pytest.mark.inventory("S-688", "S-690", "S-691")
@pytest.mark.parametrize("switch", ["LAKESHORE_ENV", "NODE_ENV"])
def test_production_needs_an_admin_token_and_a_secrets_key(tmp_path: Path, switch: str) -> None:
    production = {switch: "production"}
    code, said = refused(tmp_path, env=production)
    assert (code, "LAKESHORE_ADMIN_TOKEN is required in production" in said) == (1, True)
    code, said = refused(tmp_path, env={**production, "LAKESHORE_ADMIN_TOKEN": ADMIN})
    assert (code, "SECRETS_KEY is required in production" in said) == (1, True)
    with running(tmp_path, env={**production, "LAKESHORE_ADMIN_TOKEN": ADMIN, "SECRETS_KEY": KEY}) as served:
        assert served.get("/healthz").status == 200
        assert not (served.state_dir / "secrets.key").exists()


@pytest.mark.parametrize("key", ["nonsense!", "c2hvcnQ="])
def test_a_secrets_key_that_is_none_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    code, said = refused(tmp_path, env={"SECRETS_KEY": key})
    assert code == 1
    assert "SECRETS_KEY" in said
    assert key not in said


@pytest.mark.inventory("S-692")
def test_a_store_that_is_not_built_is_refused_without_showing_its_password(tmp_path: Path) -> None:
    code, said = refused(tmp_path, env={"DATABASE_URL": "mongodb+srv://user:hunter2@h/db"})
    assert (code, "not built yet: MongoDB" in said, "hunter2" in said) == (1, True, False)


@pytest.mark.inventory("S-697", "S-695")
def test_what_is_asked_for_and_not_built_is_told_at_the_start_and_the_rest_works(tmp_path: Path) -> None:
    with running(tmp_path, env={"LAKESHORE_BLOBS_BUCKET": "b"}) as served:
        assert "not built yet: payloads in a bucket" in served.said()
        body = {"op": "put", "kind": "result", "size": 1}
        assert served.post("/v1/namespaces/default/payloads/presign", body).body["bucket"] == "local"


@pytest.mark.inventory("S-705", "S-508", "S-706")
def test_the_elasticity_controller_runs_when_it_is_switched_on_and_a_setting_that_is_none_is_named(
    tmp_path: Path,
) -> None:
    with running(tmp_path, env={"ELASTICITY_ENABLED": "true", "ELASTICITY_NAMESPACES": "team-a"}) as served:
        assert "elasticity: a look every 5 s, at the queues of team-a" in served.said()
    for name, value in (("ELASTICITY_ENABLED", "maybe"), ("ELASTICITY_TICK_S", "-1"), ("ELASTICITY_NAMESPACES", "A b")):
        code, said = refused(tmp_path, env={"ELASTICITY_ENABLED": "true", name: value})
        assert (code, name in said) == (1, True)


@pytest.mark.inventory("S-050")
def test_without_a_secrets_key_one_is_made_once_and_secrets_outlive_a_restart(tmp_path: Path) -> None:
    body = {"name": "box", "launcher": "SSH", "kwargs": {"ip": "h", "ssh_key": {"$secret": "pem"}}}
    at = "/v1/namespaces/default"
    with running(tmp_path) as served:
        key = (served.state_dir / "secrets.key").read_text()
        served.post(f"{at}/secrets", {"name": "pem", "kind": "ssh_key", "plaintext": "planted"})
        assert served.post(f"{at}/providers", body).status == 201
        served.stop()
    with running(tmp_path) as served:
        assert (served.state_dir / "secrets.key").read_text() == key
        opened = served.post(f"{at}/providers/box/resolve", {}).body
        assert opened["kwargs"]["ssh_key"] == "planted"


@pytest.mark.inventory("S-689", "S-051", "S-776")
@pytest.mark.inventory("C-1459")
def test_the_old_name_of_the_admin_token_is_read_with_a_warning(tmp_path: Path) -> None:
    with running(tmp_path, env={"ADMIN_TOKEN": ADMIN}) as served:
        assert served.said().count("ADMIN_TOKEN is deprecated") == 1
        assert served.get("/metrics").status == 401
        assert served.get("/metrics", token=ADMIN).status == 200


def test_another_address_needs_a_token_or_open(tmp_path: Path) -> None:
    code, said = refused(tmp_path, "--host", "0.0.0.0")
    assert code == 1
    assert "--open" in said
    with running(tmp_path / "token", "--host", "0.0.0.0", env={"LAKESHORE_ADMIN_TOKEN": ADMIN}) as served:
        assert served.get("/metrics").status == 401
    with running(tmp_path / "open", "--host", "0.0.0.0", "--open") as served:
        assert "ANYBODY" in served.said()
        assert served.get("/v1/namespaces/default/whoami", Host="box.example:80").status == 200


@pytest.mark.inventory("S-741")
def test_a_second_server_on_one_state_directory_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as served:
        code, said = refused(tmp_path)
        assert code == 1
        assert f"pid {served.process.pid}" in said
        assert "--state-dir" in said
        assert served.get("/healthz").status == 200
    with running(tmp_path) as again:
        assert again.get("/healthz").status == 200


def test_a_state_directory_that_cannot_be_written_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    code, said = refused(tmp_path)
    assert code == 1
    assert "cannot write to the state directory" in said
    assert "--state-dir" in said
    assert "Traceback" not in said


@pytest.mark.skipif(os.geteuid() == 0 and not sys.platform.startswith("linux"), reason="root writes anywhere")
def test_a_read_only_state_directory_is_refused(tmp_path: Path) -> None:
    locked = Path("/proc/sys") if os.geteuid() == 0 else tmp_path / "locked"
    if os.geteuid() != 0:
        locked.mkdir(mode=0o500)
    code, said = _run("--port", "0", "--state-dir", str(locked / "state"))
    assert code == 1
    assert "cannot write to the state directory" in said


def test_it_serves_tls_with_a_certificate_of_yours(tmp_path: Path) -> None:
    trusted, _ = certificate(tmp_path)
    key = tmp_path / "key.pem"
    with running(tmp_path, "--tls-cert", str(trusted), "--tls-key", str(key)) as served:
        host, _, port = served.url.removeprefix("https://").rpartition(":")
        context = ssl.create_default_context(cafile=str(trusted))
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
        connection.request("GET", "/v1/namespaces/default/whoami")
        assert connection.getresponse().status == 200
        connection.close()
    code, said = refused(tmp_path, "--tls-cert", str(tmp_path / "none.pem"))
    assert (code, "none.pem does not exist" in said) == (1, True)


def test_a_taken_port_is_the_first_thing_that_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = _run("--port", str(taken.getsockname()[1]), "--state-dir", str(tmp_path / "state"))
    assert code == 1
    assert "taken by another program" in said


def test_a_bad_port_in_the_environment_is_a_usage_error(tmp_path: Path) -> None:
    code, said = _run("--state-dir", str(tmp_path / "state"), PORT="eighty")
    assert code == 2
    assert "PORT" in said


def _run(*arguments: str, **env: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "lakeshore.server.serve", *arguments],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.inventory("K-16", "K-29")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.inventory("S-017", "S-730")
def test_a_second_start_finds_everything(tmp_path: Path, how: signal.Signals) -> None:
    call, big = one(), one(args_blob=b"x" * 100_000)
    with running(tmp_path) as served:
        for body in (call, big):
            assert served.post("/v1/producer/submit", body).status == 200
        token = served.post("/v1/namespaces/default/tokens", {"name": "t"}).body["plaintext"]
        granted = served.post("/v1/namespaces/default/payloads/presign", {"op": "put", "size": 3}).body
        assert served.stop(how) == (-how if how == signal.SIGKILL else 0)
    with running(tmp_path) as served:
        assert served.get("/v1/namespaces/default/whoami", token=token).body["authMode"] == "token"
        assert served.raw("PUT", granted["url"], b"abc").status == 201
        poll = {"worker_id": new_id(), "queue": big["queue"], "session": "s", "n": 1, "timeout_s": 5}
        (command,) = served.post("/v1/daemon/poll", poll).body["commands"]
        assert command["body"]["args_blob"] == big["args_blob"]
        assert served.post("/v1/producer/submit", call).status == 200
        assert served.get(f"/v1/producer/queues/{call['queue']}/count").body == {"count": 1}


def test_a_thousand_held_polls_are_answered_when_the_server_goes_down(tmp_path: Path) -> None:
    count = 1000
    served = start(tmp_path)
    peers: list[socket.socket] = []
    try:
        host, _, port = served.url.removeprefix("http://").rpartition(":")
        body = b'{"worker_id":"w%d","queue":"q","session":"s","n":1,"timeout_s":20}'
        for number in range(count):
            peer = socket.create_connection((host, int(port)))
            peer.settimeout(60)
            data = body % number
            peer.sendall(
                b"POST /v1/daemon/poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(data), data)
            )
            peers.append(peer)
        deadline = time.monotonic() + 60
        while f"lakeshore_parked_polls {count}\n" not in served.get("/metrics").raw.decode():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < 30
        assert all(peer.recv(65536).startswith(b"HTTP/1.1 200 OK") for peer in peers)
    finally:
        for peer in peers:
            peer.close()
        served.process.kill()
        served.process.wait()


def test_a_followed_stream_breaks_off_when_the_server_goes_down(tmp_path: Path) -> None:
    served = start(tmp_path)
    try:
        call = one()
        served.post("/v1/producer/submit", call)
        connection = served.connection()
        connection.request("GET", f"/v1/producer/invocations/{call['invocation_id']}/result/stream")
        answer = connection.getresponse()
        assert answer.status == 200
        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < DRAIN_S, "it waited for the stream"
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
        connection.close()
        assert "Traceback" not in served.said()
    finally:
        served.process.kill()
        served.process.wait()


@pytest.mark.inventory("K-32")
def test_a_disk_below_the_reserve_refuses_submits_with_507_and_takes_acks(tmp_path: Path) -> None:
    call = one()
    with running(tmp_path) as served:
        served.post("/v1/producer/submit", call)
    with running(tmp_path, "--reserve-bytes", str(2**60)) as served:
        answer = served.post("/v1/producer/submit", one())
        assert answer.status == 507
        assert "free" in answer.body["error"]
        batch = served.post("/v1/producer/submit", {"invocations": [one(), one()]}).body["results"]
        assert [result["status"] for result in batch] == [507, 507]
        poll = {"worker_id": "w", "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 5}
        (command,) = served.post("/v1/daemon/poll", poll).body["commands"]
        run = command["body"]
        ack = {"invocation_id": run["invocation_id"], "claim": run["claim"], "state": "succeeded", "result_blob": b""}
        assert served.post("/v1/daemon/ack", ack).body["result"] == "ok"
