"""Buckets that a server makes, adopts and deletes, and keys that end: against an emulation of AWS."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import s3_stores
from s3_stores import KEY_ID, SECRET, client
from served import Served, new_id, running
from spaces import Space

KEYPAIR = f"{KEY_ID}:{SECRET}"


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    with s3_stores.aws() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def regional(tmp_path_factory: pytest.TempPathFactory, cloud: str) -> Iterator[Served]:
    """A server to which the emulation is AWS."""
    with running(tmp_path_factory.mktemp("regional"), env={"AWS_ENDPOINT_URL": cloud}) as served:
        yield served


@pytest.fixture
def space(regional: Served) -> Space:
    space = Space(regional)
    space.made("secrets", {"name": "keys", "kind": "aws_keypair", "plaintext": KEYPAIR})
    return space


@pytest.fixture
def bucket() -> str:
    return f"b-{new_id()}"


def added(space: Space, bucket: str, name: str = "data", region: str | None = "us-east-1", **more: Any) -> Any:
    config = {"bucket": bucket, "region": region, "creds": {"$secret": "keys"}}
    return space("POST", "storages", {"name": name, "kind": "s3", "config": config, **more})


def names(space: Space) -> list[str]:
    return [row["name"] for row in space("GET", "storages").body["storages"]]


@pytest.mark.inventory("S-241")
def test_a_bucket_is_made_and_one_that_is_there_is_adopted(space: Space, cloud: str, bucket: str) -> None:
    made = added(space, bucket, provision=True)
    assert (made.status, made.body["bucketCreated"], made.body["bucket"]) == (201, True, bucket)
    client(cloud).head_bucket(Bucket=bucket)
    assert space("DELETE", "storages/data").status == 200
    again = added(space, bucket, provision=True)
    assert (again.status, again.body["bucketCreated"]) == (201, False)
    assert "bucketCreated" not in space("GET", "storages/data").body


@pytest.mark.inventory("S-242", "S-719")
def test_options_go_to_create_bucket_as_they_are(space: Space, cloud: str, bucket: str) -> None:
    options = {"ACL": "public-read", "ObjectLockEnabledForBucket": "true"}
    assert added(space, bucket, provision=True, s3Options=options).status == 201
    grants = client(cloud).get_bucket_acl(Bucket=bucket)["Grants"]
    assert any(grant["Permission"] == "READ" for grant in grants)
    assert client(cloud).get_object_lock_configuration(Bucket=bucket)
    where = {"CreateBucketConfiguration": '{"LocationConstraint": "eu-west-3"}'}
    other = f"o{bucket}"
    assert added(space, other, "other", provision=True, s3Options=where).status == 201
    assert client(cloud).get_bucket_location(Bucket=other)["LocationConstraint"] == "eu-west-3"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"Acl": "private"}, "'Acl' is no option of CreateBucket"),
        ({"Bucket": "another"}, "'Bucket' is no option"),
        ({"ObjectLockEnabledForBucket": "yes"}, "must be true or false"),
        ({"CreateBucketConfiguration": "eu-1"}, "must be JSON"),
    ],
)
def test_an_option_that_is_none_is_refused_before_anything_is_made(
    space: Space, cloud: str, bucket: str, options: Any, says: str
) -> None:
    refused = added(space, bucket, provision=True, s3Options=options)
    assert (refused.status, refused.body["field"]) == (422, "s3Options")
    assert says in refused.body["error"]
    assert bucket not in [one["Name"] for one in client(cloud).list_buckets()["Buckets"]]
    assert names(space) == []


def test_a_bucket_is_made_in_its_region_and_one_in_another_is_not_adopted(
    space: Space, cloud: str, bucket: str
) -> None:
    assert added(space, bucket, region="eu-central-1", provision=True).body["bucketCreated"] is True
    assert client(cloud).get_bucket_location(Bucket=bucket)["LocationConstraint"] == "eu-central-1"
    assert space("DELETE", "storages/data").status == 200
    for region in ("eu-west-1", None):
        refused = added(space, bucket, region=region, provision=True)
        assert (refused.status, refused.body["field"]) == (422, "config.region"), refused.body
        assert "eu-central-1" in refused.body["error"]
    assert names(space) == []


def test_of_two_at_once_one_bucket_comes_and_one_storage(space: Space, bucket: str) -> None:
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda name=name: answers.append(added(space, bucket, name, provision=True)))
        for name in ("one", "two")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answer.status for answer in answers) == [201, 409]
    assert len(names(space)) == 1


def test_a_name_that_is_taken_is_refused_before_a_bucket_is_made(space: Space, cloud: str, bucket: str) -> None:
    assert added(space, f"o{bucket}").status == 201
    assert added(space, bucket, provision=True).status == 409
    assert bucket not in [one["Name"] for one in client(cloud).list_buckets()["Buckets"]]


@pytest.mark.inventory("S-225")
def test_a_storage_is_removed_with_its_bucket(space: Space, cloud: str, bucket: str) -> None:
    assert added(space, bucket, provision=True).status == 201
    row = space("DELETE", "storages/data?purge=true").body
    assert (row["deleted"], row["bucketDeleted"]) == (True, True)
    assert bucket not in [one["Name"] for one in client(cloud).list_buckets()["Buckets"]]
    assert names(space) == []
    assert added(space, bucket).status == 201
    row = space("DELETE", "storages/data?purge=true").body
    assert (row["deleted"], row["bucketDeleted"]) == (True, False), "somebody else has deleted it, or a lost answer did"


def test_a_bucket_with_objects_stays_and_so_does_its_storage(space: Space, cloud: str, bucket: str) -> None:
    assert added(space, bucket, provision=True).status == 201
    client(cloud).put_object(Bucket=bucket, Key="k", Body=b"content")
    refused = space("DELETE", "storages/data?purge=true")
    assert (refused.status, refused.body["awsCode"]) == (409, "BucketNotEmpty")
    assert "delete its objects" in refused.body["hint"]
    assert names(space) == ["data"]
    assert client(cloud).get_object(Bucket=bucket, Key="k")["Body"].read() == b"content"


def test_what_is_not_one_storages_alone_is_not_deleted(space: Space, cloud: str, bucket: str) -> None:
    assert added(space, bucket, provision=True).status == 201
    inner = {"bucket": bucket, "prefix": "p", "creds": {"$secret": "keys"}}
    space.made("storages", {"name": "inner", "kind": "s3-prefix", "config": inner})
    assert space.refused("DELETE", "storages/inner?purge=true") == (422, "purge")
    refused = space("DELETE", "storages/data?purge=true")
    assert (refused.status, refused.body["error"]) == (409, "inner is in that bucket, too")
    client(cloud).head_bucket(Bucket=bucket)
    assert space("DELETE", "storages/inner").status == 200
    assert space("DELETE", "storages/data?purge=true").body["bucketDeleted"] is True
    gone = space("GET", "storages?deleted=true").body["storages"][0]["name"].replace(" ", "%20")
    assert space.refused("DELETE", f"storages/{gone}?purge=true") == (409, "name")


@pytest.mark.inventory("S-231", "S-232", "S-233")
@pytest.mark.parametrize(("asked", "seconds"), [(None, 3600), (900, 900), (129_600, 129_600)])
def test_keys_that_end_are_those_of_sts(space: Space, bucket: str, asked: int | None, seconds: int) -> None:
    assert added(space, bucket, region="eu-central-1").status == 201
    answer = space("POST", "storages/data/credentials", None if asked is None else {"durationSeconds": asked})
    told = answer.body
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    assert set(told) == {"accessKeyId", "secretAccessKey", "sessionToken", "expiration", "region", "endpoint"}
    assert (told["region"], told["endpoint"]) == ("eu-central-1", None)
    assert told["secretAccessKey"] != SECRET and told["sessionToken"]
    left = time.mktime(time.strptime(told["expiration"][:19], "%Y-%m-%dT%H:%M:%S")) - time.time() + time.timezone * -1
    assert abs(left - seconds) < 60


@pytest.mark.inventory("S-658")
@pytest.mark.parametrize("asked", [899, 129_601, 0, -1, 900.5, "900", True])
def test_keys_end_within_what_sts_knows(space: Space, bucket: str, asked: Any) -> None:
    assert added(space, bucket).status == 201
    assert space.refused("POST", "storages/data/credentials", {"durationSeconds": asked}) == (422, "durationSeconds")


def test_who_had_keys_made_is_written_down(space: Space, bucket: str, regional: Served) -> None:
    assert added(space, bucket, provision=True).status == 201
    assert space("POST", "storages/data/credentials", {}).status == 200
    assert space("DELETE", "storages/data?purge=true").status == 200
    with contextlib.closing(sqlite3.connect(regional.state_dir / "records.db")) as conn:
        rows = conn.execute("SELECT actor, action, subject FROM audit WHERE ns = ?", (space.ns,)).fetchall()
    for action, subject in (("bucket.create", bucket), ("storage.credentials", "data"), ("bucket.delete", bucket)):
        assert ("<open>", action, subject) in rows
    assert SECRET not in regional.said()


def test_a_store_that_hangs_holds_up_nobody_else_and_its_end_is_told(space: Space, regional: Served) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        config = {"bucket": "lab", "endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        config["creds"] = {"$secret": "keys"}  # type: ignore[assignment]
        space.made("storages", {"name": "slow", "kind": "s3", "config": config})
        answers: list[Any] = []
        asking = [
            threading.Thread(target=lambda: answers.append(space("POST", "storages/slow/credentials", {})))
            for _ in range(3)
        ]
        asking.append(threading.Thread(target=lambda: answers.append(space("DELETE", "storages/slow?purge=true"))))
        for thread in asking:
            thread.start()
        held, _ = listener.accept()
        other = Space(regional)
        other.made("secrets", {"name": "keys", "kind": "aws_keypair", "plaintext": KEYPAIR})
        assert added(other, f"b-{new_id()}", provision=True).status == 201
        assert other("POST", "storages/data/credentials", {}).status == 200
        assert added(space, f"b-{new_id()}", "meanwhile").status == 201
        assert space("POST", "storages/slow/presign", {"key": "k"}).status == 200
        assert answers == [], "they still wait"
        held.close()
    for thread in asking:
        thread.join(60)
    assert [answer.status for answer in answers] == [502] * 4
    assert "slow" in names(space), "what was not deleted is not forgotten"
