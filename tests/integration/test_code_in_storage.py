"""Archives of code in an object store: with a storage `code-staging`, they go and come by its URLs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import daemons as d
import pytest
from code_trees import WORK, Tree, Worker, produce
from s3_stores import KEY_ID, S3, SECRET, s3
from served import Served
from spaces import Space

SUBMIT = "import json, work; print(json.dumps(work.scaled(14)))"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3(tmp_path_factory.mktemp("s3") / "buckets") as store:
        store.has("lab")
        yield store


@pytest.fixture
def space(server: Served, store: S3) -> Space:
    space = Space(server)
    space.made("secrets", {"name": "keys", "kind": "aws_keypair", "plaintext": f"{KEY_ID}:{SECRET}"})
    config = {"bucket": "lab", "prefix": space.ns, "endpoint": store.url, "creds": {"$secret": "keys"}}
    space.made("storages", {"name": "code-staging", "kind": "s3-prefix", "config": config})
    return space


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree", {"work.py": WORK, "helper.py": "FACTOR = 3\n"})


@pytest.mark.inventory("P-359", "S-247", "C-175")
def test_an_archive_goes_to_the_storage_in_one_piece_and_comes_from_there(
    space: Space, store: S3, tree: Tree, tmp_path: Path
) -> None:
    with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")):
        assert produce(space.server.url, tree.top, SUBMIT, ns=space.ns) == ("42", "")
    (row,) = space("GET", "code-repos").body["codeRepos"]
    assert (row["storageName"], row["commit"]) == ("code-staging", tree.head)
    ((key, data),) = [(k, v) for k, v in store.keys("lab").items() if k.startswith(space.ns)]
    assert key == f"{space.ns}/{row['archiveKey']}"
    assert row["sha256"] == hashlib.sha256(data).hexdigest()


def test_the_command_line_and_a_daemon_use_it_too(
    space: Space, store: S3, tree: Tree, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.top)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", space.ns)
    monkeypatch.setenv("LAKESHORE_URL", space.server.url)
    code, out, err = run("code", "push")
    assert (code, out.split()[0]) == (0, "archived"), err
    assert run("code", "push")[1].startswith("already archived")
    assert json.loads(run("code", "list", "--json")[1])[0]["storageName"] == "code-staging"
    with d.daemon(space.server.url, tmp_path / "host", {"server": {"namespace": space.ns}}) as daemon:
        daemon.start().polls()
        program = f"import work; print(work.scaled(5, _queue={daemon.queue!r}))"
        assert produce(space.server.url, tree.top, program, ns=space.ns)[0] == "15", daemon.said()


def test_a_store_that_refuses_keeps_no_call_from_being_submitted(space: Space, tree: Tree, store: S3) -> None:
    assert space("PUT", "secrets/keys", {"plaintext": "AKIAGONE:wrong"}).status == 200
    out, err = produce(space.server.url, tree.top, "import work; print(len(work.scaled.submit(1)))", ns=space.ns)
    assert out == "26" and "does not travel with its calls" in err and "403" in err
    assert "X-Amz" not in err and "wrong" not in err
    assert space("GET", "code-repos").body["codeRepos"] == []
