"""Payloads that travel beside the call."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from served import JSON, Served, new_id, one
from signer import Signer

from lakeshore.plane.blobs import Blobs
from lakeshore.server.blobs import BlobStore, Grant

PRESIGN = "/v1/namespaces/default/payloads/presign"
STORE = "/v1/namespaces/default/payloads"


def presign(server: Served, **body: Any) -> dict[str, Any]:
    answer = server.post(PRESIGN, body, encoding=JSON)
    assert answer.status == 200, answer.body
    return dict(answer.body)


def upload(server: Served, data: bytes, **more: Any) -> dict[str, Any]:
    """The reference of an uploaded payload."""
    granted = presign(server, op="put", size=len(data), **more)
    answer = server.raw("PUT", granted["url"], data)
    assert answer.status in (200, 201), answer.body
    return {"key": granted["key"], "size": len(data), "sha256": answer.body["sha256"]}


@pytest.mark.inventory("S-252", "S-253", "S-771")
@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
def test_a_payload_goes_up_and_comes_down_unchanged(server: Served, size: int) -> None:
    data = secrets.token_bytes(size)
    granted = presign(server, op="put", size=size, contentType="application/x-msgpack", jobId=new_id())
    assert granted["key"].startswith("payloads/default/")
    assert granted["url"].startswith("/v1/blobs/payloads/default/")
    assert granted["bucket"]
    assert granted["expires_at"].endswith("Z")
    put = server.raw("PUT", granted["url"], data)
    assert (put.status, put.body["sha256"]) == (201, hashlib.sha256(data).hexdigest())
    url = presign(server, op="get", key=granted["key"])["url"]
    answer = server.raw("GET", url)
    assert (answer.status, answer.raw) == (200, data)
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox"


@pytest.mark.parametrize("size", [0, 1, 300_000, 3_000_000])
def test_a_payload_is_stored_in_one_exchange_under_its_job_its_kind_and_its_digest(server: Served, size: int) -> None:
    job, data = new_id(), secrets.token_bytes(size)
    url, digest = f"{STORE}?jobId={job}&kind=result", hashlib.sha256(data).hexdigest()
    answers = [server.raw("POST", url, data) for _ in range(2)]  # the second as after a lost answer
    assert [answer.status for answer in answers] == [200, 200]
    ref = answers[0].body
    assert answers[1].body == ref == {"key": ref["key"], "size": size, "sha256": digest}
    assert ref["key"].endswith(f"/{job}/result.{digest[:16]}")
    assert server.raw("GET", presign(server, op="get", key=ref["key"])["url"]).raw == data
    assert server.raw("POST", url, data + b"x").body["key"] != ref["key"]
    call = {**one(), "args_ref": ref}
    del call["args_blob"]
    assert server.post("/v1/producer/submit", call).status == 200
    assert not list((server.state_dir / "blobs").rglob("*.upload"))


def test_a_stored_payload_may_come_in_chunks_and_has_a_key_of_its_own_without_a_job(server: Served) -> None:
    keys = set()
    for _ in range(2):
        chunked = server.connection()
        try:
            chunked.request("POST", STORE, body=iter([b"ab", b"", b"cd"]), encode_chunked=True)
            answer = chunked.getresponse()
            stored = json.loads(answer.read())
            assert (answer.status, stored["size"]) == (200, 4)
            assert stored["sha256"] == hashlib.sha256(b"abcd").hexdigest()
            keys.add(stored["key"])
        finally:
            chunked.close()
    assert len(keys) == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_a_payload_whose_daemon_signed_for_it_is_stored_whole(secured_server: Served, chunked: bool) -> None:
    minted = secured_server.post("/v1/namespaces/default/enroll-tokens", {"label": new_id()}, encoding=JSON).body
    daemon, data = Signer(secured_server), secrets.token_bytes(300_000)
    assert daemon.hello(minted["plaintext"]).body["reject"] is None
    headers = {**daemon.headers("POST", STORE, data), "X-LS-Worker-Id": daemon.worker_id}
    body = iter([data[:1000], data[1000:]]) if chunked else data
    with contextlib.closing(secured_server.connection()) as connection:
        connection.request("POST", STORE, body, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        stored = json.loads(answer.read())
    assert answer.status == 200, stored
    assert (stored["size"], stored["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no such advice")
@pytest.mark.parametrize("why", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_a_payload_is_stored_where_the_kernel_takes_no_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    def refused(*_: object) -> None:
        raise OSError(why, os.strerror(why))

    async def main() -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield data

        store = BlobStore(Blobs(tmp_path), b"key")
        for n in range(2):
            grant = Grant(method="PUT", key=f"payloads/default/2026/01/01/job{n}/args", expires=0)
            ref, new = await store.receive(grant, chunks(), by_content=True)  # type: ignore[arg-type]  # as it is used
            assert new and store.blobs.get(ref) == data
            assert store.take_fresh(ref.key) == data

    data = secrets.token_bytes(300_000)
    monkeypatch.setattr(os, "posix_fadvise", refused)
    trio.run(main)


def test_what_cannot_be_stored_in_one_exchange_is_refused_by_its_field(server: Served) -> None:
    for query, field in (("jobId=..", "jobId"), ("kind=a/b", "kind"), (f"jobId={'x' * 101}", "jobId")):
        answer = server.raw("POST", f"{STORE}?{query}", b"abc")
        assert (answer.status, answer.body["field"]) == (422, field), answer.body
    big = server.connection()
    try:
        big.putrequest("POST", STORE)
        big.putheader("Content-Length", str(104_857_601))
        big.endheaders()
        assert big.getresponse().status == 413
    finally:
        big.close()


def test_an_upload_that_announced_another_size_does_not_spoil_its_url(server: Served) -> None:
    url = presign(server, op="put", size=3)["url"]
    assert server.raw("PUT", url, b"four").status == 422
    assert server.raw("PUT", url, b"two").status == 201


@pytest.mark.inventory("S-255", "S-256", "S-257")
def test_the_server_mints_the_key(server: Served) -> None:
    named = presign(server, op="put", size=1, jobId="job-1", kind="result", key="payloads/default/mine")["key"]
    assert named.endswith("/job-1/result")
    assert presign(server, op="put", size=1)["key"].endswith("/args")


def test_a_blob_is_created_once(server: Served) -> None:
    granted = presign(server, op="put", size=3, jobId=new_id())
    assert server.raw("PUT", granted["url"], b"abc").status == 201
    assert server.raw("PUT", granted["url"], b"abc").status == 200
    assert server.raw("PUT", granted["url"], b"xyz").status == 409
    url = presign(server, op="get", key=granted["key"])["url"]
    assert server.raw("GET", url).raw == b"abc"


def test_another_digest_is_another_key_for_the_same_job(server: Served) -> None:
    job = new_id()
    refs = [upload(server, data, jobId=job, sha256=hashlib.sha256(data).hexdigest()) for data in (b"one", b"two")]
    assert refs[0]["key"] != refs[1]["key"]


@pytest.mark.inventory("S-259")
def test_an_upload_must_be_what_was_announced(server: Served) -> None:
    granted = presign(server, op="put", size=3)
    assert server.raw("PUT", granted["url"], b"abcd").status == 422
    assert server.raw("PUT", granted["url"], b"ab").status == 422
    chunked = server.connection()
    try:
        chunked.request("PUT", granted["url"], body=iter([b"ab", b"cd"]), encode_chunked=True)
        assert chunked.getresponse().status in (413, 422)
    finally:
        chunked.close()
    granted = presign(server, op="put", size=3, sha256=hashlib.sha256(b"abc").hexdigest())
    assert server.raw("PUT", granted["url"], b"xyz").status == 422
    assert server.raw("PUT", granted["url"], b"abc").status == 201
    assert not list((server.state_dir / "blobs").rglob("*.upload"))


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        ("GET", "", ""),
        ("PUT", "/args?", "/other?"),
        ("PUT", "/default/", "/other/"),
        ("PUT", "expires=1", "expires=2"),
        ("PUT", "size=3", "size=4"),
        ("PUT", "sig=", "sig=0"),
        ("PUT", "&sig=", "&type=text%2Fhtml&sig="),
    ],
)
def test_a_changed_url_is_refused(server: Served, method: str, old: str, new: str) -> None:
    url = presign(server, op="put", size=3)["url"]
    assert not old or old in url
    answer = server.raw(method, url.replace(old, new), b"abc" if method == "PUT" else None)
    assert (answer.status, answer.body["error"]) == (403, "bad signature")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/blobs/payloads/default/x",
        "/v1/blobs/../lakeshore.db",
        "/v1/blobs/%2e%2e/lakeshore.db?expires=99999999999&sig=00",
        "/v1/blobs/payloads/..%2f..%2fsecrets.key?expires=99999999999&sig=00",
        "/v1/blobs/secrets.key?expires=abc&sig=%C3%A4",
    ],
)
def test_nothing_is_served_without_a_signature(server: Served, path: str) -> None:
    assert server.raw("GET", path).status in (400, 403, 404)


@pytest.mark.parametrize(
    ("header", "status", "part"),
    [
        ("bytes=0-3", 206, slice(0, 4)),
        ("bytes=10-", 206, slice(10, None)),
        ("bytes=-5", 206, slice(-5, None)),
        ("bytes=90-500", 206, slice(90, None)),
        ("bytes=100-", 416, None),
        ("bytes=5-2", 200, slice(None)),
        ("bytes=0-1,5-6", 200, slice(None)),
        ("lines=1-2", 200, slice(None)),
        ("bytes=" + "9" * 5000 + "-", 200, slice(None)),
        ("bytes=-" + "9" * 5000, 200, slice(None)),
        ("bytes=\N{SUPERSCRIPT TWO}-", 200, slice(None)),
    ],
)
def test_a_download_may_be_a_range(server: Served, header: str, status: int, part: slice | None) -> None:
    data = bytes(range(100))
    ref = upload(server, data)
    url = presign(server, op="get", key=ref["key"])["url"]
    answer = server.raw("GET", url, headers={"Range": header})
    assert answer.status == status
    if part is not None:
        assert answer.raw == data[part]
    if status == 206:
        assert answer.headers["content-range"].endswith("/100")
    head = server.raw("HEAD", url)
    assert (head.status, head.headers["content-length"], head.raw) == (200, "100", b"")


@pytest.mark.inventory("S-749", "S-258")
@pytest.mark.inventory("S-579")
def test_arguments_and_results_may_travel_by_reference(server: Served) -> None:
    data = secrets.token_bytes(300_000)
    call = {**one(), "args_ref": upload(server, data)}
    del call["args_blob"]
    assert server.post("/v1/producer/submit", call).status == 200
    poll = {"worker_id": new_id(), "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 5}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    run = command["body"]
    assert "args_blob" not in run
    assert server.raw("GET", run["payload_ref"]["url"]).raw == data
    result = secrets.token_bytes(400_000)
    ack = {"invocation_id": run["invocation_id"], "claim": run["claim"], "state": "succeeded"}
    ack["result_ref"] = upload(server, result, kind="result")
    assert server.post("/v1/daemon/ack", ack).body["result"] == "ok"
    ended = server.post("/v1/producer/await", {"invocation_id": run["invocation_id"]}).body
    assert "result_blob" not in ended
    assert ended["result_ref"]["size"] == len(result)
    assert server.raw("GET", ended["result_ref"]["url"]).raw == result


@pytest.mark.inventory("K-20")
@pytest.mark.parametrize("size", [65_535, 65_536, 262_144, 262_145, 1_000_000])
def test_inline_payloads_of_any_size_arrive_whole(server: Served, size: int) -> None:
    data = secrets.token_bytes(size)
    call = one(args_blob=data)
    assert server.post("/v1/producer/submit", call).status == 200
    assert server.post("/v1/producer/submit", call).status == 200
    poll = {"worker_id": new_id(), "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 5}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    run = command["body"]
    assert ("args_blob" in run) is (size <= 262_144)
    assert (run.get("args_blob") or server.raw("GET", run["payload_ref"]["url"]).raw) == data
    ack = {"invocation_id": run["invocation_id"], "claim": run["claim"], "state": "succeeded", "result_blob": data}
    assert server.post("/v1/daemon/ack", ack).body["result"] == "ok"
    ended = server.post("/v1/producer/await", {"invocation_id": run["invocation_id"]}).body
    assert (ended.get("result_blob") or server.raw("GET", ended["result_ref"]["url"]).raw) == data


def in_one(server: Served, data: bytes) -> dict[str, Any]:
    answer = server.raw("POST", STORE, data)
    assert answer.status == 200, answer.body
    return dict(answer.body)


def test_files_whose_bytes_were_handed_over_from_memory_stay_what_they_are(server: Served) -> None:
    """Their pages are what the next ones are written into."""
    stored = {}
    for number in range(20):
        data = secrets.token_bytes(300_000 + number)
        ref = in_one(server, data)
        stored[ref["key"]] = data
        if number % 2:
            assert server.raw("GET", presign(server, op="get", key=ref["key"])["url"]).raw == data
        if number % 5 == 4:  # what is gone meanwhile is in nobody's way
            stored.pop(ref["key"])
            (server.state_dir / "blobs" / ref["key"]).unlink()
    for key, data in stored.items():
        assert (server.state_dir / "blobs" / key).read_bytes() == data
        assert server.raw("GET", presign(server, op="get", key=key)["url"]).raw == data


@pytest.mark.inventory("K-20")
@pytest.mark.parametrize("store", [upload, in_one])
def test_what_was_stored_a_moment_ago_is_handed_over_once_from_memory_that_is_bounded(
    server: Served, store: Callable[[Served, bytes], dict[str, Any]]
) -> None:
    def stored() -> tuple[str, Path, bytes]:
        data = secrets.token_bytes(1_500_000)
        key = store(server, data)["key"]
        file = server.state_dir / "blobs" / key
        assert file.read_bytes() == data
        file.write_bytes(bytes(len(data)))  # so that it shows where an answer comes from
        return presign(server, op="get", key=key)["url"], file, data

    first, second = stored(), stored()
    stored(), stored()
    url, file, data = stored()
    part = server.raw("GET", url, headers={"range": "bytes=0-9"})
    assert (part.status, part.raw) == (206, bytes(10))
    answers = [server.raw("GET", url), server.raw("GET", url)]
    assert [answer.raw for answer in answers] == [data, file.read_bytes()]
    assert [answer.headers["x-content-type-options"] for answer in answers] == ["nosniff", "nosniff"]
    for url, file, _ in (first, second):
        assert server.raw("GET", url).raw == file.read_bytes()


@pytest.mark.inventory("S-771", "S-264")
def test_a_reference_must_be_to_a_payload_of_this_namespace_that_is_what_it_says(server: Served) -> None:
    ref = upload(server, b"x" * 100)
    server.post("/v1/producer/submit", one(), X_LS_Namespace="other")
    foreign = server.post(PRESIGN.replace("default", "other"), {"op": "get", "key": ref["key"]})
    assert foreign.status == 403
    wrong: list[tuple[dict[str, Any], str, int]] = [
        ({**ref, "size": 99}, "args_ref.size", 422),
        ({**ref, "sha256": "0" * 64}, "args_ref.sha256", 422),
        ({**ref, "sha256": "no"}, "args_ref.sha256", 422),
        ({**ref, "key": ref["key"] + "x"}, "args_ref.key", 422),
        ({**ref, "key": "payloads/other/2020/01/01/j/args"}, "args_ref.key", 403),
        ({**ref, "key": "payloads/default/../../secrets.key"}, "args_ref.key", 422),
        ({**ref, "key": "exec/x"}, "args_ref.key", 422),
    ]
    for reference, field, status in wrong:
        call = {**one(), "args_ref": reference}
        del call["args_blob"]
        answer = server.post("/v1/producer/submit", call)
        assert (answer.status, answer.body["field"]) == (status, field)
    gone = server.post(PRESIGN, {"op": "get", "key": ref["key"] + "x"})
    assert gone.status == 404


def test_signed_urls_are_never_logged(server: Served) -> None:
    granted = presign(server, op="put", size=3)
    server.raw("PUT", granted["url"], b"abc")
    server.raw("GET", granted["url"])
    assert granted["url"].rpartition("sig=")[2] not in server.said()
