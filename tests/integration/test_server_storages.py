"""Storages and archives of code: what is stored, what never changes, and what is refused.

What asks an object store is in test_storage_objects.py and test_storage_buckets.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from served import ADMIN, Served, new_id
from spaces import Space, namespace, token_of

KEYS = {"name": "keys", "kind": "aws_keypair", "plaintext": "AKIA:planted-19f0"}
CREDS = {"$secret": "keys"}
BUCKET = {"bucket": "lab", "region": "eu-1", "creds": CREDS}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def space(server: Served) -> Space:
    """A namespace of an open server that has a pair of keys."""
    space = Space(server)
    space.made("secrets", KEYS)
    return space


def added(space: Space, name: str = "data", kind: str = "s3", config: Any = None, **more: Any) -> Any:
    return space.made("storages", {"name": name, "kind": kind, "config": config or BUCKET, **more})


@pytest.mark.inventory("S-221", "S-222", "S-223")
@pytest.mark.inventory("S-614", "S-615", "S-234")
def test_a_storage_is_added_listed_and_shown_with_its_target_beside_its_config(space: Space) -> None:
    config = {**BUCKET, "prefix": "/sets/imagenet/", "endpoint": "https://R2.example/"}
    row = added(space, kind="s3-prefix", config=config, description="read-only")
    assert (row["name"], row["kind"], row["config"], row["description"]) == ("data", "s3-prefix", config, "read-only")
    assert (row["bucket"], row["prefix"], row["endpoint"]) == ("lab", "sets/imagenet", "https://r2.example")
    assert (row["revision"], row["deletedAt"], row["warnings"]) == (1, None, [])
    assert added(space, "whole")["prefix"] is None
    assert [one["name"] for one in space("GET", "storages").body["storages"]] == ["data", "whole"]
    shown = {key: value for key, value in row.items() if key != "warnings"}
    assert space("GET", "storages/data").body == shown
    assert b"planted" not in space("GET", "storages").raw
    assert space.refused("GET", "storages/none") == (404, "name")


KINDS: list[Any] = [
    pytest.param("s3", {"bucket": "b"}, [], marks=pytest.mark.inventory("S-235")),
    pytest.param("s3", {"bucket": "b", "region": "r", "endpoint": "http://h", "creds": CREDS}, []),
    pytest.param("s3-prefix", {"bucket": "b", "prefix": "p"}, [], marks=pytest.mark.inventory("S-236")),
    pytest.param("s3", {"bucket": "b", "regoin": "r"}, ["config.regoin"], marks=pytest.mark.inventory("S-792")),
    pytest.param("s3", {"bucket": "b", "prefix": "p"}, ["config.prefix"]),
    pytest.param("s3", {"bucket": "b", "creds": {"$secret": "text"}}, ["config.creds"]),
    pytest.param("s3", {"bucket": "b", "creds": {"accessKeyId": "A", "secretAccessKey": "s"}}, ["config.creds"]),
    pytest.param("s3", {"bucket": "b", "note": "$secret:keys"}, ["config.note", "config.note"]),
]


@pytest.mark.parametrize(("kind", "config", "about"), KINDS)
def test_what_a_kind_does_not_know_is_stored_and_warned_of(
    space: Space, kind: str, config: Any, about: list[str]
) -> None:
    space.made("secrets", {"name": "text", "kind": "opaque", "plaintext": "x"})
    row = added(space, kind=kind, config=config)
    assert row["config"] == config
    assert [one.partition(":")[0] for one in row["warnings"]] == about


REFUSED: list[Any] = [
    ({"name": "My_data"}, 400, "name"),
    ({"kind": "s3_prefix"}, 422, "kind"),
    ({"kind": None}, 422, "kind"),
    ({"config": {}}, 422, "config.bucket"),
    ({"config": {"bucket": "a/b"}}, 422, "config.bucket"),
    ({"config": {"bucket": 3}}, 422, "config.bucket"),
    ({"kind": "s3-prefix"}, 422, "config.prefix"),
    ({"kind": "s3-prefix", "config": {"bucket": "b", "prefix": "/"}}, 422, "config.prefix"),
    ({"config": {"bucket": "b", "endpoint": "r2.example"}}, 422, "config.endpoint"),
    ({"config": {"bucket": "b", "endpoint": "http://[::1"}}, 422, "config.endpoint"),
    ({"config": {"bucket": "b", "region": ""}}, 422, "config.region"),
    ({"config": {"bucket": "b", "creds": "keys"}}, 422, "config.creds"),
    pytest.param(
        {"config": {**BUCKET, "creds": {"$secret": "none"}}}, 422, "config", marks=pytest.mark.inventory("S-239")
    ),
    ({"config": 3}, 422, "config"),
    ({"description": 3}, 422, "description"),
    ({"description": "x" * 2000}, 422, "description"),
    ({"provision": "yes"}, 422, "provision"),
    ({"s3Options": ["ACL"]}, 422, "s3Options"),
    ({"s3Options": {"ACL": "private"}}, 422, "s3Options"),
]


@pytest.mark.parametrize(("change", "status", "field"), REFUSED)
def test_what_makes_no_sense_is_refused_with_its_field(space: Space, change: Any, status: int, field: str) -> None:
    assert space.refused("POST", "storages", {"name": "data", "kind": "s3", "config": BUCKET, **change}) == (
        status,
        field,
    )
    assert space("GET", "storages").body["storages"] == []


@pytest.mark.inventory("S-224", "S-237", "S-831")
@pytest.mark.parametrize("field", ["bucket", "prefix", "endpoint"])
def test_a_target_never_changes(space: Space, field: str) -> None:
    config = {**BUCKET, "prefix": "p", "endpoint": "http://h"}
    added(space, kind="s3-prefix", config=config)
    without = {key: value for key, value in config.items() if key != field}
    for body in ({field: "other"}, {"config": {**config, field: "http://other"}}, {"config": without}):
        refused = space("PATCH", "storages/data", body)
        assert (refused.status, refused.body["error"], refused.body["field"]) == (409, "immutable field", field)
    assert space.refused("PATCH", "storages/data", {"kind": "s3"}) == (409, "kind")
    assert space.refused("PATCH", "storages/data", {"name": "other"}) == (409, "name")
    assert space("PATCH", "storages/data", {field: config[field], "config": config}).status == 200
    assert space("GET", "storages/data").body["config"] == config


@pytest.mark.inventory("S-224")
def test_description_creds_region_and_the_rest_of_the_config_change(space: Space) -> None:
    added(space)
    row = space("PATCH", "storages/data", {"region": "us-2", "description": "new", "creds": None}).body
    assert (row["config"], row["description"], row["revision"]) == ({"bucket": "lab", "region": "us-2"}, "new", 2)
    row = space("PATCH", "storages/data", {"creds": CREDS, "region": None}).body
    assert (row["config"], row["description"]) == ({"bucket": "lab", "creds": CREDS}, "new")
    assert space("PATCH", "storages/data", {"config": {"bucket": "lab"}}).body["config"] == {"bucket": "lab"}
    assert space("PATCH", "storages/data", {"description": None}).body["description"] == ""
    assert space.refused("PATCH", "storages/data", {"creds": {"$secret": "none"}}) == (422, "config")
    assert space.refused("PATCH", "storages/data", {"region": 3}) == (422, "region")
    assert space.refused("PATCH", "storages/data?revision=1", {"region": "r"}) == (409, "revision")
    assert space.refused("PATCH", "storages/none", {}) == (404, "name")


@pytest.mark.inventory("S-641", "S-642")
def test_a_name_and_a_target_are_taken_once_in_a_namespace(space: Space, server: Served) -> None:
    added(space, kind="s3-prefix", config={"bucket": "b", "prefix": "p", "endpoint": "http://h"})
    assert space.refused("POST", "storages", {"name": "data", "kind": "s3", "config": {"bucket": "c"}}) == (409, "name")
    same = {"name": "other", "kind": "s3-prefix", "config": {"bucket": "b", "prefix": "p/", "endpoint": "http://h/"}}
    refused = space("POST", "storages", same)
    assert (refused.status, refused.body["storage"]) == (409, "data")
    for index, config in enumerate(({"bucket": "c"}, {"bucket": "b"}, {"bucket": "b", "endpoint": "http://i"})):
        added(space, f"free-{index}", config=config)
    assert Space(server).made("storages", same)["bucket"] == "b"


@pytest.mark.inventory("S-225", "S-616", "S-633")
def test_a_removed_storage_stays_under_another_name(space: Space) -> None:
    added(space)
    row = space("DELETE", "storages/data").body
    assert row["deleted"] is True and row["deletedAt"] is not None
    assert row["name"] == f"data [deleted {row['deletedAt']}]"
    assert space("GET", "storages").body["storages"] == []
    assert [one["name"] for one in space("GET", "storages?deleted=true").body["storages"]] == [row["name"]]
    for method in ("GET", "PATCH", "DELETE"):
        assert space.refused(method, "storages/data", {} if method == "PATCH" else None) == (404, "name")


@pytest.mark.inventory("S-826")
def test_a_removed_storage_frees_its_name_and_its_target(space: Space) -> None:
    for _ in range(3):
        added(space)
        assert space("DELETE", "storages/data").status == 200
    assert added(space, "another")["bucket"] == "lab"
    gone = space("GET", "storages?deleted=true").body["storages"]
    assert len({row["name"] for row in gone}) == 4


@pytest.mark.inventory("S-240")
@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"kind": "s3-prefix", "config": {**BUCKET, "prefix": "p"}}, 422, "provision"),
        ({"config": {"bucket": "b"}}, 422, "config.creds"),
        ({"config": {"bucket": "b", "creds": {"$secret": "text"}}}, 422, "config.creds"),
        ({"config": {"creds": CREDS}}, 422, "config.bucket"),
        ({"config": {**BUCKET, "endpoint": "http://127.0.0.1:9"}}, 502, None),
    ],
)
@pytest.mark.inventory("S-719")
def test_a_bucket_that_cannot_be_made_leaves_no_storage(
    space: Space, change: Any, status: int, field: str | None
) -> None:
    space.made("secrets", {"name": "text", "kind": "opaque", "plaintext": "x"})
    body = {"name": "data", "kind": "s3", "config": BUCKET, "provision": True, **change}
    assert space.refused("POST", "storages", body) == (status, field)
    assert space("GET", "storages").body["storages"] == [], "nothing pretends that there is a bucket"


@pytest.mark.inventory("S-719")
def test_a_bucket_that_cannot_be_deleted_keeps_its_storage(space: Space) -> None:
    added(space, config={**BUCKET, "endpoint": "http://127.0.0.1:9"})
    added(space, "bare", config={"bucket": "b"})
    assert space.refused("DELETE", "storages/bare?purge=true") == (422, "config.creds")
    refused = space("DELETE", "storages/data?purge=true")
    assert (refused.status, refused.body["awsCode"]) == (502, "EndpointConnectionError")
    assert space("GET", "storages/data").body["deletedAt"] is None
    assert space("DELETE", "secrets/keys").status == 200
    assert space.refused("DELETE", "storages/data?purge=true") == (422, "config.creds")


@pytest.mark.inventory("S-230")
@pytest.mark.parametrize(
    ("verb", "body", "status", "field"),
    [
        ("none/presign", {"key": "k"}, 404, "name"),
        ("none/credentials", {}, 404, "name"),
        ("data/presign", {}, 422, "key"),
        ("data/presign", {"key": "k", "operation": "delete"}, 422, "operation"),
        ("data/presign", {"key": "k", "operation": "GET"}, 422, "operation"),
        ("data/presign", {"key": "k", "expiresIn": 0}, 422, "expiresIn"),
        ("data/presign", {"key": "k", "expiresIn": "600"}, 422, "expiresIn"),
        ("data/presign", {"key": "k", "expiresIn": 0.5}, 422, "expiresIn"),
        ("bare/credentials", {}, 422, "config.creds"),
        ("bare/presign", {"key": "k"}, 422, "config.creds"),
    ],
)
def test_what_asks_for_nonsense_is_refused_with_its_field(
    space: Space, verb: str, body: Any, status: int, field: str | None
) -> None:
    added(space)
    added(space, "bare", config={"bucket": "b"})
    assert space.refused("POST", f"storages/{verb}", body) == (status, field)


@pytest.mark.inventory("S-243", "S-543")
def test_a_sibling_of_the_org_reaches_storages_by_their_namespace_and_strangers_do_not(secured_server: Served) -> None:
    org = f"org-{new_id()}"
    ours, sibling, stranger = (namespace(secured_server, one) for one in (org, org, None))
    added(Space(secured_server, ours, ADMIN), config={"bucket": "b"})
    reader = Space(secured_server, ours, token_of(secured_server, sibling))
    assert reader("GET", "storages/data").body["bucket"] == "b"
    assert Space(secured_server, sibling, ADMIN)("GET", "storages").body["storages"] == []
    assert Space(secured_server, ours, token_of(secured_server, stranger))("GET", "storages/data").status == 403


# -- archives of code


def archived(space: Space, remote: str = "https://example.com/r.git", commit: str = COMMIT, **more: Any) -> Any:
    return space("POST", "code-repos", {"remote": remote, "commit": commit, "archiveKey": f"code/{commit}", **more})


@pytest.mark.inventory("S-244", "S-246", "S-643")
@pytest.mark.inventory("S-618", "S-250")
def test_a_commit_is_archived_once(space: Space) -> None:
    added(space, "code-staging")
    made = archived(space)
    assert (made.status, made.body["alreadyArchived"], made.body["storageName"]) == (201, False, "code-staging")
    assert (made.body["archiveKey"], made.body["ref"]) == (f"code/{COMMIT}", None)
    again = archived(space, archiveKey="elsewhere")
    assert (again.status, again.body) == (200, {**made.body, "alreadyArchived": True})
    assert archived(space, remote="git@example.com:r.git").status == 201
    assert archived(space, commit="f" * 64).status == 201
    assert len(space("GET", "code-repos").body["codeRepos"]) == 3


@pytest.mark.inventory("S-245", "S-718")
def test_archives_are_listed_newest_first_in_pages_and_by_remote_and_commit(space: Space) -> None:
    added(space, "code-staging")
    commits = [f"{index:040x}" for index in range(5)]
    for index, commit in enumerate(commits):
        assert archived(space, remote=f"r{index % 2}", commit=commit).status == 201
    found, cursor = [], ""
    while cursor is not None:
        page = space("GET", f"code-repos?limit=2{cursor}").body
        found.append([row["commit"] for row in page["codeRepos"]])
        cursor = None if page["next"] is None else f"&cursor={page['next']}"
    newest = commits[::-1]
    assert found == [newest[:2], newest[2:4], newest[4:]]
    assert [row["commit"] for row in space("GET", "code-repos?remote=r1").body["codeRepos"]] == [commits[3], commits[1]]
    assert [row["remote"] for row in space("GET", f"code-repos?commit={commits[2]}").body["codeRepos"]] == ["r0"]


@pytest.mark.inventory("S-249")
def test_a_tree_with_changes_is_archived_under_a_ref_of_its_own(space: Space) -> None:
    added(space, "code-staging")
    assert archived(space, ref="refs/snapshots/run-01").body["ref"] == "refs/snapshots/run-01"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"remote": ""}, "remote"),
        ({"remote": 3}, "remote"),
        ({"commit": "0123456"}, "commit"),
        ({"commit": "X" * 40}, "commit"),
        ({"archiveKey": None}, "archiveKey"),
        ({"storageName": "none-such"}, "storageName"),
        ({"storageName": 3}, "storageName"),
        ({"ref": ""}, "ref"),
    ],
)
def test_an_archive_that_makes_no_sense_is_refused_with_its_field(space: Space, change: Any, field: str) -> None:
    added(space, "code-staging")
    body = {"remote": "r", "commit": COMMIT, "archiveKey": "k", **change}
    assert space.refused("POST", "code-repos", body) == (422, field)


def test_an_archive_is_in_a_storage_that_is_there(space: Space) -> None:
    refused = archived(space)
    assert refused.status == 422 and "storage add code-staging --kind s3" in refused.body["hint"]
    added(space, "code-staging")
    assert space("DELETE", "storages/code-staging").status == 200
    assert archived(space).status == 422
