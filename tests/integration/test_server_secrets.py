"""Secrets and providers of a server: what goes in, what never comes out, and what refers to what."""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from served import ADMIN, JSON, Answer, Served, launch, new_id, running

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nplanted-93af1c\n-----END OPENSSH PRIVATE KEY-----\n"

NO_PROVIDERS = {"providers": [], "count": 0, "next": None}


class Client:
    """One namespace of a server, over JSON."""

    def __init__(self, server: Served, ns: str, token: str | None = None) -> None:
        self.server, self.ns, self.token = server, ns, token

    def __call__(self, method: str, path: str, body: Any = None) -> Answer:
        at = f"/v1/namespaces/{self.ns}/{path}"
        return self.server.call(method, at, body, encoding=JSON, token=self.token, Accept=JSON)

    def secret(self, name: str, plaintext: str = KEY, kind: str = "ssh_key", **more: str) -> Answer:
        return self("POST", "secrets", {"name": name, "kind": kind, "plaintext": plaintext, **more})

    def provider(self, name: str, kwargs: Any, launcher: str = "SSH", **more: Any) -> Answer:
        return self("POST", "providers", {"name": name, "launcher": launcher, "kwargs": kwargs, **more})


def namespace(server: Served, org: str | None = None) -> str:
    name = f"ns-{new_id()}"
    body = {"name": name, "orgId": org}
    assert server.call("POST", "/v1/admin/namespaces", body, encoding=JSON).status == 201
    return name


@pytest.fixture
def call(secured_server: Served) -> Client:
    return Client(secured_server, namespace(secured_server))


# --- secrets


@pytest.mark.inventory("S-091", "S-096", "S-097")
@pytest.mark.inventory("S-098", "S-090")
@pytest.mark.inventory("S-707")
def test_a_secret_goes_in_is_replaced_and_removed_and_no_get_shows_its_value(call: Client) -> None:
    made = call.secret("my-pem", description="primary dev key")
    assert made.status == 201
    assert made.body.keys() == {"name", "kind", "description", "createdAt", "updatedAt"}
    assert (made.body["kind"], made.body["description"]) == ("ssh_key", "primary dev key")
    call.secret("another", "x", "opaque")
    listed = call("GET", "secrets")
    assert [row["name"] for row in listed.body["secrets"]] == ["another", "my-pem"]
    shown = call("GET", "secrets/my-pem")
    assert shown.body == made.body
    again = call("PUT", "secrets/my-pem", {"plaintext": "other"})
    assert (again.status, again.body["createdAt"]) == (200, made.body["createdAt"])
    assert again.body["updatedAt"] > made.body["updatedAt"]
    for answer in (made, listed, shown, again):
        assert b"planted" not in answer.raw
        assert b"other" not in answer.raw.replace(b"another", b"")
    assert call("DELETE", "secrets/my-pem").status == 200
    assert call("GET", "secrets/my-pem").status == call("DELETE", "secrets/my-pem").status == 404
    assert call("PUT", "secrets/my-pem", {"plaintext": "x"}).status == 404


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        pytest.param({"name": "Bad_Name"}, 400, "name: ", marks=pytest.mark.inventory("S-093", "C-016")),
        pytest.param({"kind": "password"}, 400, "kind: ", marks=pytest.mark.inventory("S-092", "C-135")),
        pytest.param({"plaintext": "x" * (64 * 1024 + 1)}, 413, "at most 64 KiB", marks=pytest.mark.inventory("S-095")),
        ({"plaintext": ""}, 400, "is empty"),
        ({"plaintext": 7}, 400, "must be a string"),
        ({"plaintext": None}, 400, "send the value"),
        ({"plaintext_b64": "eA=="}, 400, "send the value"),
        ({"plaintext": None, "plaintext_b64": "!"}, 400, "is not base64"),
        ({"description": "two\nlines"}, 400, "one line"),
    ],
)
def test_what_cannot_be_a_secret_is_refused(call: Client, body: dict[str, Any], status: int, said: str) -> None:
    answer = call("POST", "secrets", {"name": "good", "kind": "opaque", "plaintext": "x", **body})
    assert answer.status == status
    assert said in answer.body["error"]
    assert call("GET", "secrets").body == {"secrets": []}


@pytest.mark.inventory("S-094", "S-108", "S-773")
@pytest.mark.inventory("S-099")
def test_a_name_is_taken_once_and_a_value_may_be_any_bytes_of_the_largest_size(call: Client) -> None:
    largest = base64.b64encode(b"\xff" * 64 * 1024).decode()
    whole = {"name": "bytes", "kind": "opaque", "plaintext_b64": largest}
    assert call("POST", "secrets", whole).status == 201
    again = call.secret("bytes")
    assert (again.status, again.body["field"]) == (409, "name")
    assert "secrets rotate bytes" in again.body["hint"]


@pytest.mark.inventory("S-100", "S-102", "S-055")
def test_a_value_is_nowhere_on_disk_or_in_the_log_and_survives_a_restart_with_its_key_alone(tmp_path: Path) -> None:
    key = base64.b64encode(b"k" * 32).decode()
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "SECRETS_KEY": key}
    with running(tmp_path / "cp", env=env, token=ADMIN) as server:
        call = Client(server, "default")
        call.secret("pem")
        call.provider("box", {"ip": "h", "ssh_key": {"$secret": "pem"}})
        assert call("POST", "providers/box/resolve", {}).body["kwargs"]["ssh_key"] == KEY
        server.stop()
        said = server.said()
    files = [path for path in (tmp_path / "cp").rglob("*") if path.is_file()]
    assert any(b"pem" in path.read_bytes() for path in files)
    assert not [path for path in files if b"planted" in path.read_bytes()]
    assert "planted" not in said
    with running(tmp_path / "cp", env=env, token=ADMIN) as server:
        assert Client(server, "default")("POST", "providers/box/resolve", {}).body["kwargs"]["ssh_key"] == KEY
    other = env | {"SECRETS_KEY": base64.b64encode(b"o" * 32).decode()}
    with running(tmp_path / "cp", env=other, token=ADMIN) as server:
        call = Client(server, "default")
        refused = call("POST", "providers/box/resolve", {})
        assert refused.status == 409
        assert "another secrets key" in refused.body["error"]
        assert call("PUT", "secrets/pem", {"plaintext": "fresh"}).status == 200
        assert call("POST", "providers/box/resolve", {}).body["kwargs"]["ssh_key"] == "fresh"
    short = launch(tmp_path / "short", tmp_path / "log", env={"SECRETS_KEY": "c2hvcnQ="})
    assert short.wait(60) == 1
    assert "SECRETS_KEY decodes to 5 bytes, not 32" in (tmp_path / "log").read_text()


@pytest.mark.inventory("S-101", "S-774")
def test_a_row_that_was_changed_or_moved_does_not_open(tmp_path: Path) -> None:
    with running(tmp_path / "cp", env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN) as server:
        call = Client(server, "default")
        for name in ("one", "two"):
            call.secret(name, f"value of {name}")
            call.provider(f"p-{name}", {"ip": "h", "ssh_key": {"$secret": name}})
        server.stop()
    columns = "nonce, ciphertext, tag"
    with closing(sqlite3.connect(server.state_dir / "records.db")) as conn, conn:
        rows = {row[0]: row[1:] for row in conn.execute(f"SELECT name, {columns} FROM secret")}
        assert [len(part) for part in rows["one"]] in ([12, 12, 16], [24, 12, 16])
        conn.execute(f"UPDATE secret SET ({columns}) = (?, ?, ?) WHERE name = 'two'", rows["one"])
        damaged = bytes([rows["one"][1][0] ^ 1]) + rows["one"][1][1:]
        conn.execute("UPDATE secret SET ciphertext = ? WHERE name = 'one'", (damaged,))
    conn.close()
    with running(tmp_path / "cp", env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN) as server:
        for name in ("one", "two"):
            answer = Client(server, "default")("POST", f"providers/p-{name}/resolve", {})
            assert (answer.status, "value of" in answer.raw.decode()) == (409, False)


# --- references


@pytest.mark.inventory("S-111", "S-117", "S-118")
@pytest.mark.inventory("C-107", "S-115")
def test_a_reference_must_name_a_secret_of_the_namespace_when_it_is_written_down(call: Client) -> None:
    call.secret("there")
    good = {"ssh_key": {"$secret": "there", "$beside": {"$secret": "no leaf looks here"}}, "note": "$secret:text"}
    assert call.provider("box", {"deep": [{"er": good}]}).status == 201
    assert call("GET", "providers/box").body["kwargs"] == {"deep": [{"er": good}]}
    for answer in (
        call.provider("other", {"ssh_key": {"$secret": "typo"}}),
        call("PATCH", "providers/box", {"kwargs": {"a": [{"$secret": "typo"}]}}),
    ):
        assert answer.status == 422
        assert (answer.body["error"], answer.body["secret"]) == ("unknown secret", "typo")
    assert call("GET", "providers/box").body["kwargs"] == {"deep": [{"er": good}]}


def nested(levels: int) -> Any:
    return {"in": nested(levels - 1)} if levels else 1


@pytest.mark.parametrize(
    ("kwargs", "status"),
    [
        pytest.param({"key": {"$secret": 7}}, 400, marks=pytest.mark.inventory("S-113")),
        pytest.param({"key": {"$secret": "No Slug"}}, 400, marks=pytest.mark.inventory("S-113")),
        pytest.param(nested(21), 400, marks=pytest.mark.inventory("S-112", "S-114")),
        pytest.param(nested(20), 201, marks=pytest.mark.inventory("S-112")),
        ([], 400),
        ({"big": "x" * 70_000}, 413),
    ],
)
def test_arguments_that_make_no_sense_are_refused(call: Client, kwargs: Any, status: int) -> None:
    assert call.provider("box", kwargs).status == status


# --- providers


@pytest.mark.inventory("S-123", "S-129", "S-132")
@pytest.mark.inventory("S-130", "S-128", "C-108")
@pytest.mark.inventory("S-010", "S-708")
def test_a_provider_is_added_listed_shown_changed_and_hidden(call: Client) -> None:
    made = call.provider("box", {"ip": "10.0.0.1", "port": 22})
    assert made.status == 201
    assert {**made.body, "createdAt": "", "updatedAt": ""} == {
        "name": "box",
        "namespace": call.ns,
        "launcher": "SSH",
        "kwargs": {"ip": "10.0.0.1", "port": 22},
        "dispatch": "direct",
        "tunnel": None,
        "hidden": False,
        "createdAt": "",
        "updatedAt": "",
        "deletedAt": None,
        "warnings": [],
    }
    assert call.provider("box", {}).status == 409
    assert call.provider("No", {}).status == call.provider("x", {}, launcher="ssh").status == 400
    refused = call("PATCH", "providers/box", {"launcher": "EC2"})
    assert (refused.status, refused.body["field"]) == (400, "launcher")
    changed = call("PATCH", "providers/box", {"kwargs": {"ip": "10.0.0.2"}, "hidden": True, "dispatch": "daemon"})
    assert (changed.body["kwargs"], changed.body["dispatch"]) == ({"ip": "10.0.0.2"}, "daemon")
    assert call("GET", "providers").body == NO_PROVIDERS
    for query in ("hidden=true", "all=true"):
        assert [row["name"] for row in call("GET", f"providers?{query}").body["providers"]] == ["box"]
    for wrong in ({"hidden": 1}, {"dispatch": "later"}, {"kwargs": 1}):
        assert call("PATCH", "providers/box", wrong).status in (400, 422)
    assert call("GET", "providers/none").status == call("PATCH", "providers/none", {}).status == 404


@pytest.mark.parametrize(
    ("launcher", "dispatch"),
    [
        pytest.param(name, way, marks=pytest.mark.inventory(row))
        for name, way, row in (
            ("SSH", "direct", "S-139"),
            ("SLURM", "direct", "S-140"),
            ("Kube", "direct", "S-141"),
            ("EC2", "daemon", "S-142"),
            ("GCE", "daemon", "S-143"),
        )
    ],
)
def test_each_launcher_has_its_usual_dispatch_which_arguments_and_flag_change(
    call: Client, launcher: str, dispatch: str
) -> None:
    other = "daemon" if dispatch == "direct" else "direct"
    assert call.provider("usual", {}, launcher).body["dispatch"] == dispatch
    assert call.provider("flag", {}, launcher, dispatch=other).body["dispatch"] == other
    assert call.provider("key", {"dispatch": other}, launcher).body["dispatch"] == other


@pytest.mark.inventory("S-134", "S-135", "S-128")
@pytest.mark.inventory("C-485", "C-1407")
def test_a_removed_provider_frees_its_name_and_comes_back_by_either_name(call: Client) -> None:
    call.provider("box", {"ip": "one"})
    gone = call("DELETE", "providers/box").body
    assert gone["name"] == f"box [deleted {gone['deletedAt']}]"
    assert call("GET", "providers").body == NO_PROVIDERS
    assert [row["name"] for row in call("GET", "providers?deleted=true").body["providers"]] == [gone["name"]]
    assert call.provider("box", {"ip": "two"}).status == 201
    assert call("POST", "providers/box/restore", {}).status == 409
    quoted = gone["name"].replace(" ", "%20").replace("[", "%5B").replace("]", "%5D")
    assert call("POST", f"providers/{quoted}/restore", {}).status == 409
    call("DELETE", "providers/box")
    assert call("POST", f"providers/{quoted}/restore", {}).body["kwargs"] == {"ip": "one"}
    call("DELETE", "providers/box")
    assert call("POST", "providers/box/restore", {}).body["kwargs"] == {"ip": "one"}  # the last that was removed
    assert call("POST", "providers/none/restore", {}).status == 404


@pytest.mark.inventory("S-126", "S-127", "S-540")
def test_an_org_shares_names_and_the_list_and_secrets_are_those_of_the_providers_namespace(
    secured_server: Served,
) -> None:
    org = f"org-{new_id()}"
    here, there, alone = (Client(secured_server, namespace(secured_server, one)) for one in (org, org, None))
    here.secret("pem", "of here")
    there.secret("pem", "of there")
    assert here.provider("box", {"ip": "h", "ssh_key": {"$secret": "pem"}}).status == 201
    taken = there.provider("box", {})
    assert (taken.status, here.ns in taken.body["error"]) == (409, True)
    there.provider("other", {})
    assert [(row["name"], row["namespace"]) for row in there("GET", "providers").body["providers"]] == [
        ("box", here.ns),
        ("other", there.ns),
    ]
    assert alone("GET", "providers").body == NO_PROVIDERS
    assert alone.provider("box", {}).status == 201
    assert here("POST", "providers/box/resolve", {}).body["kwargs"]["ssh_key"] == "of here"


# --- what leaves


@pytest.mark.inventory("S-121", "S-103", "S-109")
def test_only_the_key_of_a_directly_dispatched_ssh_provider_leaves_and_the_audit_says_to_whom(
    secured_server: Served, call: Client
) -> None:
    call.secret("pem")
    call.secret("words", "planted", "opaque")
    call.provider("box", {"ip": "h", "ssh_key": {"$secret": "pem"}})
    answer = call("POST", "providers/box/resolve", {})
    assert answer.body["kwargs"] == {"ip": "h", "ssh_key": KEY}
    assert answer.headers["cache-control"] == "no-store"
    call.provider("words", {"ip": "h", "password": {"$secret": "words"}})
    call.provider("cloud", {"aws": {"$secret": "pem"}}, "EC2")
    call.provider("far", {"ssh_key": {"$secret": "pem"}}, dispatch="daemon")
    for name in ("words", "cloud", "far"):
        refused = call("POST", f"providers/{name}/resolve", {})
        assert (refused.status, b"planted" in refused.raw) == (422, False)
    call("DELETE", "secrets/pem")
    missing = call("POST", "providers/box/resolve", {}).body["error"]
    assert missing == f"secret 'pem' not found in namespace {call.ns!r}"
    with closing(sqlite3.connect(f"file:{secured_server.state_dir}/records.db?mode=ro", uri=True)) as conn, conn:
        audit = conn.execute("SELECT actor, subject FROM audit WHERE ns = ? AND action = 'secret.read'", (call.ns,))
        assert audit.fetchall() == [("<admin>", "box: pem")]
    conn.close()


def test_an_open_server_that_lets_others_in_gives_no_key_away(tmp_path: Path) -> None:
    with running(tmp_path / "cp", "--open") as server:
        call = Client(server, "fresh")
        assert call.secret("pem").status == 201  # the first thing that is written makes the namespace
        call.provider("box", {"ip": "h", "ssh_key": {"$secret": "pem"}})
        refused = call("POST", "providers/box/resolve", {})
        assert (refused.status, b"planted" in refused.raw) == (403, False)


@pytest.mark.inventory("S-110")
def test_in_open_mode_the_first_secret_makes_its_namespace_and_with_it_everything_goes(server: Served) -> None:
    call = Client(server, f"ns-{new_id()}")
    assert call("GET", "secrets").status == 404
    assert call.secret("pem").status == 201
    assert call.provider("box", {"ssh_key": {"$secret": "pem"}}).status == 201
    assert call("POST", "providers/box/resolve", {}).body["kwargs"]["ssh_key"] == KEY
    assert server.call("DELETE", f"/v1/admin/namespaces/{call.ns}").status == 200
    assert server.call("POST", "/v1/admin/namespaces", {"name": call.ns}, encoding=JSON).status == 201
    assert call("GET", "secrets").body == {"secrets": []}
    assert call("GET", "providers?all=true").body == NO_PROVIDERS
    with closing(sqlite3.connect(f"file:{server.state_dir}/records.db?mode=ro", uri=True)) as conn, conn:
        for table in ("secret", "provider"):
            assert conn.execute(f"SELECT count(*) FROM {table} WHERE ns = ?", (call.ns,)).fetchone() == (0,)
    conn.close()
