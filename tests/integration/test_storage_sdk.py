"""`dls.Storage` through a control plane to a real store: in a script, in a job without keys, and what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3_stores
from s3_stores import KEY_ID, S3, SECRET, s3
from served import Served
from spaces import Space

import dreamlake.lakeshore as dls
from lakeshore.sdk.errors import DispatchError


@dls.udf(queue="stored")
def inner(key: str) -> str:
    dls.run.write(key).write_bytes(b"inner")
    return key


@dls.udf
def called(key: str) -> str:
    dls.run.write(key).write_bytes(b"inner")
    return key


@dls.udf(queue="stored")
def outer(source: str) -> dict[str, str]:
    text = dls.run.read(source).read_text()
    dls.run.write("out/a.txt").write_text(text.upper())
    (dls.run.write("shards", dir=True) / "0.bin").write_bytes(b"")
    with dls.scope("deep"):
        called("b.txt")
    return {"a": "out/a.txt", "shards": "shards", "b": "deep/b.txt"}


@dls.udf(queue="stored")
def streamed(count: int):  # type: ignore[no-untyped-def]
    for index in range(count):
        key = f"parts/{index}.txt"
        dls.run.write(key).write_text(str(index))
        yield key


@dls.udf(queue="stored")
def whole() -> str:
    dls.run.write(".", dir=True)
    return "."


@dls.udf(queue="stored")
def unwritten() -> str:
    dls.run.write("never.txt")
    return "never.txt"


ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT.parent / "shared" / "spec" / "python-sdk" / "happy-paths" / "11-storage-from-udf.md"
ACCESS = ROOT / "examples" / "_legacy" / "12-storage-access" / "access.py"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3") / "buckets") as store:
        store.has("lab")
        yield store


@pytest.fixture
def space(server: Served, store: S3) -> Space:
    """A namespace with the storage `my-bucket`, a directory of its own in the store."""
    space = Space(server)
    space.made("secrets", {"name": "keys", "kind": "aws_keypair", "plaintext": f"{KEY_ID}:{SECRET}"})
    config = {"bucket": "lab", "prefix": space.ns, "endpoint": store.url, "creds": {"$secret": "keys"}}
    space.made("storages", {"name": "my-bucket", "kind": "s3-prefix", "config": config})
    return space


def environ(space: Space, home: Path) -> dict[str, str]:
    """What a script and a worker have: where the control plane is, and no key."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LAKESHORE_"))}
    given = {"LAKESHORE_URL": space.server.url, "LAKESHORE_NAMESPACE": space.ns, "HOME": str(home)}
    return {**clean, **given, "XDG_CONFIG_HOME": str(home / "config"), "PYTHONPATH": str(ROOT)}


def ran(space: Space, home: Path, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, *argv],
        env=environ(space, home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.inventory("P-629", "C-862")
def test_the_job_of_the_page_reads_and_writes_objects_without_any_key(space: Space, store: S3, tmp_path: Path) -> None:
    if not PAGE.is_file():
        pytest.skip(f"the reference's page is not at {PAGE}")
    lines = PAGE.read_text("utf-8").splitlines()
    begins = lines.index("# storage_udf.py")
    (tmp_path / "storage_udf.py").write_text("\n".join(lines[begins : lines.index("```", begins)]))
    store.client().put_object(Bucket="lab", Key=f"{space.ns}/test/hello.txt", Body=b"hi\n")
    worker = subprocess.Popen(
        [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "default", "--allow-pickled"],
        env=environ(space, tmp_path),
        cwd=tmp_path,
    )
    try:
        assert ran(space, tmp_path, "storage_udf.py") == "{'key': 'test/hello.txt', 'bytes': 3}\n"
    finally:
        worker.terminate()
        worker.wait(60)
    assert store.keys("lab")[f"{space.ns}/test/hello.txt.size"] == b"3"


@pytest.mark.inventory("P-630")
def test_the_example_walks_the_three_ways(space: Space, store: S3, tmp_path: Path) -> None:
    put = ran(space, tmp_path, str(ACCESS), "--storage", "my-bucket", "--mode", "put")
    assert put == "test/hello.txt: 21 bytes\n"
    url = ran(space, tmp_path, str(ACCESS), "--storage", "my-bucket", "--mode", "presign").strip()
    assert s3_stores.moved("GET", url).content == b"hello from access.py\n"
    with s3_stores.aws() as cloud:
        config = {"bucket": "lab", "region": "eu-central-1", "endpoint": cloud, "creds": {"$secret": "keys"}}
        space.made("storages", {"name": "in-aws", "kind": "s3", "config": config})
        keys = ran(space, tmp_path, str(ACCESS), "--storage", "in-aws", "--mode", "credentials")
    assert "region_name" in keys and " until 20" in keys


def test_objects_go_through_whole_and_what_goes_wrong_is_told(space: Space, store: S3) -> None:
    with dls.Storage("my-bucket", base_url=space.server.url, namespace=space.ns) as made:
        content = os.urandom(300_000)
        made.put("a b/ü.bin", content)
        assert made.get("a b/ü.bin") == content
        made.put("empty", b"")
        assert made.get("empty") == b""
        with pytest.raises(DispatchError, match="answered 404: there is no such object"):
            made.get("none")
        with pytest.raises(
            DispatchError, match=r"presign of storage 'my-bucket' was refused: key: must not have a part"
        ):
            made.get("../../lab/k")
        with pytest.raises(
            DispatchError, match=r"credentials of storage 'my-bucket' was refused: .*use presigned URLs"
        ):
            made.credentials()
        assert space("PUT", "secrets/keys", {"plaintext": "AKIAGONE:wrong"}).status == 200
        with pytest.raises(DispatchError, match="answered 403"):
            made.get("empty")


@pytest.mark.inventory("P-744")
def test_a_worker_with_a_storage_fetches_what_it_reads_and_stores_what_was_written(
    space: Space, store: S3, tmp_path: Path
) -> None:
    plane = dls.HttpDispatch(space.server.url, namespace=space.ns)
    queue = dls.SyncQueue("stored", dispatch=plane)
    store.client().put_object(Bucket="lab", Key=f"{space.ns}/exp/in.txt", Body=b"content")
    with dls.scope("exp"):
        calls = [outer.submit("in.txt", _dispatch=plane), streamed.submit(2, _dispatch=plane)]
        calls.append(unwritten.submit(_dispatch=plane))
    for _ in calls:
        assert dls.run_worker(queue, once=True, wait=30, root=tmp_path, allow_pickled=True, storage="my-bucket") == 1
    assert queue.result(calls[0], timeout=30) == {"a": "out/a.txt", "shards": "shards", "b": "deep/b.txt"}
    assert list(queue.result(calls[1], timeout=30)) == ["parts/0.txt", "parts/1.txt"]
    assert queue.result(calls[2], timeout=30) == "never.txt"
    there = {key.removeprefix(f"{space.ns}/"): content for key, content in store.keys("lab").items() if space.ns in key}
    assert there == {
        "exp/in.txt": b"content",
        "exp/out/a.txt": b"CONTENT",
        "exp/shards/0.bin": b"",
        "exp/deep/b.txt": b"inner",
        "exp/parts/0.txt": b"0",
        "exp/parts/1.txt": b"1",
    }
    plane.close()


BODY = """
import dreamlake.lakeshore as dls

@dls.udf(queue="stored")
def copy(key):
    dls.run.write("copy.txt").write_text(dls.run.read(key).read_text())
    return "copy.txt"
"""


@pytest.mark.inventory("P-744")
def test_the_worker_command_is_bound_to_a_storage_by_its_name(space: Space, store: S3, tmp_path: Path) -> None:
    (tmp_path / "copies.py").write_text(BODY)
    store.client().put_object(Bucket="lab", Key=f"{space.ns}/in.txt", Body=b"content")
    call = ran(space, tmp_path, "-c", "import copies; print(copies.copy.submit('in.txt'))").strip()
    worker = ("-m", "lakeshore", "worker", "once", "--python", sys.executable, "--queue", "stored")
    ran(space, tmp_path, *worker, "--storage", "my-bucket")
    assert store.keys("lab")[f"{space.ns}/copy.txt"] == b"content"
    with_plane = dls.HttpDispatch(space.server.url, namespace=space.ns)
    assert dls.SyncQueue("stored", dispatch=with_plane).result(call, timeout=30) == "copy.txt"
    with_plane.close()
    refused = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--once", "--storage", "a/b/c"]
    done = subprocess.run(refused, env=environ(space, tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "a storage is named by a str" in done.stderr


@pytest.mark.inventory("P-744")
def test_what_cannot_be_stored_fails_the_job_and_without_a_storage_files_stay_here(
    space: Space, store: S3, tmp_path: Path
) -> None:
    plane = dls.HttpDispatch(space.server.url, namespace=space.ns)
    queue = dls.SyncQueue("stored", dispatch=plane)
    call = inner.submit("k.txt", _dispatch=plane)
    assert space("PUT", "secrets/keys", {"plaintext": "AKIAGONE:wrong"}).status == 200
    dls.run_worker(queue, once=True, wait=30, root=tmp_path, allow_pickled=True, storage="my-bucket", retries=0)
    with pytest.raises(Exception, match=r"PUT of 'k.txt' in storage 'my-bucket' was answered 403"):
        queue.result(call, timeout=30)
    call = whole.submit(_dispatch=plane)
    dls.run_worker(queue, once=True, wait=30, root=tmp_path, allow_pickled=True, storage="my-bucket", retries=0)
    with pytest.raises(Exception, match="the run root itself is not stored"):
        queue.result(call, timeout=30)
    call = inner.submit("k.txt", _dispatch=plane)
    dls.run_worker(queue, once=True, wait=30, root=tmp_path, allow_pickled=True)
    assert queue.result(call, timeout=30) == "k.txt"
    assert (tmp_path / "k.txt").read_bytes() == b"inner"
    assert not [key for key in store.keys("lab") if key.startswith(space.ns)]
    plane.close()
