"""`lakeshore admin secrets rekey` against a server of its own: its key changes."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from served import ADMIN, JSON, Served, running

Run = Callable[..., tuple[int, str, str]]
GIVEN = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "SECRETS_KEY": base64.b64encode(b"o" * 32).decode()}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a key of its own, and one secret."""
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN}
    with running(tmp_path_factory.mktemp("rekeyed"), env=env, token=ADMIN) as served:
        add(served)
        yield served


@pytest.fixture(autouse=True)
def operator(ours: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("LAKESHORE_URL", ours.url)
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", ADMIN)


def add(served: Served, name: str = "pem") -> None:
    body = {"name": name, "kind": "ssh_key", "plaintext": "the value"}
    assert served.post("/v1/namespaces/default/secrets", body, encoding=JSON).status == 201


@pytest.mark.inventory("C-1458")
def test_each_time_the_server_makes_another_key_and_says_what_it_did(ours: Served, run: Run) -> None:
    keys = {(ours.state_dir / "secrets.key").read_text()}
    for as_json in (False, True):
        code, out, err = run("admin", "secrets", "rekey", *(["--json"] if as_json else []))
        assert (code, err) == (0, "")
        if as_json:
            told = json.loads(out)
            assert (told["total"], told["resealed"], told["done"], told["setSecretsKey"]) == (1, 1, True, False)
        else:
            assert out.startswith("1 of 1 secrets sealed anew, under key ")
        keys.add((ours.state_dir / "secrets.key").read_text())
    assert len(keys) == 3
    body = {"name": "box", "launcher": "SSH", "kwargs": {"ip": "h", "ssh_key": {"$secret": "pem"}}}
    ours.post("/v1/namespaces/default/providers", body, encoding=JSON)
    opened = ours.post("/v1/namespaces/default/providers/box/resolve", {}, encoding=JSON).body
    assert opened["kwargs"]["ssh_key"] == "the value", "what is sealed anew opens at once"


def test_a_key_comes_by_a_file_or_by_stdin_and_what_is_none_is_refused_by_field(
    ours: Served, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, file = base64.b64encode(b"n" * 32).decode(), tmp_path / "new.key"
    file.write_text(key + "\n")
    code, out, err = run("admin", "secrets", "rekey", "--new-key", str(file))
    assert (code, key in out + err) == (0, False)
    assert (ours.state_dir / "secrets.key").read_text() == key + "\n"
    other = base64.b64encode(b"p" * 32)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(other)))
    assert run("admin", "secrets", "rekey", "--new-key", "-")[0] == 0
    assert (ours.state_dir / "secrets.key").read_text() == other.decode() + "\n"
    file.write_text("c2hvcnQ=")
    code, _out, err = run("admin", "secrets", "rekey", "--new-key", str(file))
    assert (code, "newKey decodes to 5 bytes, not 32" in err) == (1, True)
    file.write_bytes(b"\xff")
    assert run("admin", "secrets", "rekey", "--new-key", str(file))[0] == 2
    assert run("admin", "secrets", "rekey", "--new-key", str(tmp_path / "none"))[0] == 2


def test_with_a_key_in_the_environment_it_says_that_the_new_one_is_to_be_put_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "cp", env=GIVEN, token=ADMIN) as served:
        for name in ("pem", "broken"):
            add(served, name)
        monkeypatch.setenv("LAKESHORE_URL", served.url)
        code, _out, err = run("admin", "secrets", "rekey")
        assert (code, "this server's key is SECRETS_KEY" in err, "--new-key new.key" in err) == (1, True, True)
        (tmp_path / "new.key").write_text(base64.b64encode(b"n" * 32).decode())
        code, _out, err = run("admin", "secrets", "rekey", "--new-key", str(tmp_path / "new.key"))
        assert (code, "start the server with SECRETS_KEY set to the new key" in err) == (0, True)
        served.stop()
    with closing(sqlite3.connect(served.state_dir / "records.db")) as conn, conn:
        conn.execute("UPDATE secret SET tag = zeroblob(16) WHERE name = 'broken'")
    now = {**GIVEN, "SECRETS_KEY_PREVIOUS": base64.b64encode(b"n" * 32).decode()}
    (served.state_dir / "secrets.key.next").unlink()  # the operator chose to go back
    with running(tmp_path / "cp", env=now, token=ADMIN) as served:
        monkeypatch.setenv("LAKESHORE_URL", served.url)
        code, out, err = run("admin", "secrets", "rekey")
        assert (code, out.startswith("1 of 2 secrets sealed anew")) == (1, True)
        assert "default/broken does not open: its row is damaged" in err
        assert "`lakeshore secrets rotate`" in err
