"""`lakeshore storage` before a server and an object store: URLs, keys that end, buckets made and deleted, as typed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import s3_stores
from s3_stores import KEY_ID, S3, SECRET, moved, s3
from served import Served, new_id, running
from spaces import Space

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]
LISTS = """
import botocore.session
client = botocore.session.Session().create_client("s3")
for one in client.list_objects_v2(Bucket="{bucket}")["Contents"]:
    print(one["Key"])
"""


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    with s3_stores.aws() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3") / "buckets") as store:
        yield store


@pytest.fixture(scope="module")
def regional(tmp_path_factory: pytest.TempPathFactory, cloud: str) -> Iterator[Served]:
    """A server to which the emulation is AWS."""
    with running(tmp_path_factory.mktemp("regional"), env={"AWS_ENDPOINT_URL": cloud}) as served:
        yield served


@pytest.fixture
def space(regional: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Space:
    space = Space(regional)
    space.made("secrets", {"name": "aws-prod-keys", "kind": "aws_keypair", "plaintext": f"{KEY_ID}:{SECRET}"})
    monkeypatch.chdir(tmp_path)
    for variable, value in (
        ("HOME", tmp_path),
        ("XDG_CONFIG_HOME", tmp_path / "config"),
        ("LAKESHORE_STATE_DIR", tmp_path / "state"),
        ("LAKESHORE_URL", regional.url),
        ("LAKESHORE_NAMESPACE", space.ns),
    ):
        monkeypatch.setenv(variable, str(value))
    return space


@pytest.fixture
def typed(run: Run, space: Space) -> Run:
    """Run a line as somebody types it."""
    return lambda line: run(*shlex.split(line))


@pytest.fixture
def bucket() -> str:
    return f"b-{new_id()}"


def at_store(typed: Run, store: S3, *more: str) -> None:
    """The storage `my-s3` is on the store that verifies."""
    if not (store.root / "my-bucket").is_dir():
        store.has("my-bucket")
    line = f"storage add my-s3 --kind s3 --bucket my-bucket --endpoint {store.url} --creds aws-prod-keys"
    assert typed(" ".join((line, *more)))[0] == 0


@pytest.mark.inventory("C-166", "C-169", "C-1154")
@pytest.mark.inventory("C-608", "C-609", "C-610")
@pytest.mark.inventory("C-1151", "C-1152", "C-1153")
def test_a_url_is_all_that_presign_prints_and_curl_takes_it(typed: Run, store: S3) -> None:
    at_store(typed, store)
    code, out, err = typed("storage presign my-s3 uploads/new.bin --put")
    assert (code, out.count("\n"), err) == (0, 1, "")
    assert out.startswith(f"{store.url}/my-bucket/uploads/new.bin?")
    assert "X-Amz-Expires=3600&" in out
    assert moved("PUT", out.strip(), b"content").status_code == 200
    got = typed("storage presign my-s3 uploads/new.bin --expires-in 600")[1].strip()
    assert moved("GET", got).content == b"content"
    assert "X-Amz-Expires=86400&" in typed("storage presign my-s3 uploads/new.bin --expires-in 100000")[1]
    row = json.loads(typed("storage presign my-s3 uploads/new.bin --json")[1])
    assert (row["key"], row["bucket"]) == ("uploads/new.bin", "my-bucket")
    code, out, err = typed("storage presign my-s3 ../new.bin")
    assert (code, out) == (1, "") and err.startswith("error: key: must not have a part")


@pytest.mark.inventory("C-167", "C-476", "C-1380")
@pytest.mark.inventory("C-611", "C-612", "C-613")
@pytest.mark.inventory("C-614", "C-1156", "C-1157")
def test_keys_that_end_are_printed_for_a_shell_for_programs_and_for_people(typed: Run, space: Space) -> None:
    assert typed("storage add my-s3 --kind s3 --bucket b --region eu-central-1 --creds aws-prod-keys")[0] == 0
    row = json.loads(typed("storage credentials my-s3 --duration 7200 --json")[1])
    lines = typed("storage credentials my-s3 --env")[1].splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        "export AWS_ACCESS_KEY_ID",
        "export AWS_SECRET_ACCESS_KEY",
        "export AWS_SESSION_TOKEN",
        "export AWS_REGION",
    ]
    done = subprocess.run(["/bin/sh", "-c", "\n".join([*lines, "env"])], capture_output=True, text=True, check=True)
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert found["AWS_REGION"] == "eu-central-1" and found["AWS_SESSION_TOKEN"]
    code, plain, _ = typed("storage credentials my-s3")
    assert (code, [line.split()[0] for line in plain.splitlines()][-1]) == (0, "ends")
    for secret in (row["secretAccessKey"], row["sessionToken"], SECRET):
        assert secret not in plain


def test_a_store_that_is_not_aws_is_named_to_the_shell_too(typed: Run, space: Space, cloud: str) -> None:
    line = f"storage add my-s3 --kind s3 --bucket b --endpoint {cloud} --creds aws-prod-keys"
    assert typed(line)[0] == 0
    assert typed("storage credentials my-s3 --env")[1].splitlines()[-1] == f"export AWS_ENDPOINT_URL_S3={cloud}"


def test_a_store_without_sts_says_so(typed: Run, store: S3) -> None:
    at_store(typed, store)
    code, out, err = typed("storage credentials my-s3")
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and "hint: " in err and SECRET not in err


@pytest.mark.inventory("C-161", "C-482", "C-1142")
@pytest.mark.inventory("C-164", "C-596", "C-597")
@pytest.mark.inventory("C-607", "C-1150")
def test_a_bucket_is_made_adopted_and_deleted(typed: Run, space: Space, bucket: str) -> None:
    add = f"storage add new-bucket --kind s3 --bucket {bucket} --region us-east-1 --creds aws-prod-keys --provision"
    assert typed(f"{add} --s3-option ACL=private")[:2] == (0, "storage new-bucket added  (s3); bucket made\n")
    assert typed("storage remove new-bucket")[:2] == (0, "new-bucket removed\n")
    assert json.loads(typed(f"{add} --json")[1])["bucketCreated"] is False
    assert typed("storage remove new-bucket --purge")[:2] == (0, f"new-bucket removed; bucket {bucket} deleted\n")
    assert typed(f"{add} --s3-option acl=private")[2].startswith("error: s3Options: 'acl' is no option of CreateBucket")
    assert typed("storage list")[1] == ""


@pytest.mark.inventory("C-859", "C-1184", "C-1185")
@pytest.mark.inventory("C-1187", "C-1188", "C-1189")
def test_the_round_trip_of_the_page(space: Space, cloud: str, tmp_path: Path) -> None:
    bucket = f"lakeshore-test-{new_id()}"
    lakeshore = f"{shlex.quote(sys.executable)} -m lakeshore"
    (tmp_path / "list.py").write_text(LISTS.format(bucket=bucket))
    script = f"""
set -e
lakeshore() {{ {lakeshore} "$@"; }}
printf '%s:%s' '{KEY_ID}' '{SECRET}' | lakeshore secrets add page-keys --kind aws_keypair >&2
lakeshore storage add my-bucket --kind s3 --bucket {bucket} --region us-east-1 --creds page-keys --provision >&2
lakeshore storage show my-bucket >&2
echo hi > hello.txt
PUT_URL=$(lakeshore storage presign my-bucket hello.txt --put --expires-in 600)
curl -sS -X PUT --upload-file hello.txt "$PUT_URL"
curl -sS "$(lakeshore storage presign my-bucket hello.txt)"
eval "$(lakeshore storage credentials my-bucket --env)"
AWS_ENDPOINT_URL={cloud} {shlex.quote(sys.executable)} list.py
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environ, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (0, "hi\nhello.txt\n"), done.stderr


@pytest.mark.parametrize("verb", ["presign my-s3 k", "credentials my-s3", "remove my-s3 --purge"])
def test_whose_fault_it_is_is_said(typed: Run, space: Space, verb: str) -> None:
    space.made("secrets", {"name": "text", "kind": "aws_keypair", "plaintext": "planted"})
    assert typed("storage add my-s3 --kind s3 --bucket b --creds text")[0] == 0
    code, out, err = typed(f"storage {verb}")
    assert (code, out) == (1, "")
    assert "aws_keypair secret must be formatted as <access_key_id>:<secret_access_key>" in err
    assert "hint: `lakeshore secrets rotate text`" in err and "planted" not in err
