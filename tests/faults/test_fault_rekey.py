"""`admin secrets rekey` is killed, meets damage, backups and other writers: each secret always has a key."""

from __future__ import annotations

import base64
import contextlib
import http.client
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import served
import trio
from served import ADMIN, JSON

from lakeshore.plane.locks import files_lock
from lakeshore.server.backup import backup
from lakeshore.server.http import HttpError
from lakeshore.server.records import Records, SecretRow
from lakeshore.server.rekeying import PURPOSE, Progress, Rekeying, about, keyring_of
from lakeshore.server.sealing import Keyring, Sealer, SealError
from lakeshore.server.state import State, derived, open_state, replace_secrets_key, write_next_key

OLD, NEW, THIRD = (letter * 32 for letter in (b"o", b"n", b"t"))
ENV = {"LAKESHORE_ADMIN_TOKEN": ADMIN}
MANY = 800
COLUMNS = "ns, name, kind, description, created_at, updated_at, algorithm, key, nonce, ciphertext, tag"


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def sealer(key: bytes) -> Sealer:
    return Sealer(derived(key, PURPOSE))


def value(name: str) -> bytes:
    return f"the value of {name}".encode() * 100


def row_of(name: str, key: bytes, ns: str = "default") -> SecretRow:
    sealed = sealer(key).seal(value(name), about=about(ns, name))
    return SecretRow(ns=ns, name=name, kind="opaque", description="", sealed=sealed, created_at=1.0, updated_at=1.0)


def plant(records: Path, rows: Iterator[SecretRow] | list[SecretRow]) -> None:
    with closing(sqlite3.connect(records)) as conn, conn:
        conn.executemany(
            f"INSERT INTO secret ({COLUMNS}) VALUES ({', '.join('?' * 11)})",
            [
                (
                    *(row.ns, row.name, row.kind, row.description, row.created_at, row.updated_at),
                    *(row.sealed.algorithm, row.sealed.key, row.sealed.nonce, row.sealed.ciphertext, row.sealed.tag),
                )
                for row in rows
            ],
        )


def secrets_under(records: Path, keys: Any) -> dict[str, set[str]]:
    """The names of the secrets by the key that opens them: checked, each with its own value."""
    found: dict[str, set[str]] = {}
    with opened(records) as kept:
        for row in kept.secrets.of("default"):
            opener = next(one for one in map(sealer, keys) if one.fingerprint == row.sealed.key)
            assert opener.open(row.sealed, about=about("default", row.name)) == value(row.name), row.name
            assert row.updated_at == 1.0, "its value is as old as it was"
            found.setdefault(opener.fingerprint, set()).add(row.name)
    return found


@contextmanager
def opened(records: Path) -> Iterator[Records]:
    kept = Records(records)
    try:
        yield kept
    finally:
        kept.close()


def key_in(path: Path) -> bytes:
    return base64.b64decode(path.read_text())


# --- kills


def killed_when(server: served.Served, enough: Callable[[int], bool], old: str) -> int:
    """Begin to rekey, and kill the server as soon as the count of secrets that have moved is enough; that count."""

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # killed
            server.post("/v1/admin/secrets/rekey", {}, encoding=JSON)

    asking = threading.Thread(target=ask)
    moved = 0
    with closing(sqlite3.connect(f"file:{server.state_dir}/records.db?mode=ro", uri=True)) as conn:
        asking.start()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            (moved,) = conn.execute("SELECT count(*) FROM secret WHERE key <> ?", (old,)).fetchone()
            if enough(moved) and (server.state_dir / "secrets.key.next").exists():
                break
    server.process.kill()
    server.process.wait()
    asking.join()
    return int(moved)


@pytest.mark.inventory("C-1458", "S-772", "S-564")
def test_a_server_that_is_killed_while_it_rekeys_loses_no_secret_and_goes_on_where_it_was(tmp_path: Path) -> None:
    server = served.start(tmp_path / "cp", env=ENV, token=ADMIN)
    server.stop()
    state = server.state_dir
    first, names = key_in(state / "secrets.key"), {f"s-{n}" for n in range(MANY)}
    plant(state / "records.db", [row_of(name, first) for name in sorted(names)])
    old = sealer(first).fingerprint
    seen = []
    for least in (1, MANY // 3):
        server = served.start(tmp_path / "cp", env=ENV, token=ADMIN)
        seen.append(killed_when(server, lambda moved, least=least: moved >= least, old))
        assert key_in(state / "secrets.key") == first, "the old key stays while it seals anything"
        coming = key_in(state / "secrets.key.next")
        by_key = secrets_under(state / "records.db", (first, coming))
        assert set().union(*by_key.values()) == names
    assert 0 < seen[0] < MANY, "it was killed halfway"
    with served.running(tmp_path / "cp", env=ENV, token=ADMIN) as server:
        assert "on their way to another key" in server.said()
        answer = server.post("/v1/admin/secrets/rekey", {}, encoding=JSON)
        while answer.status == 202:
            answer = server.post("/v1/admin/secrets/rekey", {}, encoding=JSON)
        assert (answer.status, answer.body["done"], answer.body["failed"]) == (200, True, [])
        assert (answer.body["total"], answer.body["left"]) == (MANY, 0)
        server.stop()
    assert key_in(state / "secrets.key") == coming != first
    assert not (state / "secrets.key.next").exists()
    assert (state / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert secrets_under(state / "records.db", (coming,)) == {sealer(coming).fingerprint: names}
    for key in (first, coming):
        for form in (key, text(key).encode()):
            assert form not in server.log.read_bytes()


# --- each state that a kill may leave


@pytest.mark.parametrize("stage", ["begun", "halfway", "moved", "replaced"])
def test_in_each_state_that_a_kill_may_leave_every_secret_opens_and_new_ones_get_the_new_key(
    tmp_path: Path, stage: str
) -> None:
    root = tmp_path / "state"
    open_state(root, {}).close()
    (root / "secrets.key").write_text(text(OLD))
    moved = {"begun": 0, "halfway": 3, "moved": 6, "replaced": 6}[stage]
    rows = [row_of(f"s-{n}", NEW if n < moved else OLD) for n in range(6)]
    write_next_key(root, NEW)
    if stage == "replaced":
        replace_secrets_key(root)
    with closing(open_state(root, {})) as state:
        ring = keyring_of(state)
        for row in rows:
            assert ring.open(row.sealed, about=about(row.ns, row.name)) == value(row.name)
        assert ring.fingerprint == sealer(NEW).fingerprint


# --- what it meets


class Place:
    """A state directory and its records, opened as a server does."""

    def __init__(self, root: Path, **environ: str) -> None:
        self.state: State = open_state(root, environ)
        self.records = Records(self.state.records)
        self.keyring: Keyring = keyring_of(self.state)
        self.rekeying = Rekeying(self.state, self.records, self.keyring)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.records.close()
        self.state.close()

    def rekey(self, key: bytes | None = None, for_s: float = 10.0) -> Progress:
        async def run() -> Progress:
            return await self.rekeying.run(key, actor="<test>", for_s=for_s)

        return trio.run(run)

    def open(self, name: str) -> bytes:
        row = self.records.secrets.get("default", name)
        assert row is not None
        return self.keyring.open(row.sealed, about=about("default", name))


def made(root: Path, key: bytes, names: str = "a b c") -> Path:
    with Place(root, SECRETS_KEY=text(key)):
        pass
    plant(root / "records.db", [row_of(name, key) for name in names.split()])
    return root


@pytest.mark.inventory("S-690", "S-102")
def test_where_the_key_is_in_the_environment_the_new_one_is_the_operators_and_any_order_of_restarts_works(
    tmp_path: Path,
) -> None:
    root = made(tmp_path / "state", OLD)
    with Place(root, SECRETS_KEY=text(OLD)) as place:
        with pytest.raises(HttpError) as refused:
            place.rekey()
        assert (refused.value.status, "--new-key" in str(refused.value.hint)) == (409, True)
        done = place.rekey(NEW)
        assert (done.resealed, done.is_done, done.names_environment) == (3, True, True)
        with pytest.raises(HttpError) as refused:
            place.rekey(THIRD)
        assert refused.value.status == 409, "one move after the other"
    with Place(root, SECRETS_KEY=text(OLD)) as place:
        assert place.open("a") == value("a"), "the variable is not changed yet"
        assert place.rekey().names_environment
    with Place(root, SECRETS_KEY=text(NEW)) as place:
        assert place.open("b") == value("b")
        assert not (root / "secrets.key.next").exists()
    with Place(root, SECRETS_KEY=text(THIRD)) as place, pytest.raises(SealError, match="SECRETS_KEY_PREVIOUS"):
        place.open("c")
    with Place(root, SECRETS_KEY=text(THIRD), SECRETS_KEY_PREVIOUS=text(NEW)) as place:
        assert place.open("c") == value("c")
        done = place.rekey()
        assert (done.resealed, done.is_done, done.names_environment) == (3, True, False)
    with Place(root, SECRETS_KEY=text(THIRD)) as place:
        assert [place.open(name) for name in "abc"] == [value(name) for name in "abc"]


def test_a_secret_that_is_damaged_keeps_the_old_key_until_it_is_gone_and_one_of_an_unknown_key_does_not(
    tmp_path: Path,
) -> None:
    root = made(tmp_path / "state", OLD)
    (root / "secrets.key").write_text(text(OLD))
    with closing(sqlite3.connect(root / "records.db")) as conn, conn:
        conn.execute("UPDATE secret SET tag = zeroblob(16) WHERE name = 'b'")
    plant(root / "records.db", [row_of("stray", THIRD)])
    with Place(root) as place:
        done = place.rekey()
        assert (done.resealed, done.left, done.is_done) == (2, 0, False)
        assert set(done.failed) == {("default", "b"), ("default", "stray")}
        assert key_in(root / "secrets.key") == OLD
    with Place(root) as place:
        note = place.records.note("<test>", "default", "secret.remove", "b")
        trio.run(place.records.secrets.drop, "default", "b", note)
        done = place.rekey()
        assert (done.resealed, done.is_done, set(done.failed)) == (0, True, {("default", "stray")})
        assert not (root / "secrets.key.next").exists()
        assert place.open("c") == value("c")


def test_a_copy_that_is_made_between_two_calls_opens_every_secret_and_none_is_made_during_one(tmp_path: Path) -> None:
    names = [f"s-{n}" for n in range(100)]
    root = made(tmp_path / "state", OLD, " ".join(names))
    (root / "secrets.key").write_text(text(OLD))
    (root / "lakeshore.db").touch()
    with served.running(tmp_path, env=ENV, token=ADMIN):
        pass  # makes the other files
    with Place(root) as place:
        with files_lock(root, shared=True), pytest.raises(HttpError, match="a backup is being made"):
            place.rekey(NEW, for_s=0.1)
        assert not (root / "secrets.key.next").exists()
        assert place.rekey(NEW, for_s=0.0).left == 100
        backup(root, tmp_path / "copy")
        assert place.rekey().is_done
    with Place(tmp_path / "copy") as place:
        assert [place.open(name) for name in names] == [value(name) for name in names]


def test_what_is_added_and_rotated_meanwhile_is_sealed_with_the_new_key(tmp_path: Path) -> None:
    root = made(tmp_path / "state", OLD, " ".join(f"s-{n}" for n in range(300)))
    (root / "secrets.key").write_text(text(OLD))

    async def all_at_once(place: Place) -> None:
        rows, ring = place.records.secrets, place.keyring
        note = place.records.note("<test>", "default", "secret.add", "x")

        async def add(name: str) -> None:
            def make() -> SecretRow:
                row = row_of(name, OLD)
                sealed = ring.seal(value(name), about=about("default", name))
                return SecretRow(**{**{f: getattr(row, f) for f in row.__slots__}, "sealed": sealed})

            assert await rows.add("default", name, make, note) is not None

        async def rotate(name: str) -> None:
            seal = lambda: ring.seal(value(name), about=about("default", name))  # noqa: E731
            assert await rows.reseal("default", name, seal, 1.0, note) is not None

        async with trio.open_nursery() as nursery:
            for n in range(20):  # some wait for the turn before the key changes, some come after
                nursery.start_soon(add, f"added-{n}")
                nursery.start_soon(rotate, f"s-{n * 15}")
                if n == 10:
                    nursery.start_soon(lambda: place.rekeying.run(NEW, actor="<test>", for_s=20.0))

    with Place(root) as place:
        trio.run(all_at_once, place)
        assert key_in(root / "secrets.key") == NEW
    by_key = secrets_under(root / "records.db", (NEW,))
    assert len(by_key[sealer(NEW).fingerprint]) == 320
