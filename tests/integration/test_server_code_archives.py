"""Archives of code that a server keeps itself: who sends and fetches them, what is refused, how long they stay."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from served import ADMIN, Served, running
from spaces import Space, namespace, token_of

from lakeshore.server.backup import BackupError, backup, verify
from lakeshore.server.code_archives import GRACE_S, CodeArchives
from lakeshore.server.records import Records

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATA = b"\x1f\x8b an archive, which a server never opens"
SHA256 = hashlib.sha256(DATA).hexdigest()


def kept(space: Space, data: bytes = DATA, *, token: str | None = None, **more: str) -> Any:
    asked = {"remote": "r", "commit": COMMIT, **more}
    query = "&".join(f"{name}={text}" for name, text in asked.items())
    headers = {"Content-Type": "application/octet-stream", "Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return space.server.raw("POST", f"/v1/namespaces/{space.ns}/code-archives?{query}", data, headers)


def fetched(space: Space, key: str, token: str | None = None) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return space.server.raw("GET", f"/v1/namespaces/{space.ns}/code-archives/{key}", None, headers)


@pytest.mark.inventory("S-246", "S-250")
def test_an_archive_is_kept_once_and_comes_back_as_it_was(server: Served) -> None:
    space = Space(server)
    first = kept(space, sha256=SHA256)
    assert (first.status, first.body["alreadyArchived"], first.body["storageName"]) == (200, False, None)
    assert first.body["archiveKey"] == f"code/{COMMIT}/{SHA256}.tar.gz" and first.body["sha256"] == SHA256
    again = kept(space, DATA + b"made anew")
    assert again.body == {**first.body, "alreadyArchived": True}, "the first one counts"
    answer = fetched(space, first.body["archiveKey"])
    assert (answer.status, answer.raw, answer.headers["etag"]) == (200, DATA, f'"{SHA256}"')
    registered = {"remote": "r", "commit": COMMIT, "archiveKey": "elsewhere", "storageName": "s"}
    assert space("POST", "code-repos", registered).body["alreadyArchived"] is True


@pytest.mark.parametrize(
    ("change", "data", "refused"),
    [
        ({"commit": "abc"}, DATA, (422, "commit")),
        ({"remote": ""}, DATA, (422, "remote")),
        ({"sha256": "0" * 64}, DATA, (422, "sha256")),
        ({"sha256": "x"}, DATA, (422, "sha256")),
        ({}, b"", (422, "body")),
    ],
)
def test_an_archive_that_is_not_what_it_says_is_refused_with_its_field(
    server: Served, change: dict[str, str], data: bytes, refused: tuple[int, str]
) -> None:
    space = Space(server)
    answer = kept(space, data, **change)
    assert (answer.status, answer.body["field"]) == refused
    assert not list((server.state_dir / "code").glob(f"{space.ns}/*"))


def test_a_size_beyond_the_limit_is_refused_before_a_byte_is_stored(tmp_path: Path) -> None:
    with running(tmp_path, env={"MAX_PAYLOAD_BYTES": "100000"}) as server:
        space = Space(server)
        answer = kept(space, b"x" * 100_001)
        assert (answer.status, "100000 bytes" in answer.body["error"], "export-ignore" in answer.body["hint"]) == (
            413,
            True,
            True,
        )
        assert kept(space, b"x" * 100_000).status == 200


def test_who_may_submit_sends_and_who_may_run_calls_fetches_in_their_own_namespace(secured_server: Served) -> None:
    space = Space(secured_server, namespace(secured_server), ADMIN)
    tokens = {scope: token_of(secured_server, space.ns, scope) for scope in ("full", "submit", "worker", "daemon")}
    stranger = token_of(secured_server, namespace(secured_server))
    sends = {scope: kept(space, token=token).status for scope, token in tokens.items()}
    assert sends == {"full": 200, "submit": 200, "worker": 403, "daemon": 403}
    key = space("GET", "code-repos").body["codeRepos"][0]["archiveKey"]
    fetches = {scope: fetched(space, key, token).status for scope, token in tokens.items()}
    assert fetches == {"full": 200, "submit": 403, "worker": 200, "daemon": 200}
    assert [kept(space, token=stranger).status, fetched(space, key, stranger).status] == [403, 403]
    assert fetched(space, key, "").status == 401
    other = Space(secured_server, namespace(secured_server), ADMIN)
    assert fetched(other, key, ADMIN).status == 404, "a key of another namespace names nothing"


@pytest.mark.parametrize("key", ["..%2F..%2Fadmin.token", "code/x", "code%2F..%2F..%2Fsecrets.key", "code/a/b.tar.gz"])
def test_no_key_leads_anywhere_else(server: Served, key: str) -> None:
    space = Space(server)
    kept(space)
    assert fetched(space, key).status in (400, 404)


def test_a_server_that_starts_again_has_them_and_a_lost_file_is_sent_again(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        space = Space(server, "default")
        key = kept(space).body["archiveKey"]
        partial = server.state_dir / "code" / "default" / ".1.1.upload"
        partial.write_bytes(b"of a server that was killed")
    with running(tmp_path) as server:
        space = Space(server, "default")
        assert fetched(space, key).raw == DATA and not partial.exists()
        (server.state_dir / "code" / "default" / SHA256).unlink()
        assert fetched(space, key).status == 404
        assert space("GET", f"code-repos?remote=r&commit={COMMIT}").body["codeRepos"] == [], "who pushes sends it again"
        assert kept(space).body["alreadyArchived"] is False
        assert fetched(space, key).raw == DATA
        row = space("GET", "code-repos").body["codeRepos"][0]
        assert space("DELETE", f"code-repos/{row['id']}").status == 200
        assert [fetched(space, key).status, space("DELETE", f"code-repos/{row['id']}").status] == [404, 404]
        assert list((server.state_dir / "code" / "default").iterdir()) == []


def test_two_that_send_at_once_have_one_archive(server: Served) -> None:
    space = Space(server)
    answers: list[Any] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(trio.to_thread.run_sync, lambda: answers.append(kept(space, os.urandom(300_000))))

    trio.run(main)
    assert [answer.status for answer in answers] == [200] * 4
    assert sum(not answer.body["alreadyArchived"] for answer in answers) == 1
    assert len({answer.body["archiveKey"] for answer in answers}) == 1
    assert len(list((server.state_dir / "code" / space.ns).iterdir())) == 1


def test_archives_are_in_a_backup_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        kept(Space(server, "default"))
        backup(server.state_dir, tmp_path / "copy")
    copied = tmp_path / "copy" / "code" / "default" / SHA256
    assert copied.read_bytes() == DATA
    copied.write_bytes(b"other")
    with pytest.raises(BackupError, match="archive of code"):
        verify(tmp_path / "copy", time.time())


def test_retention_takes_only_what_nobody_used_for_a_week_and_only_for_room(tmp_path: Path) -> None:
    week, now = 7 * 24 * 3600.0, time.time()

    async def chunks(data: bytes) -> Any:
        yield data

    async def main() -> None:
        records = Records(tmp_path / "records.db")
        code = CodeArchives(records, tmp_path)
        note = records.note("a", "ns", "code.register", "c")
        for number in range(3):
            data = bytes([number]) * 1000
            commit = f"{number:040x}"
            await code.receive(chunks(data), ns="ns", remote="r", commit=commit, ref=None, sha256=None, notes=(note,))
        rows = {row.commit_hash[-1]: row for row in records.code_repos.of("ns")}
        paths = {name: code.path(row) for name, row in rows.items()}
        for name, days in (("0", 30), ("1", 8), ("2", 1)):
            os.utime(paths[name] or "", (now - days * 86400,) * 2)
        await code.sweep(now)
        assert (code.bytes(), len(records.code_repos.all())) == (3000, 3), "a registration keeps it"
        assert await code.shrink(500, now - week) == 1000
        assert {row.commit_hash[-1] for row in records.code_repos.all()} == {"1", "2"}
        assert await code.shrink(10_000, now - week) == 1000, "what is used stays"
        assert code.bytes() == 1000
        orphan = tmp_path / "code" / "ns" / ("f" * 64)
        orphan.write_bytes(b"of a namespace that is gone")
        await code.sweep(now)
        assert orphan.exists(), "it may be about to be named"
        os.utime(orphan, (now - GRACE_S - 60,) * 2)
        await code.sweep(now)
        assert not orphan.exists() and code.bytes() == 1000
        records.close()

    trio.run(main)


def test_an_archive_of_a_namespace_that_is_gone_is_nobodys(secured_server: Served) -> None:
    space = Space(secured_server, namespace(secured_server), ADMIN)
    key = kept(space, token=ADMIN).body["archiveKey"]
    assert secured_server.call("DELETE", f"/v1/admin/namespaces/{space.ns}").status in (200, 202)
    assert secured_server.call("POST", "/v1/admin/namespaces", {"name": space.ns}).status == 201
    assert fetched(space, key, ADMIN).status == 404


def test_an_archive_that_comes_byte_by_byte_costs_no_more_than_its_bytes(server: Served) -> None:
    """Whoever may submit may send so: 60,000 pieces of which each is counted with all before it are a minute."""
    space, data = Space(server), os.urandom(60_000)
    at = f"/v1/namespaces/{space.ns}/code-archives?remote=r&commit={COMMIT}"
    headers = {"Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked"}
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in data)
    with contextlib.closing(server.connection(timeout=20)) as connection:
        connection.request("POST", at, pieces + b"0\r\n\r\n", headers)
        assert connection.getresponse().status == 200
    (row,) = space("GET", "code-repos").body["codeRepos"]
    assert fetched(space, row["archiveKey"]).raw == data
