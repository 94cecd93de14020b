"""Daemons' identities at a real server: enrolment, signed requests, keys. A second implementation signs."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from served import ADMIN, JSON, Served, new_id, one, running
from signer import HELLO, KEYS, POLL, Signer, text

from lakeshore.cli.main import main
from lakeshore.net.target import parse_target
from lakeshore.nymph.identity import Identity, KeyFile
from lakeshore.nymph.transport import Transport
from lakeshore.server.identity import worker_id_of

SECURED = {"LAKESHORE_ADMIN_TOKEN": ADMIN}
OVERLAP_S = 5
"""Long enough for the four requests that are made within it."""
SIGNATURE = ("X_LS_Key_Id", "X_LS_Timestamp", "X_LS_Nonce", "X_LS_Signature")


def namespace(server: Served) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    return name


def enroll_token(server: Served, ns: str = "default", **more: Any) -> dict[str, Any]:
    answer = server.post(f"/v1/namespaces/{ns}/enroll-tokens", {"label": "rig", **more}, encoding=JSON)
    assert answer.status == 201, answer.body
    row: dict[str, Any] = answer.body
    return row


def enrolled(server: Served, ns: str = "default", label: str = "rig") -> Signer:
    daemon = Signer(server, label)
    answer = daemon.hello(enroll_token(server, ns)["plaintext"])
    assert answer.body["reject"] is None, answer.body
    return daemon


def keys(server: Served, daemon: Signer, ns: str = "default") -> dict[str, dict[str, Any]]:
    rows = server.get(f"/v1/namespaces/{ns}/workers/{daemon.worker_id}/keys").body["keys"]
    return {row["keyId"]: row for row in rows}


def tokens(server: Served, ns: str) -> dict[str, dict[str, Any]]:
    rows = server.get(f"/v1/namespaces/{ns}/enroll-tokens").body["enrollTokens"]
    return {row["id"]: row for row in rows}


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status, answer.body.get("error", "")


@pytest.fixture(scope="module")
def daemon(secured_server: Served) -> Signer:
    return enrolled(secured_server)


# --- enroll tokens


@pytest.mark.inventory("S-084", "S-085", "S-086")
def test_an_enroll_token_is_shown_once_and_burnt_for_good(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    minted = enroll_token(server, ns, ttl_s=60)
    assert set(minted) >= {"id", "label", "prefix", "plaintext", "expiresAt", "createdAt"}
    assert minted["plaintext"].startswith("dle_") and len(minted["plaintext"]) == 4 + 43
    assert minted["prefix"] == minted["plaintext"][:8]
    row = tokens(server, ns)[minted["id"]]
    assert "plaintext" not in row and row["spent"] is False and row["consumedAt"] is None
    burnt = server.call("DELETE", f"/v1/namespaces/{ns}/enroll-tokens/{minted['id']}")
    assert (burnt.status, burnt.body["spent"]) == (200, True)
    again = server.call("DELETE", f"/v1/namespaces/{ns}/enroll-tokens/{minted['id']}")
    assert again.body["consumedAt"] == burnt.body["consumedAt"]
    assert tokens(server, ns)[minted["id"]]["consumedByWorkerId"] is None
    assert Signer(server).hello(minted["plaintext"]).body["reject"]["code"] == "enroll_token_consumed"
    kept = b"".join(path.read_bytes() for path in server.state_dir.glob("records.db*"))
    assert minted["plaintext"].encode() not in kept and minted["prefix"].encode() in kept


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"label": "no spaces"}, "label"),
        ({}, "label"),
        ({"label": "x", "ttl_s": 30 * 86400 + 1}, "ttl_s"),
        ({"label": "x", "ttl_s": 0}, "ttl_s"),
        ({"label": "x", "ttl_s": True}, "ttl_s"),
    ],
)
def test_what_no_enroll_token_can_be_is_refused_by_field(
    secured_server: Served, body: dict[str, Any], field: str
) -> None:
    answer = secured_server.post("/v1/namespaces/default/enroll-tokens", body, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (422, field)


# --- enrolment


@pytest.mark.inventory("S-390", "S-406", "S-408")
@pytest.mark.inventory("S-306", "C-1461")
def test_a_hello_with_a_key_and_an_enroll_token_enrols_it(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    minted, daemon = enroll_token(server, ns), Signer(secured_server)
    answer = daemon.hello(minted["plaintext"])
    told = answer.body
    assert (told["reject"], told["key_id"], told["key_rotation_max_age_s"]) == (None, daemon.key_id, 2_592_000)
    row = keys(server, daemon, ns)[daemon.key_id]
    assert (row["status"], row["publicKey"], row["retiringAt"]) == ("active", text(daemon.public), None)
    named = {"keyId", "status", "createdAt", "retiringAt", "revokedAt", "expiresAt", "publicKey"}
    assert named <= set(row)
    lasts = _seconds(row["expiresAt"]) - _seconds(row["createdAt"])
    assert lasts == pytest.approx(2_592_000, abs=1)
    spent = tokens(server, ns)[minted["id"]]
    assert (spent["spent"], spent["consumedByWorkerId"]) == (True, daemon.worker_id)
    again = daemon.hello(minted["plaintext"])  # its answer was lost, say: the key is known, no token is needed
    assert (again.body["reject"], again.body["worker_id"]) == (None, told["worker_id"])
    assert daemon.hello().body["key_id"] == daemon.key_id


@pytest.mark.inventory("S-393", "S-089", "C-1415")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("enroll_token_required", marks=pytest.mark.inventory("S-395")),
        pytest.param("invalid_enroll_token", marks=pytest.mark.inventory("S-396")),
        pytest.param("enroll_token_consumed", marks=pytest.mark.inventory("S-397")),
        pytest.param("enroll_token_expired", marks=pytest.mark.inventory("S-398")),
        pytest.param("enroll_signature_required", marks=pytest.mark.inventory("S-399")),
        pytest.param("key_id_mismatch", marks=pytest.mark.inventory("S-400", "S-405")),
        pytest.param("enroll_signature_invalid", marks=pytest.mark.inventory("S-401", "S-407")),
        pytest.param("protocol_mismatch", marks=pytest.mark.inventory("S-394")),
    ],
)
def test_a_refused_enrolment_is_a_200_that_says_why_and_spends_no_token(secured_server: Served, code: str) -> None:
    server, daemon, other = secured_server, Signer(secured_server), Signer(secured_server)
    good = enroll_token(server, ttl_s=0.01 if code == "enroll_token_expired" else 60)
    if code == "enroll_token_required":
        answer = daemon.hello()
    elif code == "invalid_enroll_token":
        answer = daemon.hello("dle_" + "x" * 43)
    elif code == "enroll_token_consumed":
        assert other.hello(good["plaintext"]).body["reject"] is None
        answer = daemon.hello(good["plaintext"])
    elif code == "enroll_token_expired":
        _until(lambda: time.time() > _seconds(good["expiresAt"]) + 0.01)
        answer = daemon.hello(good["plaintext"])
    elif code == "enroll_signature_required":
        answer = daemon.hello(good["plaintext"], **dict.fromkeys(SIGNATURE))
    elif code == "key_id_mismatch":
        answer = daemon.hello(good["plaintext"], X_LS_Key_Id=other.key_id)
    elif code == "enroll_signature_invalid":  # signed by another worker id than the machine's
        answer = daemon.send("/v1/daemon/hello", daemon.hello_body(), bearer=good["plaintext"], who="somebody")
    else:
        body = daemon.hello_body(versions={"protocol": "2", "daemon": "9"})
        answer = daemon.send("/v1/daemon/hello", body, bearer=good["plaintext"], who=daemon.machine_id)
    assert (answer.status, answer.body["reject"]["code"]) == (200, code), answer.body
    assert answer.headers["x-ls-reject"] == code
    assert answer.body["worker_id"] is None
    if code not in ("enroll_token_consumed", "enroll_token_expired"):
        assert tokens(server, "default")[good["id"]]["spent"] is False
        assert daemon.hello(good["plaintext"]).body["reject"] is None


@pytest.mark.inventory("S-381", "S-403")
def test_a_public_key_of_another_length_is_a_wrong_field(secured_server: Served) -> None:
    daemon, minted = Signer(secured_server), enroll_token(secured_server)
    body = daemon.hello_body(public_key=text(b"x" * 31))
    answer = daemon.send("/v1/daemon/hello", body, bearer=minted["plaintext"], who=daemon.machine_id)
    assert (answer.status, answer.body["field"]) == (422, "public_key")
    assert tokens(secured_server, "default")[minted["id"]]["spent"] is False


@pytest.mark.inventory("S-401")
def test_a_hello_of_a_wrong_clock_is_told_the_servers_time(secured_server: Served) -> None:
    daemon, minted = Signer(secured_server), enroll_token(secured_server)
    answer = daemon.hello(minted["plaintext"], at=time.time() - 3600)
    assert answer.body["reject"]["code"] == "enroll_signature_invalid"
    assert "skew" in answer.body["reject"]["message"]
    assert abs(answer.body["server_time_epoch_s"] - time.time()) < 60


@pytest.mark.inventory("S-481", "S-815")
def test_a_request_is_taken_once(daemon: Signer) -> None:
    assert daemon.poll().status == 200
    assert refusal(daemon.again()) == (401, "replayed nonce")
    assert daemon.poll().status == 200


def test_a_hello_is_taken_once(secured_server: Served) -> None:
    daemon = Signer(secured_server)
    assert daemon.hello(enroll_token(secured_server)["plaintext"]).body["reject"] is None
    assert daemon.again().body["reject"] == {"code": "enroll_signature_invalid", "message": "replayed nonce"}


@pytest.mark.inventory("S-404")
def test_an_enroll_token_without_a_key_admits_nobody(secured_server: Served) -> None:
    daemon, minted = Signer(secured_server), enroll_token(secured_server)
    body = daemon.hello_body()
    del body["public_key"]
    answer = secured_server.post("/v1/daemon/hello", body, token=minted["plaintext"])
    assert answer.body["reject"]["code"] == "enroll_signature_required"
    assert tokens(secured_server, "default")[minted["id"]]["spent"] is False


@pytest.mark.inventory("S-087", "S-397")
def test_of_two_enrolments_with_one_token_one_wins_and_the_other_stores_no_key(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    for _ in range(5):
        minted = enroll_token(server, ns)
        rivals = [Signer(server) for _ in range(4)]
        gate = threading.Barrier(len(rivals))

        def enrol(rival: Signer, gate: threading.Barrier, bearer: str) -> tuple[Signer, Any]:
            gate.wait()
            return rival, rival.hello(bearer).body

        with ThreadPoolExecutor(len(rivals)) as pool:
            said = list(pool.map(lambda rival: enrol(rival, gate, minted["plaintext"]), rivals))  # noqa: B023
        won = [daemon for daemon, body in said if body["reject"] is None]
        lost = [body["reject"]["code"] for _daemon, body in said if body["reject"] is not None]
        assert (len(won), lost) == (1, ["enroll_token_consumed"] * 3)
        row = tokens(server, ns)[minted["id"]]
        assert row["consumedByWorkerId"] == won[0].worker_id
    with closing(sqlite3.connect(server.state_dir / "records.db")) as conn, conn:
        assert conn.execute("SELECT COUNT(*) FROM daemon_key WHERE ns = ?", (ns,)).fetchone() == (5,)


@pytest.mark.inventory("S-088", "S-409")
def test_the_namespace_of_a_daemon_is_its_tokens_and_then_its_keys(secured_server: Served) -> None:
    server, ns, other = secured_server, namespace(secured_server), namespace(secured_server)
    daemon, minted = Signer(server), enroll_token(server, ns)
    elsewhere = daemon.hello(minted["plaintext"], X_LS_Namespace=other)
    assert elsewhere.body["reject"]["code"] == "invalid_enroll_token"
    assert daemon.hello(minted["plaintext"]).body["reject"] is None
    assert server.get(f"/v1/namespaces/{other}/workers/{daemon.worker_id}/keys").status == 404
    assert list(keys(server, daemon, ns)) == [daemon.key_id]
    known = daemon.worker_id
    assert daemon.hello().body["worker_id"] == known  # no bearer at all: the key says where it belongs
    job = one(queue="default")
    assert server.post("/v1/producer/submit", job, X_LS_Namespace=ns).status == 200
    (command,) = daemon.poll().body["commands"]
    assert command["body"]["invocation_id"] == job["invocation_id"]
    assert refusal(daemon.poll(X_LS_Namespace=other))[0] == 403


@pytest.mark.inventory("S-411")
def test_a_label_more_is_a_worker_more_with_a_key_of_its_own(secured_server: Served, daemon: Signer) -> None:
    twin = Signer(secured_server, label=f"twin-{new_id()}")
    twin.machine_id, twin.key = daemon.machine_id, daemon.key
    assert twin.hello().body["reject"]["code"] == "enroll_token_required"
    assert twin.hello(enroll_token(secured_server)["plaintext"]).body["reject"] is None
    assert twin.worker_id != daemon.worker_id
    assert twin.poll().status == daemon.poll().status == 200


# --- signed requests


@pytest.mark.inventory("C-1475")
def test_a_signature_is_no_must_and_daemon_show_says_whether_the_last_poll_had_one(
    secured_server: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ns = namespace(secured_server)
    daemon = enrolled(secured_server, ns)
    unsigned = {key: said for key, said in Signer(secured_server, "plain").hello_body().items() if key != "public_key"}
    plain = secured_server.post(HELLO, unsigned, X_LS_Namespace=ns).body["worker_id"]

    def signed(worker: str) -> str:
        given = {"LAKESHORE_URL": secured_server.url, "LAKESHORE_CLIENT_TOKEN": ADMIN, "LAKESHORE_NAMESPACE": ns}
        for name, value in {**given, "XDG_CONFIG_HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        assert main(["daemon", "show", worker]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("lastPollSigned ")]
        return line.split()[1]

    assert signed(daemon.worker_id) == "—"
    assert daemon.poll().status == 200
    assert secured_server.post(POLL, {"worker_id": plain, "timeout_s": 0}, X_LS_Namespace=ns).status == 200
    assert (signed(daemon.worker_id), signed(plain)) == ("yes", "no")


@pytest.mark.inventory("S-757", "S-039")
def test_requests_without_a_signature_are_let_in_counted_and_logged(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    daemon = enrolled(server, ns)
    unsigned = {key: said for key, said in Signer(server, "plain").hello_body().items() if key != "public_key"}
    plain = server.post(HELLO, unsigned, X_LS_Namespace=ns).body["worker_id"]

    def shown(worker: str) -> tuple[str | None, int]:
        row = server.get(f"/v1/namespaces/{ns}/workers/{worker}").body
        return row["authMode"], row["unsignedRequests"]

    assert shown(daemon.worker_id) == shown(plain) == (None, 0)
    for _ in range(2):
        assert daemon.poll().status == 200
        assert server.post(POLL, {"worker_id": plain, "timeout_s": 0}, X_LS_Namespace=ns).status == 200
    ack = {"worker_id": plain, "invocation_id": new_id(), "state": "succeeded", "claim": 1}
    server.post("/v1/daemon/ack", ack, X_LS_Namespace=ns)
    assert shown(daemon.worker_id) == ("daemon-sig", 0)
    assert shown(plain) == ("daemon-bearer", 3)
    assert server.post(POLL, {"worker_id": daemon.worker_id, "timeout_s": 0}, X_LS_Namespace=ns).status == 200
    assert shown(daemon.worker_id) == ("daemon-bearer", 1), "its key does not keep a bearer out"
    said = server.said()
    for worker in (plain, daemon.worker_id):
        assert said.count(f"worker {worker} of {ns} signs nothing: daemon-bearer") == 1, "once, not at each poll"


@pytest.mark.inventory("S-473", "S-466", "S-471")
@pytest.mark.inventory("S-412", "S-443")
@pytest.mark.inventory("S-832")
def test_what_is_signed_needs_no_bearer(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    daemon = enrolled(server, ns)
    job = one(queue="default")
    assert server.post("/v1/producer/submit", job, X_LS_Namespace=ns).status == 200
    answer = daemon.poll()
    assert answer.status == 200, answer.body
    (command,) = answer.body["commands"]
    ref = {"invocation_id": job["invocation_id"], "claim": command["body"]["claim"]}
    held = [[ref["invocation_id"], ref["claim"], True]]
    assert daemon.send(POLL, daemon.poll_body(held=held)).status == 200
    frame = {**ref, "seq": 0, "bytes": b"\x94\x00\x00\xc0\xc0", "final": False}
    assert daemon.send("/v1/daemon/result-chunk", frame).status == 200
    query = f"?invocation_id={ref['invocation_id']}&claim={ref['claim']}&attempt=1&stream=stdout&offset=0"
    printed = daemon.send(f"/v1/daemon/log-chunk{query}", b"hi", Content_Type="application/octet-stream")
    assert printed.status == 200, printed.body
    put = {"op": "put", "size": 9, "jobId": job["invocation_id"], "kind": "result"}
    assert daemon.send(f"/v1/namespaces/{ns}/payloads/presign", put).status == 200
    assert daemon.send("/v1/namespaces/default/payloads/presign", put).status == 403
    assert daemon.send(f"/v1/namespaces/{ns}/whoami", method="GET").body["authMode"] == "daemon-sig"
    done = daemon.send("/v1/daemon/ack", {**ref, "state": "succeeded", "result_blob": b"\xa2ok", "last_seq": 0})
    assert done.body["result"] == "ok", done.body


@pytest.mark.inventory("S-041")
def test_a_signature_opens_a_daemons_routes_and_no_others(secured_server: Served, daemon: Signer) -> None:
    for method, path in (
        ("POST", "/v1/producer/submit"),
        ("GET", "/v1/namespaces/default/tokens"),
        ("GET", "/v1/admin/namespaces"),
        ("POST", "/v1/admin/nymph-releases"),
    ):
        assert daemon.send(path, {} if method == "POST" else None, method=method).status == 401, path


REFUSED: dict[str, tuple[int, str, dict[str, Any]]] = {
    "another worker's": (401, "unknown daemon key", {"X_LS_Worker_Id": "0" * 24}),
    "an unknown key": (401, "unknown daemon key", {"X_LS_Key_Id": "A" * 16}),
    "a clock behind": (401, "timestamp outside skew window", {"at": -301}),
    "a clock ahead": (401, "timestamp outside skew window", {"at": 301}),
    "no number": (401, "timestamp outside skew window", {"X_LS_Timestamp": "soon"}),
    "milliseconds": (401, "timestamp outside skew window", {"X_LS_Timestamp": "1700000000000"}),
    "another signature": (401, "signature verification failed", {"X_LS_Signature": text(b"\0" * 64)}),
    "another time": (401, "signature verification failed", {"says": 9}),
    "another nonce": (401, "signature verification failed", {"X_LS_Nonce": text(b"\0" * 16)}),
    "a short nonce": (401, "signature verification failed", {"X_LS_Nonce": "AAAA"}),
    **{f"without {name}": (401, "incomplete signature headers", {name: None}) for name in SIGNATURE},
}


@pytest.mark.inventory("S-475", "S-476", "S-480")
@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("path", [POLL, "/v1/daemon/ack", "/v1/daemon/event", KEYS])
def test_what_is_not_signed_as_it_should_be_is_refused_in_the_documented_words(
    daemon: Signer, path: str, why: str
) -> None:
    status, error, changed = REFUSED[why]
    given = dict(changed)
    if "at" in given:
        given["at"] = time.time() + given["at"]
    if "says" in given:
        given["X_LS_Timestamp"] = str(int(time.time()) + given.pop("says"))
    body = daemon.poll_body(public_key="A", invocation_id=new_id(), state="failed")
    answer = daemon.send(path, body, bearer=ADMIN, **given)  # a good bearer beside it changes nothing
    assert refusal(answer) == (status, error)
    if error.startswith("timestamp"):
        assert abs(answer.body["server_time_epoch_s"] - time.time()) < 60


@pytest.mark.inventory("S-479", "S-493")
def test_a_clock_within_the_skew_is_let_in(daemon: Signer) -> None:
    for at in (-290, 290):
        assert daemon.poll(at=time.time() + at).status == 200


@pytest.mark.inventory("S-466")
@pytest.mark.inventory("S-011")
def test_a_changed_body_or_route_is_not_what_was_signed(secured_server: Served, daemon: Signer) -> None:
    daemon.poll()
    method, path, data, headers = daemon.last
    fresh = daemon.headers(method, path, data)
    other = data.replace(b"timeout_s", b"timeout_z")
    assert refusal(secured_server.raw(method, path, other, headers | fresh)) == (401, "signature verification failed")
    fresh = daemon.headers(method, path, data)
    moved = secured_server.raw(method, "/v1/daemon/ack", data, headers | fresh)
    assert refusal(moved) == (401, "signature verification failed")
    spaced = json.dumps(daemon.poll_body(), indent=3).encode()
    as_json = headers | {"Content-Type": "application/json"}
    named = {"X-LS-Worker-Id": daemon.worker_id}
    fresh = daemon.headers(method, path, spaced)
    tight = json.dumps(json.loads(spaced)).encode()
    assert secured_server.raw(method, path, tight, as_json | named | fresh).status == 401, "the bytes are signed"
    fresh = daemon.headers(method, path, spaced)
    assert secured_server.raw(method, path, spaced, as_json | named | fresh).status == 200


@pytest.mark.inventory("S-817")
def test_a_signature_speaks_for_its_own_worker_alone(secured_server: Served, daemon: Signer) -> None:
    body = {**daemon.poll_body(), "worker_id": "0" * 24}
    assert refusal(daemon.send(POLL, body)) == (401, "unknown daemon key")
    answer = daemon.send(POLL, body, X_LS_Worker_Id=daemon.worker_id)
    assert refusal(answer) == (403, "this signature is bound to another worker")


@pytest.mark.inventory("S-474", "S-484")
def test_without_any_of_the_headers_the_bearer_counts(secured_server: Served, daemon: Signer) -> None:
    body = daemon.poll_body()
    assert secured_server.post(POLL, body).status == 200
    assert refusal(secured_server.post(POLL, body, token="")) == (401, "missing bearer token")


@pytest.mark.inventory("S-485", "S-453")
def test_a_new_key_is_never_taken_on_a_bearers_word(secured_server: Served, daemon: Signer) -> None:
    body = {"worker_id": daemon.worker_id, "public_key": text(Signer(secured_server).public)}
    answer = secured_server.post(KEYS, body)
    assert refusal(answer) == (401, "this server takes signed requests only")


def test_in_open_mode_a_key_is_worth_the_same(server: Served) -> None:
    ns = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201
    daemon = enrolled(server, ns)
    assert daemon.hello().body["key_id"] == daemon.key_id
    assert daemon.poll().status == 200
    assert refusal(daemon.poll(X_LS_Signature=text(b"x" * 64))) == (401, "signature verification failed")
    assert Signer(server).hello().body["reject"]["code"] == "enroll_token_required"


# --- the bearer of a daemon


@pytest.mark.inventory("S-382")
def test_a_token_of_scope_daemon_belongs_to_the_worker_that_says_hello_first(secured_server: Served) -> None:
    server = secured_server
    minted = server.post(
        "/v1/namespaces/default/tokens", {"name": f"d-{new_id()}", "scope": "daemon"}, encoding=JSON
    ).body
    assert minted["workerId"] is None
    one, other = Signer(server), Signer(server)
    bodies = [{k: v for k, v in who.hello_body().items() if k != "public_key"} for who in (one, other)]
    first = server.post("/v1/daemon/hello", bodies[0], token=minted["plaintext"])
    assert first.status == 200
    assert refusal(server.post("/v1/daemon/hello", bodies[1], token=minted["plaintext"]))[0] == 403
    assert server.post("/v1/daemon/hello", bodies[0], token=minted["plaintext"]).status == 200
    poll = {"worker_id": "0" * 24, "session": "s", "n": 1, "timeout_s": 0}
    assert refusal(server.post(POLL, poll, token=minted["plaintext"]))[0] == 403
    (row,) = (t for t in server.get("/v1/namespaces/default/tokens").body["tokens"] if t["id"] == minted["id"])
    assert row["workerId"] == first.body["worker_id"]


# --- a whole life


@pytest.mark.inventory("S-489", "S-494", "S-482")
@pytest.mark.inventory("S-441")
def test_a_daemon_enrols_polls_and_rotates_its_key_over_restarts_of_the_server(tmp_path: Path) -> None:
    with running(tmp_path, env=SECURED, token=ADMIN) as server:
        daemon = enrolled(server)
        assert daemon.poll().body["commands"] == []
        assert refusal(daemon.again()) == (401, "replayed nonce")
        server.process.kill()
        server.process.wait()
    _age(tmp_path / "state" / "records.db", 3600 - OVERLAP_S)
    rotating = {"LAKESHORE_DAEMON_KEY_MAX_AGE_S": "3600", "LAKESHORE_DAEMON_KEY_OVERLAP_S": f"{OVERLAP_S}"}
    with running(tmp_path, env=SECURED | rotating, token=ADMIN) as server:
        daemon.server = server
        assert refusal(daemon.again()) == (401, "replayed nonce")  # the server was killed in between
        _is_told_to_rotate(daemon)
        _rotates(server, daemon)


def _is_told_to_rotate(daemon: Signer) -> None:
    before = int(time.time())
    (command,) = daemon.poll().body["commands"]
    assert command["id"].startswith("cmd-rotate_key-") and int(command["id"].rpartition("-")[2]) >= before
    assert command["kind"] == "rotate_key"
    deadline = command["body"].pop("deadline_epoch_s")
    assert command["body"] == {"reason": "max_age_exceeded", "key_id": daemon.key_id}
    assert before + OVERLAP_S <= deadline <= time.time() + OVERLAP_S


def _rotates(server: Served, daemon: Signer) -> None:
    same = daemon.send(KEYS, {"worker_id": daemon.worker_id, "public_key": text(daemon.public)})
    assert refusal(same) == (422, "new key must differ from the current key")
    old_key, old_id, polls = daemon.key, daemon.key_id, daemon.n
    fresh = Signer(server)
    body = {"worker_id": daemon.worker_id, "public_key": text(fresh.public)}
    answer = daemon.send(KEYS, body)
    assert answer.status == 200, answer.body
    assert [answer.body[key] for key in ("key_id", "status", "overlap_s")] == [fresh.key_id, "active", OVERLAP_S]
    assert answer.body["expires_at"] == pytest.approx(time.time() + 3600, abs=60)
    repeated = daemon.send(KEYS, body)  # the first answer was lost, say
    assert {**repeated.body, "server_time_epoch_s": 0} == {**answer.body, "server_time_epoch_s": 0}
    rows = keys(server, daemon)
    assert (rows[old_id]["status"], rows[fresh.key_id]["status"]) == ("retiring", "active")
    overlap_s = _seconds(rows[old_id]["revokedAt"]) - _seconds(rows[old_id]["retiringAt"])
    assert overlap_s == pytest.approx(OVERLAP_S, abs=0.01)
    assert daemon.poll().body["commands"] == []  # the old key, in its overlap, is told nothing more
    daemon.key = fresh.key
    assert daemon.poll().status == 200
    _until(lambda: time.time() > _seconds(rows[old_id]["revokedAt"]))
    assert daemon.poll().status == 200  # and reaps
    daemon.key, daemon.n = old_key, daemon.n + polls
    assert refusal(daemon.poll()) == (403, "daemon key revoked")
    with closing(sqlite3.connect(server.state_dir / "records.db")) as conn, conn:
        rows = dict(conn.execute("SELECT key_id, status FROM daemon_key").fetchall())
    assert rows == {old_id: "revoked", fresh.key_id: "active"}
    daemon.key = fresh.key


@pytest.mark.inventory("S-307", "S-477", "S-491")
def test_a_key_is_revoked_at_once_and_its_daemon_enrols_anew(secured_server: Served) -> None:
    server, daemon = secured_server, enrolled(secured_server)
    held: list[Any] = []
    body = daemon.poll_body(timeout_s=20)
    parked = threading.Thread(target=lambda: held.append(daemon.send(POLL, body)))
    parked.start()
    _until(lambda: b"lakeshore_parked_polls 1" in server.get("/metrics").raw)
    path = f"/v1/namespaces/default/workers/{daemon.worker_id}/keys/{daemon.key_id}/revoke"
    revoked = server.post(path, {}, encoding=JSON)
    assert (revoked.status, revoked.body["status"], revoked.body["alreadyRevoked"]) == (200, "revoked", False)
    parked.join(60)
    assert held and held[0].body["commands"] == []  # what it held open is answered at once
    again = server.post(path, {}, encoding=JSON)
    assert (again.body["alreadyRevoked"], again.body["revokedAt"]) == (True, revoked.body["revokedAt"])
    assert refusal(daemon.poll()) == (403, "daemon key revoked")
    assert daemon.hello().body["reject"]["code"] == "enroll_token_required"
    minted, was = enroll_token(server), daemon.worker_id
    assert daemon.hello(minted["plaintext"]).body["reject"]["code"] == "invalid_enroll_token"  # not that key again
    daemon.new_key()
    assert daemon.hello(minted["plaintext"]).body["reject"] is None
    assert daemon.worker_id == was
    assert daemon.poll().status == 200
    unknown = path.replace(daemon.worker_id, "0" * 24)
    assert server.post(unknown, {}, encoding=JSON).status == 404


@pytest.mark.inventory("S-483", "S-402", "S-818")
def test_a_server_that_requires_signatures_takes_tokens_of_workers_without_keys_alone(tmp_path: Path) -> None:
    required = {"LAKESHORE_REQUIRE_DAEMON_SIGNATURES": "true"}
    with running(tmp_path, env=SECURED | required, token=ADMIN) as server:
        _requires_signatures(server, enrolled(server))


def _requires_signatures(server: Served, daemon: Signer) -> None:
    assert daemon.poll().status == 200
    token = server.post("/v1/namespaces/default/tokens", {"name": "w", "scope": "worker"}, encoding=JSON).body
    for path in (POLL, "/v1/daemon/ack", "/v1/daemon/event"):
        unsigned = server.post(path, daemon.poll_body(), token=token["plaintext"])
        assert refusal(unsigned) == (401, "this server takes signed requests only")
    poll = {"worker_id": f"w-{new_id()}", "session": "01S", "n": 1, "timeout_s": 0}
    assert server.post(POLL, poll, token=token["plaintext"]).status == 200  # no daemon: it never had a key
    smuggled = {**poll, "n": 2, "acks": [{"invocation_id": new_id(), "state": "failed", "worker_id": daemon.worker_id}]}
    assert server.post(POLL, smuggled, token=token["plaintext"]).status == 401
    plain = {k: v for k, v in Signer(server).hello_body().items() if k != "public_key"}
    answer = server.post("/v1/daemon/hello", plain, token=token["plaintext"])
    assert answer.body["reject"]["code"] == "enrollment_signature_required"
    assert Signer(server).hello(enroll_token(server)["plaintext"]).body["reject"] is None


@pytest.mark.inventory("N-262", "N-264", "S-454")
def test_our_own_daemons_transport_enrols_signs_and_rotates(secured_server: Served, tmp_path: Path) -> None:
    server, ns = secured_server, namespace(secured_server)
    bearer = enroll_token(server, ns)["plaintext"]
    identity = Identity(KeyFile(tmp_path / "daemon.key"), server=server.url, enroll_token=bearer)
    machine = f"m-{new_id()}"
    first = identity.key_id
    body = {k: v for k, v in Signer(server).hello_body(machine_id=machine).items() if k != "public_key"}
    content = b"#!" + new_id().encode()
    release = server.raw(
        "POST", "/v1/admin/nymph-releases", content, {"Content-Type": "application/octet-stream", "Accept": JSON}
    )
    job = one(queue="default")
    assert server.post("/v1/producer/submit", job, X_LS_Namespace=ns).status == 200

    async def talk() -> None:
        line = Transport(parse_target(server.url), token=None, identity=identity, machine_id=machine)
        try:
            told = await line.hello(body)
            assert told["key_id"] == first
            poll = {"worker_id": told["worker_id"], "session": "01S", "n": 1, "timeout_s": 0}
            (command,) = (await line.post(POLL, poll))["commands"]
            query = {"invocation_id": job["invocation_id"], "claim": command["body"]["claim"], "attempt": 1}
            held = {**poll, "n": 2, "held": [[query["invocation_id"], query["claim"], True]]}
            await line.post(POLL, held)
            await line.post_bytes("/v1/daemon/log-chunk", b"hi", query={**query, "stream": "stdout", "offset": 0})
            assert await line.get(release.body["url"]) == content
            rotated = await line.post(KEYS, {"worker_id": told["worker_id"], "public_key": identity.begin_rotation()})
            identity.confirm_rotation(rotated["key_id"])
            await line.post(POLL, {**held, "n": 3})
        finally:
            line.close()

    trio.run(talk)
    assert identity.key_id != first
    worker_id = worker_id_of(ns, machine, "rig")
    rows = server.get(f"/v1/namespaces/{ns}/workers/{worker_id}/keys").body["keys"]
    assert [(row["keyId"], row["status"]) for row in rows] == [(first, "retiring"), (identity.key_id, "active")]


# --- what goes with a namespace


def test_a_namespace_that_is_deleted_takes_its_keys_and_enroll_tokens_along(secured_server: Served) -> None:
    server, ns = secured_server, namespace(secured_server)
    daemon, spare = enrolled(server, ns), enroll_token(server, ns)
    assert server.call("PUT", f"/v1/namespaces/{ns}/nymph-target", {"version": "1"}).status == 200
    assert server.call("DELETE", f"/v1/admin/namespaces/{ns}").status == 200
    assert refusal(daemon.poll()) == (401, "unknown daemon key")
    assert server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201
    assert tokens(server, ns) == {}
    assert daemon.hello().body["reject"]["code"] == "enroll_token_required"
    assert daemon.hello(spare["plaintext"]).body["reject"]["code"] == "invalid_enroll_token"
    assert server.get(f"/v1/namespaces/{ns}/nymph-target").body["version"] is None
    with closing(sqlite3.connect(server.state_dir / "records.db")) as conn, conn:
        for table in ("enroll_token", "daemon_key"):
            assert conn.execute(f"SELECT COUNT(*) FROM {table} WHERE ns = ?", (ns,)).fetchone() == (0,)


# --- helpers


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def _until(is_so: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _age(records: Path, seconds: float) -> None:
    """The keys of a server that is down were made so long ago."""
    with closing(sqlite3.connect(records)) as conn, conn:
        conn.execute("UPDATE daemon_key SET created_at = created_at - ?", (seconds,))
