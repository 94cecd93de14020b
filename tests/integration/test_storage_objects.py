"""URLs for objects, on a server that verifies them: what they open, for how long, and what they never open."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from s3_stores import KEY_ID, S3, SECRET, moved, s3
from served import ADMIN, Served, new_id
from spaces import Space, namespace, token_of

KEYPAIR = f"{KEY_ID}:{SECRET}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3") / "buckets") as store:
        yield store


@pytest.fixture
def space(server: Served) -> Space:
    """A namespace with the keys of the store."""
    space = Space(server)
    space.made("secrets", {"name": "keys", "kind": "aws_keypair", "plaintext": KEYPAIR})
    return space


def storage(space: Space, store: S3, bucket: str, **config: Any) -> Any:
    if not (store.root / bucket).is_dir():
        store.has(bucket)
    whole = {"bucket": bucket, "region": "us-east-1", "endpoint": store.url, "creds": {"$secret": "keys"}, **config}
    kind = "s3-prefix" if "prefix" in config else "s3"
    return space.made("storages", {"name": "data", "kind": kind, "config": whole})


def presigned(space: Space, key: str, **more: Any) -> Any:
    answer = space("POST", "storages/data/presign", {"key": key, **more})
    assert answer.status == 200, answer.raw
    assert answer.headers["cache-control"] == "no-store"
    return answer.body


@pytest.mark.inventory("S-226", "S-227", "S-229")
def test_a_url_puts_an_object_below_the_prefix_and_another_gets_it(space: Space, store: S3) -> None:
    storage(space, store, "first", prefix="/sets/a/")
    put = presigned(space, "runs/model.pt", operation="put")
    assert (put["key"], put["bucket"], put["operation"]) == ("sets/a/runs/model.pt", "first", "put")
    assert moved("PUT", put["url"], b"weights").status_code == 200
    assert store.keys("first") == {"sets/a/runs/model.pt": b"weights"}
    got = presigned(space, "runs/model.pt")
    assert got["operation"] == "get"
    assert moved("GET", got["url"]).content == b"weights"


ODD: list[str] = [
    "a b.txt",
    "ümläut/日本語/🚀.bin",
    "narrow\u202fspace and wide\u3000one.png",
    "decomposed-u\u0308.txt",
    "100%41 %2e%2e %2F.txt",
    "q?a=b&c#d;e,f:g@h!i$j'k(l)*m+n=o",
    "~tilde-._",
    "a..b/...c/d..",
    '"quoted" <tag> \\back|slash^`',
    "[x]{y}",
    "k" * 200,
    "/".join(["d" * 100] * 4),
]


@pytest.mark.parametrize("key", ODD)
def test_any_key_that_a_store_takes_is_quoted_so_that_it_arrives(space: Space, store: S3, key: str) -> None:
    bucket = f"odd-{new_id().lower()}"
    storage(space, store, bucket, prefix="p q/é")
    assert moved("PUT", presigned(space, key, operation="put")["url"], key.encode()).status_code == 200
    assert moved("GET", presigned(space, key)["url"]).content == key.encode()
    assert store.keys(bucket) == {f"p q/é/{key}": key.encode()}


NO_KEYS: list[Any] = [
    "",
    "/k",
    "//k",
    "..",
    ".",
    "../k",
    "a/../../k",
    "a/../k",
    "a/.",
    "./k",
    "a/..",
    "a\nb",
    "a\0b",
    "\x7f",
    "k" * 1024,
    "é" * 512,
    "k" * 1025,
    3,
    None,
    ["k"],
]


@pytest.mark.parametrize("key", NO_KEYS)
@pytest.mark.parametrize("operation", ["get", "put"])
def test_a_key_that_leads_out_or_that_no_store_takes_is_refused(space: Space, key: Any, operation: str) -> None:
    config = {"bucket": "b", "prefix": "p", "endpoint": "http://127.0.0.1:9", "creds": {"$secret": "keys"}}
    space.made("storages", {"name": "data", "kind": "s3-prefix", "config": config})
    answer = space("POST", "storages/data/presign", {"key": key, "operation": operation})
    assert (answer.status, answer.body["field"]) == (422, "key")
    assert b"X-Amz" not in answer.raw


def test_a_lone_surrogate_is_refused_as_no_text(space: Space, server: Served) -> None:
    space.made("storages", {"name": "data", "kind": "s3", "config": {"bucket": "lab", "creds": {"$secret": "keys"}}})
    at = f"/v1/namespaces/{space.ns}/storages/data/presign"
    answer = server.raw("POST", at, b'{"key": "a\\ud800b"}', {"Content-Type": "application/json"})
    assert answer.status in (400, 422)


@pytest.mark.parametrize("prefix", ["..", "a/../b", "./a", "a/."])
def test_a_prefix_that_leads_out_is_refused_when_it_is_written_down(space: Space, prefix: str) -> None:
    body = {"name": "data", "kind": "s3-prefix", "config": {"bucket": "b", "prefix": prefix}}
    assert space.refused("POST", "storages", body) == (422, "config.prefix")


@pytest.mark.inventory("S-228", "S-657")
@pytest.mark.parametrize(("asked", "seconds"), [(None, 3600), (1, 1), (900, 900), (86_400, 86_400), (10**9, 86_400)])
def test_a_url_is_good_for_an_hour_or_as_long_as_was_asked_but_at_most_a_day(
    space: Space, store: S3, asked: int | None, seconds: int
) -> None:
    storage(space, store, "lab")
    told = presigned(space, "k", **({} if asked is None else {"expiresIn": asked}))
    assert told["expiresIn"] == seconds
    assert f"X-Amz-Expires={seconds}&" in told["url"]
    ends = datetime.fromisoformat(told["expiresAt"]).timestamp()
    assert abs(ends - time.time() - seconds) < 30


def test_a_url_that_has_expired_opens_nothing_and_one_for_another_key_or_verb_neither(space: Space, store: S3) -> None:
    storage(space, store, "lab")
    store.client().put_object(Bucket="lab", Key="k", Body=b"content")
    short, long = presigned(space, "k", expiresIn=1), presigned(space, "k")
    assert moved("GET", long["url"].replace("/lab/k?", "/lab/j?")).status_code == 403
    assert moved("PUT", long["url"], b"mine").status_code == 403
    assert moved("GET", long["url"].replace("Expires=3600", "Expires=7200")).status_code == 403
    deadline = time.monotonic() + 30
    while moved("GET", short["url"]).status_code == 200:  # the store's clock decides
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert moved("GET", short["url"]).status_code in (400, 403)
    assert moved("GET", long["url"]).content == b"content"


@pytest.mark.inventory("S-106", "S-775", "C-1442")
def test_a_json_keypair_and_one_that_was_rotated_are_used_as_they_are_now(space: Space, store: S3) -> None:
    storage(space, store, "lab")
    store.client().put_object(Bucket="lab", Key="k", Body=b"content")
    for pair, status in (
        ("AKIAGONE:wrong", 403),
        (json.dumps({"accessKeyId": KEY_ID, "secretAccessKey": SECRET}), 200),
        (json.dumps({"AccessKeyId": KEY_ID, "SecretAccessKey": SECRET}), 200),
        (KEYPAIR, 200),
    ):
        assert space("PUT", "secrets/keys", {"plaintext": pair}).status == 200
        assert moved("GET", presigned(space, "k")["url"]).status_code == status


def test_a_url_needs_no_network(space: Space) -> None:
    for name, endpoint in (("gone", "http://127.0.0.1:9"), ("unknown", "https://no-such-host.invalid"), ("aws", None)):
        config = {"bucket": "lab", "region": "eu-central-1", "endpoint": endpoint, "creds": {"$secret": "keys"}}
        space.made("storages", {"name": name, "kind": "s3", "config": config})
        url = space("POST", f"storages/{name}/presign", {"key": "k"}).body["url"]
        assert url.startswith(f"{endpoint}/lab/k?" if endpoint else "https://lab.s3.eu-central-1.amazonaws.com/k?")


@pytest.mark.parametrize("verb", ["presign", "credentials"])
def test_a_storage_without_keys_that_do_is_refused_with_what_to_do(space: Space, verb: str) -> None:
    space.made("secrets", {"name": "text", "kind": "opaque", "plaintext": KEYPAIR})
    space.made("secrets", {"name": "broken", "kind": "aws_keypair", "plaintext": "planted-no-colon"})
    for name, creds in (
        ("none", None),
        ("inline", {"accessKeyId": "A", "secretAccessKey": "planted"}),
        ("text", {"$secret": "text"}),
        ("broken", {"$secret": "broken"}),
        ("gone", {"$secret": "keys"}),
    ):
        space.made("storages", {"name": name, "kind": "s3", "config": {"bucket": f"b-{name}", "creds": creds}})
    assert space("DELETE", "secrets/keys").status == 200
    for name in ("none", "inline", "text", "broken", "gone"):
        answer = space("POST", f"storages/{name}/{verb}", {"key": "k"} if verb == "presign" else {})
        assert (answer.status, answer.body["field"]) == (422, "config.creds"), name
        assert b"planted" not in answer.raw
        assert answer.body.get("hint") or "is of kind opaque" in answer.body["error"]


@pytest.mark.parametrize("verb", ["presign", "credentials"])
def test_a_removed_storage_gives_nothing_under_either_of_its_names(space: Space, store: S3, verb: str) -> None:
    body = {"key": "k"} if verb == "presign" else {}
    storage(space, store, "lab")
    gone = space("DELETE", "storages/data").body["name"].replace(" ", "%20")
    assert space.refused("POST", f"storages/data/{verb}", body) == (404, "name")
    assert space.refused("POST", f"storages/{gone}/{verb}", body) == (409, "name")


@pytest.mark.inventory("S-243", "S-543")
def test_who_may_have_a_url_or_keys(secured_server: Served, store: S3) -> None:
    org = f"org-{new_id()}"
    ours, sibling, stranger = (namespace(secured_server, one) for one in (org, org, None))
    admin = Space(secured_server, ours, ADMIN)
    admin.made("secrets", {"name": "keys", "kind": "aws_keypair", "plaintext": KEYPAIR})
    storage(admin, store, "lab")
    # scope: (a URL, keys) of its own namespace, and of a sibling's
    expected = {"full": (200, 502, 200, 502), "submit": (200, 403, 200, 403), "worker": (200, 403, 403, 403)}
    for scope, (own_url, own_keys, sibling_url, sibling_keys) in expected.items():
        for of, url, keys in ((ours, own_url, own_keys), (sibling, sibling_url, sibling_keys)):
            space = Space(secured_server, ours, token_of(secured_server, of, scope))
            assert space("POST", "storages/data/presign", {"key": "k"}).status == url, (scope, of)
            assert space("POST", "storages/data/credentials", {}).status == keys, (scope, of)
    foreign = Space(secured_server, ours, token_of(secured_server, stranger))
    assert foreign("POST", "storages/data/presign", {"key": "k"}).status == 403
    assert Space(secured_server, sibling, ADMIN)("POST", "storages/data/presign", {"key": "k"}).status == 404
