"""Modes of a server: what is stored, what is asked of it, who reads it, and that it stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served import ADMIN, Served, new_id, running
from spaces import Space, namespace, token_of

SECRET = {"name": "keys", "kind": "opaque", "plaintext": "planted-5b1f"}


class Client(Space):
    """With a way to add a mode."""

    def add(self, name: str, **config: Any) -> Any:
        return self.made("modes", {"name": name, **config})


@pytest.fixture
def modes(server: Served) -> Client:
    """An open server, and a namespace that nobody has used."""
    return Client(server)


@pytest.mark.inventory("S-181", "S-182", "S-544")
@pytest.mark.inventory("C-1396")
def test_a_mode_is_added_to_a_namespace_that_comes_with_it_listed_changed_and_removed(modes: Client) -> None:
    assert modes("GET", "modes").status == 404, "there is no such namespace yet"
    row = modes.add("small")
    assert (row["backend"], row["runner"]) == ("fabric", "process")
    assert (row["image"], row["tags"], row["resources"], row["env"]) == (None, [], {}, {})
    assert (row["timeout_s"], row["provider"], row["revision"], row["warnings"]) == (None, None, 1, [])
    modes.add("big", image="example/torch:2.4")
    assert [one["name"] for one in modes("GET", "modes").body["modes"]] == ["big", "small"]
    changed = modes("PATCH", "modes/small", {"timeout_s": 60, "tags": ["gpu:h100"]}).body
    assert (changed["timeout_s"], changed["tags"], changed["revision"]) == (60, ["gpu:h100"], 2)
    shown = modes("GET", "modes/small").body
    assert shown == {key: value for key, value in changed.items() if key != "warnings"}
    assert modes("DELETE", "modes/small").body == {"name": "small", "deleted": True}
    for method in ("GET", "PATCH", "DELETE"):
        assert modes(method, "modes/small", {} if method == "PATCH" else None).status == 404


@pytest.mark.inventory("S-184", "S-610", "S-612")
def test_every_field_comes_back_as_it_was_sent(modes: Client) -> None:
    config = {
        "backend": "local",
        "runner": "docker",
        "image": "ghcr.io/example/torch:2.4",
        "tags": ["gpu:h100", "zone"],
        "resources": {"gpu": 1, "mem": "64Gi", "deep": {"list": [1, 2.5, None, True]}},
        "env": {"LEVEL": "3"},
        "timeout_s": 7200,
        "provider": "aws-prod",
    }
    row = modes.add("whole", **config)
    assert {key: row[key] for key in config} == config
    assert row["warnings"] == ["provider: there is no provider 'aws-prod' yet"]
    assert modes("POST", "providers", {"name": "aws-prod", "launcher": "EC2"}).status == 201
    assert modes("PATCH", "modes/whole", {}).body["warnings"] == []


@pytest.mark.inventory("S-183", "S-770", "C-1443")
@pytest.mark.inventory("S-736")
def test_any_word_is_a_backend_or_a_runner_and_an_unknown_one_is_warned_of(modes: Client) -> None:
    row = modes.add("typo", backend="fabirc", runner="dokcer")
    assert (row["backend"], row["runner"]) == ("fabirc", "dokcer")
    assert [warning.partition(" is ")[0] for warning in row["warnings"]] == ["backend: 'fabirc'", "runner: 'dokcer'"]
    assert modes.add("alias", runner="subprocess")["warnings"] == []


@pytest.mark.inventory("S-185", "S-611", "C-142")
def test_what_a_mode_does_not_know_stays_below_its_resources(modes: Client) -> None:
    row = modes.add("extra", resources={"gpu": 1}, instance_type="p5", time_limit="02:00:00")
    assert row["resources"] == {"gpu": 1, "__extras": {"instance_type": "p5", "time_limit": "02:00:00"}}
    assert modes.add("again", resources=row["resources"])["resources"] == row["resources"]
    kept = modes("PATCH", "modes/extra", {"resources": {"cpu": 4}, "time_limit": None}).body["resources"]
    assert kept == {"cpu": 4, "__extras": {"instance_type": "p5"}}
    gone = modes("PATCH", "modes/extra", {"resources": {"cpu": 4, "__extras": {}}}).body
    assert gone["resources"] == {"cpu": 4}
    # Who sends back what was read changes nothing but the time.
    again = modes("PATCH", "modes/extra", gone).body
    assert {key: again[key] for key in ("resources", "tags", "env")} == {"resources": {"cpu": 4}, "tags": [], "env": {}}


def test_null_takes_a_field_back_to_its_default(modes: Client) -> None:
    modes.add("full", runner="docker", tags=["a"], env={"A": "1"}, timeout_s=5, image="i")
    nothing = dict.fromkeys(("runner", "tags", "env", "timeout_s", "image", "resources"))
    row = modes("PATCH", "modes/full", nothing).body
    assert (row["runner"], row["tags"], row["env"], row["timeout_s"], row["image"]) == ("process", [], {}, None, None)


def test_a_change_that_names_a_revision_is_made_to_that_one_only(modes: Client) -> None:
    modes.add("shared")
    assert modes("PATCH", "modes/shared?revision=1", {"timeout_s": 1}).body["revision"] == 2
    refused = modes("PATCH", "modes/shared?revision=1", {"timeout_s": 2})
    assert (refused.status, refused.body["revision"]) == (409, 2)
    assert modes("GET", "modes/shared").body["timeout_s"] == 1


REFUSED: list[Any] = [
    ({"name": "Big"}, 400, "name"),
    ({"name": "-a"}, 400, "name"),
    ({"name": "a" * 201}, 400, "name"),
    ({}, 400, "name"),
    ({"backend": 3}, 422, "backend"),
    ({"runner": ""}, 422, "runner"),
    ({"image": ["i"]}, 422, "image"),
    ({"tags": "gpu"}, 422, "tags"),
    ({"tags": [1]}, 422, "tags[0]"),
    ({"resources": [1]}, 422, "resources"),
    ({"resources": {"__extras": 3}}, 422, "resources.__extras"),
    ({"resources": {"__extras": {"image": 3}}}, 422, "resources.__extras.image"),
    ({"env": {"A": [1]}}, 422, "env.A"),
    ({"timeout_s": 0}, 422, "timeout_s"),
    ({"timeout_s": True}, 422, "timeout_s"),
    ({"server": 3}, 422, "server"),
    ({"$secret": "keys"}, 400, "$secret"),
    ({"env": {"A": {"$secret": ""}}}, 400, "env.A.$secret"),
    ({"env": {"A": {"$secret": "none-such"}}}, 422, "env"),
    ({"notes": "x" * 70_000}, 413, None),
]


@pytest.mark.inventory("S-188", "S-650")
@pytest.mark.parametrize(("config", "status", "field"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_field(
    modes: Client, config: dict[str, Any], status: int, field: str | None
) -> None:
    named = config if "name" in config or not config else {"name": "m", **config}
    answer = modes("POST", "modes", named)
    assert (answer.status, answer.body.get("field")) == (status, field), answer.raw


def test_a_name_that_is_taken_stays_taken_and_cannot_be_changed(modes: Client) -> None:
    modes.add("one", timeout_s=5)
    again = modes("POST", "modes", {"name": "one", "timeout_s": 6})
    assert (again.status, again.body["field"]) == (409, "name")
    assert modes("PATCH", "modes/one", {"name": "two"}).status == 400
    assert modes("GET", "modes/one").body["timeout_s"] == 5


@pytest.mark.inventory("S-117", "S-118", "S-120")
def test_a_secret_stays_a_reference_and_must_be_there_whenever_it_is_written(modes: Client) -> None:
    reference = {"$secret": "keys"}
    body = {"name": "m", "env": {"TOKEN": reference}, "creds": {"inner": [reference]}}
    refused = modes("POST", "modes", body)
    assert (refused.status, refused.body["error"], refused.body["secret"]) == (422, "unknown secret", "keys")
    assert modes("POST", "secrets", SECRET).status == 201
    row = modes("POST", "modes", body).body
    assert row["env"] == {"TOKEN": reference}
    assert row["resources"] == {"__extras": {"creds": {"inner": [reference]}}}
    assert b"planted" not in modes("GET", "modes/m").raw
    other = modes("PATCH", "modes/m", {"creds": {"$secret": "other"}})
    assert (other.status, other.body["secret"]) == (422, "other")


@pytest.mark.inventory("S-114", "S-111")
def test_the_depth_of_a_mode_is_bounded_and_text_that_looks_like_a_reference_is_text(modes: Client) -> None:
    deep: Any = "end"
    for _ in range(25):
        deep = {"in": deep}
    assert modes("POST", "modes", {"name": "m", "deep": deep}).status == 400
    row = modes.add("m", env={"A": "$secret:keys", "LEVEL": 3, "FLAG": True})
    assert row["env"] == {"A": "$secret:keys", "LEVEL": "3", "FLAG": "true"}


@pytest.mark.inventory("S-638")
def test_siblings_of_an_org_read_modes_and_strangers_do_not(secured_server: Served) -> None:
    org = f"org-{new_id()}"
    ours, sibling, stranger = (namespace(secured_server, one) for one in (org, org, None))
    Client(secured_server, ours, ADMIN).add("shared", timeout_s=1)
    Client(secured_server, sibling, ADMIN).add("shared", timeout_s=2)
    reader = Client(secured_server, ours, token_of(secured_server, sibling, "submit"))
    assert reader("GET", "modes/shared").body["timeout_s"] == 1
    assert [row["name"] for row in reader("GET", "modes").body["modes"]] == ["shared"]
    assert reader("PATCH", "modes/shared", {"timeout_s": 9}).status == 403
    assert Client(secured_server, ours, token_of(secured_server, stranger))("GET", "modes").status == 403


def test_modes_are_told_of_survive_a_restart_and_go_with_their_namespace(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        modes = Client(server)
        modes.add("kept", timeout_s=5, partition="gpu")
        modes.add("gone")
        assert modes("PATCH", "modes/kept", {"timeout_s": 6}).status == 200
        assert modes("DELETE", "modes/gone").status == 200
        told = [(row["kind"], row["payload"]["mode"]) for row in modes("GET", "events").body["events"]]
        assert told == [("mode.remove", "gone"), ("mode.change", "kept"), ("mode.add", "gone"), ("mode.add", "kept")]
        before = modes("GET", "modes").body
        assert server.stop() == 0
    with running(tmp_path / "server") as server:
        modes = Client(server, modes.ns)
        assert modes("GET", "modes").body == before
        assert server.call("DELETE", f"/v1/admin/namespaces/{modes.ns}").body["deleted"] is True
        modes.add("new")
        assert [row["name"] for row in modes("GET", "modes").body["modes"]] == ["new"]
