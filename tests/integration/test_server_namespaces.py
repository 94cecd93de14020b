"""Namespaces, tokens and orgs as a control plane keeps them: who makes them, who sees what, what is unique on disk."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from served import ADMIN, JSON, Answer, Served, new_id


class Client:
    """One caller of one namespace, over JSON."""

    def __init__(self, server: Served, ns: str, token: str | None = None) -> None:
        self.server, self.ns, self.token = server, ns, token

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        path = path if path.startswith("/") else f"/v1/namespaces/{self.ns}/{path}"
        return self.server.call(method, path, body, encoding=JSON, token=self.token, Accept=JSON)


def made(server: Served, org: str | None = None) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name, "orgId": org}, encoding=JSON).status == 201
    return name


def minted(server: Served, ns: str, name: str = "t", **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = server.post(f"/v1/namespaces/{ns}/tokens", {"name": name, **more}, encoding=JSON).body
    return row


def holder(server: Served, ns: str, **more: Any) -> Client:
    return Client(server, ns, minted(server, ns, **more)["plaintext"])


def on_disk(server: Served, statement: str, *values: Any) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"file:{server.state_dir}/records.db?mode=ro", uri=True)) as conn:
        conn.row_factory = sqlite3.Row
        return [dict(row) for row in conn.execute(statement, values)]


# --- namespaces


@pytest.mark.inventory("S-065", "S-066", "S-067")
@pytest.mark.inventory("S-551", "S-552", "S-553")
@pytest.mark.inventory("S-716")
def test_a_namespace_is_made_listed_shown_put_into_an_org_and_deleted(secured_server: Served) -> None:
    call, name = Client(secured_server, "default"), f"ns-{new_id()}"
    at = f"/v1/admin/namespaces/{name}"
    row = call("POST", "/v1/admin/namespaces", {"name": name})
    assert row.status == 201
    assert row.body.keys() >= {"name", "orgId", "targetNymphVersion", "createdAt"}
    assert (row.body["name"], row.body["orgId"], row.body["targetNymphVersion"]) == (name, None, None)
    again = call("POST", "/v1/admin/namespaces", {"name": name})
    assert (again.status, again.body["field"]) == (409, "name")
    assert call("PATCH", at, {"orgId": "acme"}).body["orgId"] == "acme"
    assert call("PATCH", at, {}).status == 422, "to say nothing is not to leave the org"
    assert call("GET", at).body["orgId"] == "acme"
    assert name in [row["name"] for row in call("GET", "/v1/admin/namespaces").body["namespaces"]]
    assert call("PATCH", at, {"orgId": None}).body["orgId"] is None
    assert call("DELETE", at).body["deleted"] is True
    assert call("GET", at).status == call("DELETE", at).status == call("PATCH", at, {"orgId": "x"}).status == 404
    assert call("DELETE", "/v1/admin/namespaces/default").status == 409


@pytest.mark.inventory("S-651", "C-018", "S-634")
@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a" * 65, "ä", 7, None])
def test_what_is_no_slug_is_no_namespace(secured_server: Served, name: object) -> None:
    answer = secured_server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (422, "name")


@pytest.mark.inventory("S-042", "S-027", "S-040")
def test_a_token_of_every_right_may_not_touch_orgs_or_mint_and_open_mode_may(
    server: Served, secured_server: Served
) -> None:
    ns = made(secured_server)
    token = holder(secured_server, ns)
    for method, path, body in (
        ("PATCH", f"/v1/admin/namespaces/{ns}", {"orgId": "acme"}),
        ("POST", "/v1/admin/namespaces", {"name": f"ns-{new_id()}"}),
        ("DELETE", f"/v1/admin/namespaces/{ns}", None),
        ("POST", "tokens", {"name": "more"}),
        ("POST", "enroll-tokens", {"label": "more"}),
        ("POST", "/v1/admin/secrets/rekey", {}),
    ):
        refused = token(method, path, body)
        assert (refused.status, refused.body["error"]) == (403, "this needs the admin token")
        assert "LAKESHORE_ADMIN_TOKEN" in refused.body["hint"]
    anybody = Client(server, made(server))
    assert anybody("PATCH", f"/v1/admin/namespaces/{anybody.ns}", {"orgId": "acme"}).status == 200
    assert anybody("POST", "tokens", {"name": "t"}).status == 201


# --- what the first write makes


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(
            "secrets", {"name": "s", "kind": "opaque", "plaintext": "x"}, marks=pytest.mark.inventory("S-544", "S-110")
        ),
        pytest.param("providers", {"name": "p", "launcher": "SSH"}, marks=pytest.mark.inventory("S-544")),
        pytest.param("modes", {"name": "m"}, marks=pytest.mark.inventory("S-544")),
        pytest.param(
            "mounts",
            {"name": "m", "kind": "nfs", "config": {"server": "h", "path": "/x"}},
            marks=pytest.mark.inventory("S-545"),
        ),
    ],
)
def test_the_first_write_of_the_operator_makes_the_namespace_and_a_read_does_not(
    secured_server: Served, path: str, body: dict[str, Any]
) -> None:
    call = Client(secured_server, f"ns-{new_id()}")
    missing = call("GET", path)
    assert (missing.status, missing.body["field"]) == (404, "namespace")
    assert f"lakeshore admin namespace create {call.ns}" in missing.body["hint"]
    assert call("POST", path, body).status == 201
    assert call("GET", path).status == 200
    stranger = Client(secured_server, f"ns-{new_id()}", holder(secured_server, made(secured_server)).token)
    assert stranger("POST", path, body).status == 403
    assert Client(secured_server, stranger.ns)("GET", path).status == 404, "nothing was made for the stranger"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("GET", "queues", None, marks=pytest.mark.inventory("S-546")),
        pytest.param("POST", "queues", {"name": "q"}, marks=pytest.mark.inventory("S-546")),
        pytest.param("GET", "workers", None, marks=pytest.mark.inventory("S-547")),
        pytest.param("POST", "workers/cleanup", {"hours": 1}, marks=pytest.mark.inventory("S-547")),
        pytest.param("GET", "invocations", None, marks=pytest.mark.inventory("S-548")),
    ],
)
def test_queues_workers_and_invocations_make_no_namespace(
    secured_server: Served, method: str, path: str, body: Any
) -> None:
    call = Client(secured_server, f"ns-{new_id()}")
    answer = call(method, path, body)
    assert (answer.status, answer.body["error"]) == (404, f"unknown namespace {call.ns!r}")
    assert call("GET", f"/v1/admin/namespaces/{call.ns}").status == 404


# --- tokens


@pytest.mark.inventory("S-034", "S-555", "S-556")
@pytest.mark.inventory("S-554", "S-632", "S-082")
def test_a_token_is_a_hash_and_a_prefix_on_disk_and_stays_listed_when_it_was_revoked(secured_server: Served) -> None:
    server, ns = secured_server, made(secured_server)
    token = minted(server, ns, "laptop")
    (row,) = on_disk(server, "SELECT * FROM token WHERE id = ?", token["id"])
    assert row["hash"] == hashlib.sha256(token["plaintext"].encode()).hexdigest()
    assert (row["prefix"], row["name"], row["revoked_at"]) == (token["plaintext"][:8], "laptop", None)
    assert token["plaintext"] not in map(str, row.values())
    call = Client(server, ns, token["plaintext"])
    (listed,) = call("GET", "tokens").body["tokens"]
    assert not {"plaintext", "hash"} & listed.keys()
    call("DELETE", f"tokens/{token['id']}")
    (listed,) = Client(server, ns)("GET", "tokens").body["tokens"]
    assert (listed["id"], listed["revokedAt"] is None) == (token["id"], False)


@pytest.mark.inventory("S-038", "S-557")
def test_when_a_token_was_last_used_is_listed_at_once_and_never_before_it_was(secured_server: Served) -> None:
    ns = made(secured_server)
    token = minted(secured_server, ns)
    admin = Client(secured_server, ns)
    (before,) = admin("GET", "tokens").body["tokens"]
    assert (before["lastUsedAt"], before["revokedAt"]) == (None, None)
    Client(secured_server, ns, token["plaintext"])("GET", "queues")
    (after,) = admin("GET", "tokens").body["tokens"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", after["lastUsedAt"])
    assert after["lastUsedAt"] >= after["createdAt"]


@pytest.mark.inventory("S-052", "S-078", "C-076")
@pytest.mark.inventory("C-480")
def test_whoami_tells_the_admin_token_and_open_mode_apart_from_a_token(server: Served, secured_server: Served) -> None:
    for served, mode in ((secured_server, "admin"), (server, "open")):
        told = Client(served, "default")("GET", "whoami").body
        assert told.keys() >= {"namespace", "tokenPrefix", "tokenName", "lastUsedAt", "authMode"}
        assert (told["tokenPrefix"], told["tokenName"], told["authMode"]) == (None, f"<{mode}>", mode)
    token = minted(secured_server, "default", f"t-{new_id()}")
    told = Client(secured_server, "default", token["plaintext"])("GET", "whoami").body
    assert (told["tokenPrefix"], told["tokenName"], told["authMode"]) == (token["prefix"], token["name"], "token")
    assert ADMIN not in str(told)


@pytest.mark.inventory("S-652", "C-017")
@pytest.mark.parametrize(("path", "field"), [("tokens", "name"), ("enroll-tokens", "label")])
@pytest.mark.parametrize("label", ["", "-a", "a b", "a.b", "a" * 65])
def test_what_is_no_label_is_refused_by_field(secured_server: Served, path: str, field: str, label: str) -> None:
    answer = Client(secured_server, "default")("POST", path, {field: label})
    assert (answer.status, answer.body["field"]) == (422, field)


@pytest.mark.inventory("S-054", "S-056", "S-558")
@pytest.mark.inventory("S-057", "S-559", "S-631")
def test_an_enroll_token_is_a_hash_and_a_prefix_on_disk_and_is_open_then_spent(secured_server: Served) -> None:
    call = Client(secured_server, made(secured_server))
    token = call("POST", "enroll-tokens", {"label": "rig"}).body
    assert re.fullmatch(r"dle_[A-Za-z0-9_-]{43}", token["plaintext"])
    (row,) = on_disk(secured_server, "SELECT * FROM enroll_token WHERE id = ?", token["id"])
    assert row["hash"] == hashlib.sha256(token["plaintext"].encode()).hexdigest()
    assert (row["prefix"], row["label"], row["consumed_at"]) == (token["plaintext"][:8], "rig", None)
    assert row["expires_at"] - row["created_at"] == 3600
    listed = call("GET", "enroll-tokens")
    assert token["plaintext"] not in listed.raw.decode()
    (shown,) = listed.body["enrollTokens"]
    assert (shown["spent"], shown["consumedAt"], shown["consumedByWorkerId"]) == (False, None, None)
    call("DELETE", f"enroll-tokens/{token['id']}")
    (shown,) = call("GET", "enroll-tokens").body["enrollTokens"]
    assert (shown["spent"], shown["consumedAt"] is None, shown["consumedByWorkerId"]) == (True, False, None)


@pytest.mark.inventory("S-656")
@pytest.mark.parametrize(("ttl_s", "status"), [(30 * 86_400, 201), (30 * 86_400 + 1, 422), (1, 201), (0, 422)])
def test_an_enroll_token_lasts_thirty_days_at_most(secured_server: Served, ttl_s: int, status: int) -> None:
    answer = Client(secured_server, "default")("POST", "enroll-tokens", {"label": "rig", "ttl_s": ttl_s})
    assert answer.status == status


# --- orgs


@pytest.mark.inventory("S-538", "S-539", "S-044")
@pytest.mark.inventory("S-540", "S-541", "S-542")
def test_siblings_see_queues_and_providers_of_each_other_with_their_namespace_and_no_secrets(
    secured_server: Served,
) -> None:
    org = f"any text, {new_id()}"
    one, two, alone, other = (made(secured_server, to) for to in (org, org, None, f"{org}!"))
    for ns in (one, two, alone, other):
        call = Client(secured_server, ns)
        assert call("POST", "queues", {"name": f"q-{ns}"}).status == 201
        assert call("POST", "secrets", {"name": f"s-{ns}", "kind": "opaque", "plaintext": "x"}).status == 201
        assert call("POST", "providers", {"name": f"p-{ns}", "launcher": "SSH"}).status == 201
    token = holder(secured_server, one)
    queues = {(row["namespace"], row["name"]) for row in token("GET", "queues").body["queues"]}
    assert {("default", "default")} & queues == set()
    assert {ns for ns, _name in queues} == {one, two}
    assert {(one, f"q-{one}"), (two, f"q-{two}")} <= queues
    providers = {(row["namespace"], row["name"]) for row in token("GET", "providers").body["providers"]}
    assert providers == {(one, f"p-{one}"), (two, f"p-{two}")}
    assert [row["name"] for row in token("GET", "secrets").body["secrets"]] == [f"s-{one}"]
    sibling = Client(secured_server, two, token.token)
    assert sibling("GET", f"queues/q-{two}").status == 200, "by the sibling's own path"
    for ns in (alone, other):
        stranger = Client(secured_server, ns, token.token)("GET", "queues")
        assert stranger.status == 403
        assert stranger.body["error"] == f"this token is for namespace {one!r}, not for {ns!r}"
    single = holder(secured_server, alone)("GET", "queues").body["queues"]
    assert {row["namespace"] for row in single} == {alone}, "null is no org to share"


@pytest.mark.inventory("S-543", "S-243")
def test_a_storage_of_a_sibling_is_reached_by_the_siblings_path(secured_server: Served) -> None:
    org = f"org-{new_id()}"
    one, two = made(secured_server, org), made(secured_server, org)
    body = {"name": "data", "kind": "s3", "config": {"bucket": "b", "region": "eu-central-1"}}
    added = Client(secured_server, two)("POST", "storages", body)
    assert added.status == 201, added.body
    token = holder(secured_server, one)
    assert token("GET", "storages/data").status == 404
    assert Client(secured_server, two, token.token)("GET", "storages/data").body["name"] == "data"


def test_a_namespace_that_leaves_its_org_is_closed_to_the_others_at_once(secured_server: Served) -> None:
    org = f"org-{new_id()}"
    one, two = made(secured_server, org), made(secured_server, org)
    sibling = Client(secured_server, two, holder(secured_server, one).token)
    assert sibling("GET", "queues").status == 200
    Client(secured_server, two)("PATCH", f"/v1/admin/namespaces/{two}", {"orgId": None})
    assert sibling("GET", "queues").status == 403


# --- what is unique on disk


@pytest.mark.parametrize(
    ("table", "values"),
    [
        pytest.param("namespace", {"name": "n"}, marks=pytest.mark.inventory("S-634")),
        pytest.param("token", {"ns": "n", "name": "t"}, marks=pytest.mark.inventory("S-635")),
        pytest.param("token", {"hash": "h"}, marks=pytest.mark.inventory("S-635")),
        pytest.param("secret", {"ns": "n", "name": "s"}, marks=pytest.mark.inventory("S-636")),
        pytest.param("provider", {"ns": "n", "name": "p"}, marks=pytest.mark.inventory("S-637")),
        pytest.param("mode", {"ns": "n", "name": "m"}, marks=pytest.mark.inventory("S-638")),
        pytest.param("daemon_key", {"worker_id": "w", "key_id": "k"}, marks=pytest.mark.inventory("S-644")),
        pytest.param("nymph_release", {"sha256": "x"}, marks=pytest.mark.inventory("S-647")),
    ],
)
def test_the_database_itself_refuses_a_second_row_of_one_name(
    secured_server: Served, table: str, values: dict[str, str]
) -> None:
    with closing(sqlite3.connect(":memory:")) as conn:
        for row in on_disk(secured_server, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'x'"):
            if "sqlite_sequence" not in row["sql"]:
                conn.execute(row["sql"])
        columns = [row[1:4] for row in conn.execute(f"PRAGMA table_info({table})")]

        def insert(n: int) -> None:
            told = {
                name: values.get(name, f"{name}-{n}") if kind in ("TEXT", "BLOB") else n
                for name, kind, _required in columns
            }
            marks = ", ".join(f":{name}" for name in told)
            conn.execute(f"INSERT INTO {table} ({', '.join(told)}) VALUES ({marks})", told)

        insert(1)
        with pytest.raises(sqlite3.IntegrityError):
            insert(2)
        values = {name: value + "!" for name, value in values.items()}
        insert(3)


# --- the routes


@pytest.mark.inventory("C-085")
@pytest.mark.inventory("C-484")
def test_the_routes_of_tokens_and_namespaces_are_the_documented_ones(secured_server: Served) -> None:
    call = Client(secured_server, made(secured_server))
    for method, path, body, status in (
        ("POST", "tokens", {"name": "t"}, 201),
        ("GET", "tokens", None, 200),
        ("DELETE", "tokens/none", None, 404),
        ("GET", "/v1/admin/namespaces", None, 200),
    ):
        assert call(method, path, body).status == status
