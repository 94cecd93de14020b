"""Releases that daemons update to, target versions of namespaces, and the order to update, at a real server."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from served import ADMIN, JSON, Answer, Served, environment, new_id, running
from signer import Signer

from lakeshore import __version__

RELEASES = "/v1/admin/nymph-releases"
OCTETS = "application/octet-stream"


def push(server: Served, data: bytes, query: str = "", **headers: str) -> Answer:
    given = {"Content-Type": OCTETS, "Accept": JSON, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return server.raw("POST", f"{RELEASES}{query}", data, given)


def archive(version: str) -> bytes:
    """A file such as ours, as far as its version goes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("lakeshore/_version.py", f'"""It."""\n\n__version__ = "{version}"\n')
        made.writestr("salt", os.urandom(16))
    return b"#!/usr/bin/env python3\n" + file.getvalue()


def namespace(server: Served) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    return name


def worker(server: Served, ns: str) -> Signer:
    """One that said hello with the operator's bearer."""
    daemon = Signer(server)
    body = {key: said for key, said in daemon.hello_body().items() if key != "public_key"}
    daemon.worker_id = server.post("/v1/daemon/hello", body, X_LS_Namespace=ns).body["worker_id"]
    return daemon


def polled(server: Served, daemon: Signer, ns: str) -> Any:
    return server.post("/v1/daemon/poll", daemon.poll_body(), X_LS_Namespace=ns).body


@pytest.mark.inventory("S-682", "S-683", "S-804")
@pytest.mark.inventory("S-720", "S-622")
def test_a_release_is_what_its_bytes_are(secured_server: Served) -> None:
    data = archive("7.1.0")
    digest = hashlib.sha256(data).hexdigest()
    pushed = push(secured_server, data, "?label=nymph&target=x86_64-unknown-linux-gnu")
    assert pushed.status == 201, pushed.body
    assert {**pushed.body, "createdAt": ""} == {
        "sha256": digest,
        "label": "nymph",
        "target": "x86_64-unknown-linux-gnu",
        "version": "7.1.0",
        "bytes": len(data),
        "url": f"{RELEASES}/{digest}",
        "full_url": None,
        "createdAt": "",
    }
    file = secured_server.state_dir / "releases" / digest
    assert file.read_bytes() == data and file.stat().st_mode & 0o777 == 0o600


@pytest.mark.inventory("S-684", "S-685", "S-647")
@pytest.mark.inventory("S-622")
def test_the_same_content_again_is_the_same_release_under_its_latest_name(secured_server: Served) -> None:
    data = archive("7.2.0")
    assert push(secured_server, data, "?label=one").status == 201
    again = push(secured_server, data, "?label=two")
    assert (again.status, again.body["label"], again.body["target"]) == (200, "two", "any")
    rows = [row for row in secured_server.get(RELEASES).body["releases"] if row["sha256"] == again.body["sha256"]]
    assert [row["label"] for row in rows] == ["two"]


@pytest.mark.inventory("S-687", "S-819", "C-491")
@pytest.mark.inventory("S-720")
def test_whoever_has_a_credential_of_the_server_fetches_a_release(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    data = archive("7.3.0")
    url = push(server, data).body["url"]
    minted = server.post(f"/v1/namespaces/{ns}/enroll-tokens", {"label": "x"}, encoding=JSON).body
    daemon = Signer(server)
    assert daemon.hello(minted["plaintext"]).body["reject"] is None
    body = {"name": "d", "scope": "daemon"}
    token = server.post(f"/v1/namespaces/{ns}/tokens", body, encoding=JSON).body["plaintext"]
    signed = daemon.send(url, method="GET")
    for answer in (server.get(url), server.get(url, token=token), signed):
        assert (answer.status, answer.raw) == (200, data)
        assert answer.headers["x-content-type-options"] == "nosniff"
    part = server.get(url, Range="bytes=2-5")
    assert (part.status, part.raw) == (206, data[2:6])
    assert server.get(url, token="").status == 401
    sidecar = server.get(f"{RELEASES}/7.3.0.sha256", token=token)
    assert sidecar.raw.split() == [hashlib.sha256(data).hexdigest().encode(), b"nymph"]
    assert server.get(f"{RELEASES}/7.3.0").raw == data
    assert server.get(f"{RELEASES}/7.9.9").status == 404


@pytest.mark.parametrize(
    ("query", "data", "headers", "status", "field"),
    [
        ("?sha256=" + "0" * 64, b"x", {}, 422, "sha256"),
        ("?sha256=12", b"x", {}, 422, "sha256"),
        ("?label=no/path", b"x", {}, 422, "label"),
        ("?version=../../x", b"x", {}, 422, "version"),
        ("", b"", {}, 422, "body"),
        ("", b"{}", {"Content_Type": JSON}, 415, None),
    ],
)
def test_what_is_no_release_is_refused_and_leaves_no_file(
    secured_server: Served, query: str, data: bytes, headers: dict[str, str], status: int, field: str | None
) -> None:
    root = secured_server.state_dir / "releases"
    before = set(root.glob("*"))
    answer = push(secured_server, data, query, **headers)
    assert (answer.status, answer.body.get("field")) == (status, field)
    assert set(root.glob("*")) == before


def test_the_version_is_read_from_our_own_archive_and_said_by_hand_for_others(secured_server: Served) -> None:
    assert push(secured_server, os.urandom(100)).body["version"] is None
    assert push(secured_server, os.urandom(100), "?version=8.0.1").body["version"] == "8.0.1"
    assert push(secured_server, archive(__version__)).body["version"] == __version__


@pytest.mark.inventory("S-317", "S-420", "S-553")
@pytest.mark.inventory("S-715")
def test_a_polls_answer_tells_the_namespaces_target_while_it_has_one(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    daemon, path = worker(server, ns), f"/v1/namespaces/{ns}/nymph-target"
    assert server.get(path).body == {"namespace": ns, "version": None, "release": None}
    assert "target_nymph_version" not in polled(server, daemon, ns)
    assert server.call("PUT", path, {"version": "0.1.10"}, encoding=JSON).body["version"] == "0.1.10"
    assert polled(server, daemon, ns)["target_nymph_version"] == "0.1.10"
    assert server.call("PUT", path, {"version": "no version"}, encoding=JSON).status == 422
    assert server.call("DELETE", path).body["version"] is None
    assert "target_nymph_version" not in polled(server, daemon, ns)


@pytest.mark.inventory("S-316", "S-433")
def test_an_update_is_the_release_of_the_target_unless_another_is_named(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    daemon = worker(server, ns)
    path, target = f"/v1/namespaces/{ns}/workers/{daemon.worker_id}/update", f"/v1/namespaces/{ns}/nymph-target"
    missing = server.post(path, {}, encoding=JSON)
    assert (missing.status, missing.body["field"]) == (422, "version")
    version, other = f"9.0.{os.getpid()}", f"9.1.{os.getpid()}"
    release, second = (push(server, archive(name)).body for name in (version, other))
    assert server.call("PUT", target, {"version": version}, encoding=JSON).body["release"] == release
    assert server.post(path, {"version": f"9.2.{os.getpid()}"}, encoding=JSON).status == 422
    given = server.post(path, {}, encoding=JSON)
    assert given.status == 200, given.body
    expected = {"version": version, "url": release["url"], "sha256": release["sha256"]}
    (command,) = polled(server, daemon, ns)["commands"]
    assert (command["id"], command["kind"], command["body"]) == (given.body["order"], "ota_update", expected)
    assert server.post(path, {"version": other}, encoding=JSON).body["sha256"] == second["sha256"]
    digest = "a" * 64
    custom = server.post(path, {"url": "https://example.org/nymph", "sha256": digest}, encoding=JSON).body
    assert (custom["version"], custom["sha256"]) == (digest[:12], digest)
    assert server.post(path, {"url": "https://example.org/nymph"}, encoding=JSON).body["field"] == "sha256"
    assert server.post(path, {"url": "file:///etc/passwd", "sha256": digest}, encoding=JSON).body["field"] == "url"
    own = server.post(path, {"url": server.url + second["url"]}, encoding=JSON).body
    assert (own["version"], own["sha256"]) == (other, second["sha256"])
    unknown = path.replace(daemon.worker_id, "0" * 24)
    assert server.post(unknown, {"version": version}, encoding=JSON).status == 404


def test_a_copy_of_the_state_has_the_releases_and_says_when_one_is_damaged(
    secured_server: Served, tmp_path: Path
) -> None:
    digest = push(secured_server, archive("7.4.0")).body["sha256"]

    def lakeshore(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lakeshore", *arguments]
        return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)

    copy = tmp_path / "copy"
    made = lakeshore("backup", "--state-dir", str(secured_server.state_dir), str(copy))
    assert made.returncode == 0, made.stderr
    file = copy / "releases" / digest
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    file.write_bytes(b"other")
    restored = lakeshore("restore", str(copy), "--state-dir", str(tmp_path / "again"))
    assert restored.returncode == 1 and digest in restored.stderr, restored.stderr


def test_the_address_that_others_know_is_part_of_a_release(tmp_path: Path) -> None:
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "LAKESHORE_PUBLIC_URL": "https://lakes.example/"}
    with running(tmp_path, env=env, token=ADMIN) as server:
        row = push(server, archive("7.5.0")).body
        assert row["full_url"] == f"https://lakes.example{row['url']}"
