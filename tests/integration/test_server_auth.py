"""Who may call what."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from served import ADMIN, JSON, Served, environment, new_id, one, running


def mint(server: Served, ns: str = "default", **more: object) -> str:
    answer = server.post(f"/v1/namespaces/{ns}/tokens", {"name": f"t-{new_id()}", **more}, encoding=JSON)
    assert answer.status == 201, answer.body
    return str(answer.body["plaintext"])


def namespace(server: Served, org: str | None = None) -> str:
    name = f"ns-{new_id()}"
    answer = server.post("/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON)
    assert answer.status == 201, answer.body
    return name


ROUTES = [
    ("POST", "/v1/producer/submit"),
    ("POST", "/v1/producer/await"),
    ("GET", "/v1/producer/queues"),
    ("GET", "/v1/producer/invocations/x/result/stream"),
    ("POST", "/v1/daemon/hello"),
    ("POST", "/v1/daemon/poll"),
    ("POST", "/v1/daemon/ack"),
    ("POST", "/v1/daemon/result-chunk"),
    ("POST", "/v1/namespaces/default/payloads/presign"),
    ("GET", "/v1/namespaces/default/invocations"),
    ("GET", "/v1/namespaces/default/whoami"),
    ("GET", "/v1/admin/namespaces"),
    ("GET", "/metrics"),
]


@pytest.mark.inventory("S-032", "S-754")
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_needs_a_bearer_once_there_is_an_admin_token(
    secured_server: Served, method: str, path: str
) -> None:
    answer = secured_server.call(method, path, {} if method == "POST" else None, token="")
    assert answer.status == 401
    assert answer.body["error"] == "missing bearer token"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.inventory("S-035", "S-045")
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_an_unknown_bearer_is_invalid_and_forbidden_at_the_admin_routes(
    secured_server: Served, method: str, path: str
) -> None:
    answer = secured_server.call(method, path, {} if method == "POST" else None, token="dlk_nonsense")
    if path.startswith("/v1/admin/"):
        assert (answer.status, answer.body["error"]) == (403, "this needs the admin token")
    else:
        assert (answer.status, answer.body["error"]) == (401, "invalid token")


@pytest.mark.inventory("S-015", "S-016")
def test_health_needs_no_bearer(secured_server: Served) -> None:
    assert secured_server.get("/healthz", token="").status == 200
    assert secured_server.get("/readyz", token="").status == 200


@pytest.mark.inventory("S-033")
def test_the_admin_token_of_the_environment_and_the_one_in_the_state_directory_reach_every_namespace(
    secured_server: Served,
) -> None:
    ns = namespace(secured_server)
    minted = (secured_server.state_dir / "admin.token").read_text().strip()
    for token in (ADMIN, minted):
        answer = secured_server.get(f"/v1/namespaces/{ns}/whoami", token=token)
        assert answer.body | {"orgId": None} == {
            "namespace": ns,
            "tokenPrefix": None,
            "tokenName": "<admin>",
            "lastUsedAt": None,
            "expiresAt": None,
            "authMode": "admin",
            "scope": "full",
            "orgId": None,
        }


@pytest.mark.inventory("S-053", "S-055", "S-080")
@pytest.mark.inventory("C-481", "C-1457")
def test_a_minted_token_is_shown_once_and_kept_as_a_hash(secured_server: Served) -> None:
    name = f"cli-{new_id()}"
    minted = secured_server.post("/v1/namespaces/default/tokens", {"name": name}, encoding=JSON).body
    assert re.fullmatch(r"dlk_[A-Za-z0-9_-]{43}", minted["plaintext"])
    assert minted["prefix"] == minted["plaintext"][:8]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", minted["createdAt"])
    listed = secured_server.get("/v1/namespaces/default/tokens").body["tokens"]
    assert [row["id"] for row in listed if row["name"] == name] == [minted["id"]]
    assert minted["plaintext"] not in str(listed)
    for file in secured_server.state_dir.rglob("*"):
        assert not file.is_file() or minted["plaintext"].encode() not in file.read_bytes(), file


@pytest.mark.inventory("S-077", "S-079")
def test_whoami_tells_a_tokens_holder_what_it_is(secured_server: Served) -> None:
    token = mint(secured_server)
    body = secured_server.get("/v1/namespaces/default/whoami", token=token).body
    assert body["authMode"] == "token"
    assert body["tokenPrefix"] == token[:8]
    assert body["lastUsedAt"].endswith("Z")


@pytest.mark.inventory("S-081", "S-652")
@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 65, 7, None])
def test_a_bad_token_name_is_refused_by_field(secured_server: Served, name: object) -> None:
    answer = secured_server.post("/v1/namespaces/default/tokens", {"name": name}, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (422, "name")


@pytest.mark.inventory("S-081")
def test_a_token_name_is_unique_in_its_namespace(secured_server: Served) -> None:
    body = {"name": f"t-{new_id()}"}
    assert secured_server.post("/v1/namespaces/default/tokens", body, encoding=JSON).status == 201
    assert secured_server.post("/v1/namespaces/default/tokens", body, encoding=JSON).status == 409
    ns = namespace(secured_server)
    assert secured_server.post(f"/v1/namespaces/{ns}/tokens", body, encoding=JSON).status == 201


@pytest.mark.inventory("S-557", "S-632")
def test_a_token_with_an_end_is_forbidden_from_then_on_wherever_it_was_let_in_before(secured_server: Served) -> None:
    body = {"name": f"t-{new_id()}", "ttl_s": 3.5}
    minted = secured_server.post("/v1/namespaces/default/tokens", body, encoding=JSON).body
    lasts = datetime.fromisoformat(minted["expiresAt"]) - datetime.fromisoformat(minted["createdAt"])
    assert lasts == timedelta(seconds=3.5)
    token, at = minted["plaintext"], "/v1/namespaces/default/whoami"
    with contextlib.closing(secured_server.connection()) as connection:
        headers, answers = {"Authorization": f"Bearer {token}"}, []
        deadline = time.monotonic() + 60
        while not answers or (answers[-1][0] == 200 and time.monotonic() < deadline):
            connection.request("GET", at, headers=headers)  # the same head on one connection: known without a look
            answer = connection.getresponse()
            answers.append((answer.status, json.loads(answer.read())))
            time.sleep(0.02)
    assert (answers[0][0], answers[0][1]["expiresAt"]) == (200, minted["expiresAt"])
    assert (answers[-1][0], answers[-1][1]["error"]) == (403, "token expired")
    assert "admin tokens create" in answers[-1][1]["hint"]
    other = secured_server.get(f"/v1/namespaces/{namespace(secured_server)}/whoami", token=token)
    assert (other.status, other.body["error"]) == (403, "token expired"), "and nothing is told of where it was good"
    listed = secured_server.get("/v1/namespaces/default/tokens").body["tokens"]
    assert next(row for row in listed if row["id"] == minted["id"])["expiresAt"] == minted["expiresAt"]


@pytest.mark.parametrize("ttl_s", [0, -1, "1h", True, 3653 * 86_400 + 1, float("nan")])
def test_an_end_that_cannot_be_is_refused_by_field(secured_server: Served, ttl_s: object) -> None:
    body = {"name": f"t-{new_id()}", "ttl_s": ttl_s}
    answer = secured_server.post("/v1/namespaces/default/tokens", body)
    assert (answer.status, answer.body["field"]) == (422, "ttl_s")


@pytest.mark.inventory("S-036", "S-083")
def test_a_revoked_token_is_forbidden_at_once_and_stays_listed(secured_server: Served) -> None:
    minted = secured_server.post("/v1/namespaces/default/tokens", {"name": f"t-{new_id()}"}, encoding=JSON).body
    token = minted["plaintext"]
    assert secured_server.get("/v1/namespaces/default/whoami", token=token).status == 200
    gone = secured_server.call("DELETE", f"/v1/namespaces/default/tokens/{minted['id']}")
    assert gone.body["revokedAt"] is not None
    answer = secured_server.get("/v1/namespaces/default/whoami", token=token)
    assert (answer.status, answer.body["error"]) == (403, "token revoked")
    assert minted["id"] in [row["id"] for row in secured_server.get("/v1/namespaces/default/tokens").body["tokens"]]


@pytest.mark.inventory("S-037", "S-046")
def test_a_token_is_for_its_own_namespace(secured_server: Served) -> None:
    ns, other = namespace(secured_server), namespace(secured_server)
    token = mint(secured_server, ns)
    assert secured_server.get(f"/v1/namespaces/{other}/whoami", token=token).status == 403
    assert secured_server.get("/v1/producer/queues", token=token, X_LS_Namespace=other).status == 403
    assert secured_server.get("/v1/producer/queues", token=token, X_LS_Namespace=ns).status == 200


@pytest.mark.inventory("S-828")
def test_the_namespace_of_a_submit_is_its_tokens(secured_server: Served) -> None:
    ns = namespace(secured_server)
    call = one()
    assert secured_server.post("/v1/producer/submit", call, token=mint(secured_server, ns)).status == 200
    path = f"/v1/namespaces/{ns}/invocations/{call['invocation_id']}"
    assert secured_server.get(path).body["namespace"] == ns
    assert secured_server.get(f"/v1/namespaces/default/invocations/{call['invocation_id']}").status == 404


@pytest.mark.inventory("S-044", "S-066")
def test_siblings_of_an_org_may_submit_to_each_other_until_the_org_is_left(secured_server: Served) -> None:
    org = f"org-{new_id()}"
    ns, sibling = namespace(secured_server, org), namespace(secured_server, org)
    token = mint(secured_server, ns)
    assert secured_server.post("/v1/producer/submit", one(), token=token, X_LS_Namespace=sibling).status == 200
    assert secured_server.get(f"/v1/namespaces/{sibling}/invocations", token=token).status == 200
    secured_server.call("PATCH", f"/v1/admin/namespaces/{sibling}", {"orgId": None}, encoding=JSON)
    assert secured_server.get(f"/v1/namespaces/{sibling}/invocations", token=token).status == 403


@pytest.mark.inventory("S-041", "S-027")
def test_a_namespace_token_does_not_reach_the_admin_tier(secured_server: Served) -> None:
    token = mint(secured_server)
    for method, path, body in (
        ("GET", "/v1/admin/namespaces", None),
        ("POST", "/v1/admin/namespaces", {"name": "x"}),
        ("POST", "/v1/namespaces/default/tokens", {"name": "x"}),
        ("GET", "/metrics", None),
    ):
        assert secured_server.call(method, path, body, token=token, encoding=JSON).status == 403


SCOPES = [
    ("submit", "POST", "/v1/producer/submit", True),
    ("submit", "POST", "/v1/daemon/poll", False),
    ("submit", "GET", "/v1/namespaces/default/invocations", False),
    ("submit", "GET", "/v1/namespaces/default/whoami", True),
    ("worker", "POST", "/v1/daemon/poll", True),
    ("worker", "POST", "/v1/daemon/ack", True),
    ("worker", "POST", "/v1/producer/submit", False),
    ("worker", "GET", "/v1/namespaces/default/tokens", False),
    ("daemon", "POST", "/v1/daemon/poll", True),
    ("daemon", "POST", "/v1/namespaces/default/payloads/presign", True),
    ("daemon", "POST", "/v1/producer/await", False),
]


@pytest.mark.parametrize(("scope", "method", "path", "allowed"), SCOPES)
def test_a_tokens_scope_says_which_routes_it_may_call(
    secured_server: Served, scope: str, method: str, path: str, allowed: bool
) -> None:
    token = mint(secured_server, scope=scope)
    answer = secured_server.call(method, path, {} if method == "POST" else None, token=token)
    assert (answer.status != 403) is allowed, answer.body


def test_a_daemons_token_speaks_for_its_worker_only(secured_server: Served) -> None:
    token = mint(secured_server, scope="daemon", workerId="worker-1")
    body = {"queue": "q", "timeout_s": 0, "session": "s", "n": 1}
    assert secured_server.post("/v1/daemon/poll", {**body, "worker_id": "worker-1"}, token=token).status == 200
    assert secured_server.post("/v1/daemon/poll", {**body, "worker_id": "worker-2"}, token=token).status == 403


@pytest.mark.inventory("S-031", "S-078")
def test_open_mode_lets_this_user_in_without_a_token(server: Served) -> None:
    body = server.get("/v1/namespaces/default/whoami").body
    assert (body["authMode"], body["tokenName"], body["tokenPrefix"]) == ("open", "<open>", None)


@pytest.mark.inventory("S-031", "S-754")
def test_open_mode_knows_a_known_token_and_passes_over_an_unknown_one(server: Served) -> None:
    token = mint(server)
    assert server.get("/v1/namespaces/default/whoami", token=token).body["authMode"] == "token"
    assert server.get("/v1/namespaces/default/whoami", token="stale").body["authMode"] == "open"


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:8080", "localhost.evil.example", "127.0.0.1.nip.io"])
def test_open_mode_refuses_another_host(server: Served, host: str) -> None:
    answer = server.get("/v1/namespaces/default/whoami", Host=host)
    assert answer.status == 403
    assert "loopback" in answer.body["error"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]:80", "app.localhost:3000", "LOCALHOST"])
def test_open_mode_takes_every_name_of_loopback(server: Served, host: str) -> None:
    assert server.get("/v1/namespaces/default/whoami", Host=host).status == 200


@pytest.mark.inventory("S-014")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_open_mode_refuses_pages_of_another_origin(server: Served, headers: dict[str, str]) -> None:
    answer = server.post("/v1/producer/submit", one(), **headers)
    assert (answer.status, answer.body["error"]) == (403, "cross-site request refused")
    assert "access-control-allow-origin" not in answer.headers


def test_open_mode_lets_its_own_page_in(server: Served) -> None:
    own = server.url
    assert server.get("/v1/namespaces/default/whoami", Origin=own, Sec_Fetch_Site="same-origin").status == 200
    assert server.get("/v1/namespaces/default/whoami", Sec_Fetch_Site="none").status == 200


@pytest.mark.inventory("S-014")
def test_a_page_with_a_bearer_may_read_the_answer(secured_server: Served) -> None:
    origin = "https://dash.example"
    answer = secured_server.get("/v1/namespaces/default/whoami", Origin=origin)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
    refused = secured_server.get("/v1/namespaces/default/whoami", Origin=origin, token="")
    assert refused.status == 401
    assert "access-control-allow-origin" not in refused.headers


def test_a_preflight_is_answered_for_what_it_announces(secured_server: Served) -> None:
    asked = {"Origin": "https://dash.example", "Access_Control_Request_Method": "DELETE", "token": ""}
    path = "/v1/namespaces/default/invocations/x"
    answer = secured_server.call(
        "OPTIONS", path, **asked, Access_Control_Request_Headers="authorization, x-ls-namespace"
    )
    assert answer.status == 204
    assert answer.headers["access-control-allow-headers"] == "authorization, x-ls-namespace"
    assert "DELETE" in answer.headers["access-control-allow-methods"]
    assert secured_server.call("OPTIONS", path, **asked).status == 403


def test_a_named_origin_may_call_an_open_server(tmp_path: Path) -> None:
    with running(tmp_path, "--cors-origin", "http://localhost:3000") as served:
        answer = served.get("/v1/namespaces/default/whoami", Origin="http://localhost:3000", Sec_Fetch_Site="same-site")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "http://localhost:3000")
        assert served.get("/v1/namespaces/default/whoami", Origin="http://localhost:3001").status == 403


AS_ANOTHER_USER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_INET) as peer:  # nothing may be imported any more: this user cannot read our files
    peer.connect(("127.0.0.1", int(sys.argv[1])))
    head = "GET /v1/namespaces/default/whoami HTTP/1.1\\r\\nHost: localhost\\r\\n" + sys.argv[2] + "\\r\\n"
    peer.sendall(head.encode("ascii"))
    print(int(peer.recv(4096).split()[1]))
"""


def as_another_user(served: Served, authorization: str = "") -> int:
    port = served.url.rpartition(":")[2]
    line = f"Authorization: {authorization}\r\n" if authorization else ""
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, port, line],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


needs_users = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="only root can become another user; Linux only"
)


@needs_users
def test_open_mode_is_for_the_servers_own_user(server: Served) -> None:
    assert as_another_user(server) == 403
    assert as_another_user(server, f"Bearer {mint(server)}") == 200


@needs_users
def test_open_lifts_the_rule_about_the_user_and_says_so(tmp_path: Path) -> None:
    with running(tmp_path, "--open") as served:
        assert as_another_user(served) == 200
        assert "every user of this machine" in served.said()


@pytest.mark.inventory("S-065", "S-651")
def test_namespaces_are_made_listed_and_removed_by_the_operator(secured_server: Served) -> None:
    name = namespace(secured_server)
    again = secured_server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON)
    assert again.status == 409
    assert name in [row["name"] for row in secured_server.get("/v1/admin/namespaces").body["namespaces"]]
    token = mint(secured_server, name)
    secured_server.post("/v1/producer/submit", one(), token=token)
    assert secured_server.call("DELETE", f"/v1/admin/namespaces/{name}").status == 409
    secured_server.post(f"/v1/namespaces/{name}/invocations/bulk-cancel", {})
    assert secured_server.call("DELETE", f"/v1/admin/namespaces/{name}").status == 200
    assert secured_server.get(f"/v1/namespaces/{name}/whoami", token=token).status == 401
    assert secured_server.get(f"/v1/namespaces/{name}/whoami").status == 404
    assert secured_server.call("DELETE", "/v1/admin/namespaces/default").status == 409


@pytest.mark.inventory("S-651")
@pytest.mark.parametrize("name", ["", "A", "-a", "a_b", "a" * 65, "a/b", 3, None, "ä"])
def test_a_bad_namespace_name_is_refused_by_field(secured_server: Served, name: object) -> None:
    answer = secured_server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (422, "name")


@pytest.mark.inventory("S-345", "S-548")
def test_an_unknown_namespace_is_not_found_for_the_operator_and_made_by_a_submit_in_open_mode(
    server: Served, secured_server: Served
) -> None:
    ns = f"ns-{new_id()}"
    for served in (server, secured_server):
        for method, path in (("GET", ""), ("GET", "/x"), ("DELETE", "/x"), ("POST", "/bulk-cancel")):
            assert served.call(method, f"/v1/namespaces/{ns}/invocations{path}").status == 404
    assert secured_server.post("/v1/producer/submit", one(), X_LS_Namespace=ns).status == 404
    assert server.post("/v1/producer/submit", one(), X_LS_Namespace=ns).status == 200
    assert server.get(f"/v1/namespaces/{ns}/invocations").body["count"] == 1
    assert server.post("/v1/producer/submit", one(), X_LS_Namespace="Not A Slug").status == 422


def test_an_open_keep_alive_connection_is_checked_at_every_request(secured_server: Served) -> None:
    connection: http.client.HTTPConnection = secured_server.connection()
    try:
        for authorization, status in (({"Authorization": f"Bearer {ADMIN}"}, 200), ({}, 401)):
            connection.request("GET", "/v1/namespaces/default/whoami", headers=authorization)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
    finally:
        connection.close()
