"""Archives of code end to end: a function runs on a host that does not have its module, because its commit travels."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from code_trees import ROOT, WORK, Tree, Worker, produce
from served import Served
from spaces import Space

SUBMIT = """
import json, work
print(json.dumps(work.{call}))
"""


@pytest.fixture
def space(server: Served) -> Space:
    return Space(server)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree", {"work.py": WORK, "helper.py": "FACTOR = 3\n"})


def asked(space: Space, tree: Tree, call: str, **more: str) -> object:
    return json.loads(produce(space.server.url, tree.top, SUBMIT.format(call=call), ns=space.ns, **more)[0])


@pytest.mark.inventory("P-334", "P-358", "P-628")
@pytest.mark.inventory("P-304", "C-861")
def test_a_function_runs_on_a_worker_that_has_not_its_module(space: Space, tree: Tree, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=str(home)):
        assert asked(space, tree, "scaled(14)") == 42
        file, helper, _pid, _path = asked(space, tree, "places()")  # type: ignore[misc]
        there = home / "code" / tree.head
        assert Path(file).is_relative_to(there) and Path(helper).is_relative_to(there)
        assert asked(space, tree, "counted(4)") == [0, 3, 6, 9]
    rows = space("GET", "code-repos").body["codeRepos"]
    assert [(row["commit"], row["storageName"], row["remote"]) for row in rows] == [
        (tree.head, None, "https://x.example/r.git")
    ]


@pytest.mark.inventory("P-362", "P-363")
def test_a_second_call_of_a_commit_sends_and_fetches_nothing(space: Space, tree: Tree, tmp_path: Path) -> None:
    program = """
    import json, work
    first = work.scaled(1)
    from lakeshore.sdk.default_plane import default_dispatch
    plane = default_dispatch()
    def refuse(*_, **__): raise AssertionError("git was asked, or an archive sent, once more")
    plane._state().code()._sender.sent = plane._state().code()._stamp = refuse
    print(first + work.scaled(2))
    """
    at = tmp_path / "empty"
    with Worker(space.server.url, at, ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")) as worker:
        assert produce(space.server.url, tree.top, program, ns=space.ns)[0] == "9"
        first = list((tmp_path / "home" / "code").glob("*/*/whole.json"))
        made = [(path, path.stat().st_ino) for path in first]
        assert asked(space, tree, "scaled(3)") == 9
    assert worker.said().count("replace") == 0
    with Worker(space.server.url, at, ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")):
        assert asked(space, tree, "scaled(4)") == 12
    assert [(path, path.stat().st_ino) for path in first] == made, "what is unpacked is used again"
    assert len(space("GET", "code-repos").body["codeRepos"]) == 1


def test_a_long_lived_worker_runs_each_call_with_the_modules_of_its_own_commit(
    space: Space, tree: Tree, tmp_path: Path
) -> None:
    """The function is the same in both commits; what it imports is not."""
    with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")) as worker:
        assert asked(space, tree, "scaled(1)") == 3
        older = Tree(tmp_path / "older", {"work.py": WORK, "helper.py": "FACTOR = 3\n"})
        tree.commit({"helper.py": "FACTOR = 5\n"})
        assert [asked(space, tree, "scaled(1)"), asked(space, older, "scaled(1)")] == [5, 3]
        assert asked(space, tree, "scaled(2)") == 10
        rows = space("GET", "invocations?limit=50").body["invocations"]
        assert {row["attempt"] for row in rows} == {1}, "a call that was given back unbegun has not been tried"
    assert worker.said().count("a fresh process takes over") >= 2


@pytest.mark.parametrize("stale", [False, True])
def test_what_a_worker_has_itself_comes_first_unless_it_is_another_version(
    space: Space, tree: Tree, tmp_path: Path, stale: bool
) -> None:
    here = tmp_path / "checkout"
    here.mkdir()
    (here / "work.py").write_text(WORK.replace("FACTOR * x", "FACTOR + x") if stale else WORK)
    (here / "helper.py").write_text("FACTOR = 1000\n")  # as what git does not keep: it is not looked at
    with Worker(space.server.url, here, ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")):
        assert asked(space, tree, "scaled(2)") == (6 if stale else 2000)
    assert (tmp_path / "home" / "code").exists() == stale


def test_archives_are_looked_at_first_or_never_where_that_is_said(space: Space, tree: Tree, tmp_path: Path) -> None:
    here = tmp_path / "checkout"
    here.mkdir()
    (here / "work.py").write_text(WORK)
    (here / "helper.py").write_text("FACTOR = 1000\n")
    home = {"LAKESHORE_HOME": str(tmp_path / "home"), "ns": space.ns}
    with Worker(space.server.url, here, LAKESHORE_CODE="first", **home):
        assert asked(space, tree, "scaled(2)") == 6
    with Worker(space.server.url, tmp_path / "empty", LAKESHORE_CODE="off", **home):
        assert "cannot import module 'work'" in failure(space, tree)
    with Worker(space.server.url, tmp_path / "empty", **home):
        assert "cannot import module 'work'" in failure(space, tree, LAKESHORE_CODE="off")


def failure(space: Space, tree: Tree, **more: str) -> str:
    program = """
    import work
    try:
        print(work.scaled(1))
    except Exception as error:
        print(error)
    """
    return str(produce(space.server.url, tree.top, program, ns=space.ns, **more)[0])


def test_the_interpreters_modules_and_ours_are_hidden_by_no_archive(space: Space, tree: Tree, tmp_path: Path) -> None:
    tree.commit({"json.py": "raise RuntimeError\n", "secrets.py": "raise RuntimeError\n", "lakeshore/__init__.py": ""})
    tree.commit({"work.py": WORK.replace("def scaled(x):\n", "def scaled(x):\n    import secrets, lakeshore.wire\n")})
    program = "import sys; sys.path.append('tree'); import work; print(work.scaled(2))"
    for first in ("", "first"):
        home = str(tmp_path / f"home{first}")
        with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=home, LAKESHORE_CODE=first):
            assert produce(space.server.url, tmp_path, program, ns=space.ns, PYTHONPATH=str(ROOT))[0] == "6"


def test_a_module_in_a_subdirectory_is_imported_as_it_was(space: Space, tmp_path: Path) -> None:
    files = {"py/src/proj/__init__.py": "", "py/src/proj/work.py": WORK.replace("from helper", "from .helper")}
    files |= {"py/src/proj/helper.py": "from shared import FACTOR\n", "py/lib/shared.py": "FACTOR = 7\n"}
    Tree(tmp_path / "tree", files)
    program = "import sys; sys.path.insert(0, '../lib'); from proj import work; print(work.scaled(3))"
    with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")):
        at = tmp_path / "tree" / "py" / "src"
        assert produce(space.server.url, at, program, ns=space.ns)[0] == "21"


@pytest.mark.inventory("P-360", "P-761", "P-366")
def test_a_tree_with_changes_has_no_stamp_and_says_so_once(space: Space, tree: Tree, tmp_path: Path) -> None:
    tree.write({"helper.py": "FACTOR = 11\n"})
    program = """
    import work
    ids = [work.scaled.submit(1), work.scaled.submit(2), work.places.submit()]
    print(len(ids))
    """
    out, err = produce(space.server.url, tree.top, program, ns=space.ns)
    assert (out, err.count("changes that are not committed"), "helper.py" in err) == ("3", 1, True)
    assert produce(space.server.url, tree.top, program, ns=space.ns, PYTHONWARNINGS="ignore")[0] == "3"
    assert space("GET", "code-repos").body["codeRepos"] == []


@pytest.mark.inventory("P-366")
@pytest.mark.parametrize("kind", ["no repository", "no commit", "not tracked", "ignored"])
def test_code_that_git_does_not_keep_is_submitted_as_ever(space: Space, tmp_path: Path, kind: str) -> None:
    top = tmp_path / "tree"
    if kind == "no repository":
        top.mkdir()
    elif kind == "no commit":
        Tree(top)
    else:
        Tree(top, {".gitignore": "work.py\nhelper.py\n" if kind == "ignored" else "x\n"})
    (top / "work.py").write_text(WORK)
    (top / "helper.py").write_text("FACTOR = 2\n")
    out, err = produce(space.server.url, top, "import work; print(len(work.scaled.submit(1)))", ns=space.ns)
    assert (out, err) == ("26", "")
    assert space("GET", "code-repos").status == 404 or space("GET", "code-repos").body["codeRepos"] == []


@pytest.mark.inventory("P-360", "P-361", "P-736")
def test_push_if_needed_sends_what_is_committed_and_with_allow_dirty_what_lies_there(
    space: Space, tree: Tree, tmp_path: Path
) -> None:
    program = """
    import json
    from dreamlake.lakeshore.code_archive import push_if_needed
    from lakeshore.sdk.default_plane import default_dispatch
    plane = default_dispatch()
    print(json.dumps([push_if_needed(plane), push_if_needed(plane, allow_dirty=True), plane.push_code()]))
    """
    tree.write({"helper.py": "FACTOR = 11\n", "new.py": "x = 1\n"})
    nothing, dirty, by_hand = json.loads(produce(space.server.url, tree.top, program, ns=space.ns)[0])
    assert (nothing, by_hand, dirty["commit"] != tree.head) == (None, None, True)
    assert {"remote", "commit", "archiveKey", "storageName"} <= dirty.keys()
    with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")):
        assert asked(space, tree, "scaled(2)") == 22, "the snapshot that was sent is what its calls are stamped with"
    tree.write({"helper.py": "FACTOR = 12\n"})
    assert (
        "changes that are not committed"
        in produce(space.server.url, tree.top, "import work; work.scaled.submit(1)", ns=space.ns)[1]
    )
    tree.git("checkout", "-q", "helper.py")
    (tree.top / "new.py").unlink()
    clean, same, _ = json.loads(produce(space.server.url, tree.top, program, ns=space.ns)[0])
    assert clean["commit"] == same["commit"] == tree.head


@pytest.mark.inventory("P-365")
def test_the_local_plane_has_no_code_channel(tree: Tree, tmp_path: Path) -> None:
    program = """
    import work
    import dreamlake.lakeshore as dls
    from lakeshore.wire import Envelope
    plane = dls.Dispatch(":memory:")
    work.scaled.submit(1, _dispatch=plane)
    print(dict(Envelope.from_bytes(plane.claim("work", "w").envelope).cfg), hasattr(plane, "push_code"))
    """
    assert produce("", tree.top, program, LAKESHORE_HOME=str(tmp_path))[0] == "{} False"


def test_two_workers_that_begin_at_once_share_what_is_unpacked(space: Space, tree: Tree, tmp_path: Path) -> None:
    program = """
    import json, work
    ids = [work.places.submit() for _ in range(40)]
    q = __import__("dreamlake.lakeshore").lakeshore.SyncQueue("work")
    found = [q.result(one, timeout=60) for one in ids]
    print(json.dumps(sorted({value[0] for value in found})))
    """
    home = {"LAKESHORE_HOME": str(tmp_path / "home"), "ns": space.ns}
    with Worker(space.server.url, tmp_path / "a", **home), Worker(space.server.url, tmp_path / "b", **home):
        files = json.loads(produce(space.server.url, tree.top, program, ns=space.ns)[0])
    assert len(files) == 1
    assert [path.name for path in (tmp_path / "home" / "code").iterdir()] == [tree.head]


def test_an_archive_that_is_not_what_was_stamped_is_run_by_nobody(space: Space, tree: Tree, tmp_path: Path) -> None:
    """Another archive than the call's, and one that is a bomb: the call ends in a sentence, the worker goes on."""
    program = """
    import work
    from lakeshore.sdk.default_plane import default_dispatch
    plane = default_dispatch()
    stamp = {**plane.push_code({"module": "work", "src_hash": None})}
    try:
        plane.push_code = lambda function: {**stamp, **%r}
        print(work.scaled(1))
    except Exception as error:
        print(error)
    """
    with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")):
        for change, says in (({"sha256": "0" * 64}, "damaged"), ({"archiveKey": f"code/{'0' * 40}/x"}, "no archive")):
            said = produce(space.server.url, tree.top, program % change, ns=space.ns)[0]
            assert "cannot import module 'work'" in said and says in said
        assert asked(space, tree, "scaled(2)") == 6
    assert [path.name for path in (tmp_path / "home" / "code").iterdir()] == [tree.head]


HOSTILE = """
import gzip, hashlib, io, json, tarfile, time, urllib.request
from lakeshore.sdk.default_plane import default_dispatch
from lakeshore.sdk.ids import new_id
from lakeshore.wire import Envelope
plane = default_dispatch()
at = f"{plane.base_url}/v1/namespaces/{plane.namespace}/code-archives?remote=r&commit="
made = io.BytesIO()
with tarfile.open(fileobj=made, mode="w") as tar:
    tar.addfile(tarfile.TarInfo("a.py"))
usual = made.getvalue()
long = tarfile.TarInfo("x")
long.type, long.size = b"L", 512
endless = (long.tobuf() + b"a" * 511 + b"\\0") * 900 + usual

def ask(number, tar=usual, stamp={}, fn={}):
    commit, headers = f"{number:040x}", {"Content-Type": "application/octet-stream", "Accept": "application/json"}
    sent = urllib.request.Request(at + commit, gzip.compress(tar), headers, method="POST")
    row = json.load(urllib.request.urlopen(sent))
    cfg = {"commit": commit, "archiveKey": row["archiveKey"], "storageName": None, "roots": [""], **stamp}
    fn = {"kind": "ref", "module": "nowhere", "qualname": "f", "src_hash": "sha256:00", **fn}
    id = new_id()
    plane.submit("work", Envelope.build(id=id, fn=fn, cfg={"code": cfg}).to_bytes(), id=id)
    try:
        return plane.result(id, timeout=60)
    except Exception as error:
        return type(error).__name__

print(json.dumps([
    ask(1, tar=endless),
    ask(2, stamp={"roots": ["a" * 300]}),
    ask(3, stamp={"archiveKey": "../../me"}),
    ask(4, fn={"src_hash": ["x"]}),
    ask(5, fn={"module": ["x"]}),
    ask(6, fn={"module": "a\\0b"}),
    ask(7, fn={"module": ".".join("m" * 5000)}),
    ask(8, fn={"module": ""}),
]))
"""


def test_a_call_that_nobody_can_prepare_is_its_own_end_and_not_the_workers(
    space: Space, tree: Tree, tmp_path: Path
) -> None:
    """Who may submit writes the Envelope and the archive: neither may end a worker, or come back to the queue."""
    with Worker(space.server.url, tmp_path / "empty", ns=space.ns, LAKESHORE_HOME=str(tmp_path / "home")) as worker:
        ended = json.loads(produce(space.server.url, tree.top, HOSTILE, ns=space.ns)[0])
        assert ended == ["InvocationFailed"] * 8
        assert asked(space, tree, "scaled(2)") == 6
        assert worker.process.poll() is None
    assert "Traceback" not in worker.said()


def test_a_git_that_hangs_and_a_server_without_room_are_asked_once_and_not_for_each_call(
    space: Space, tree: Tree, tmp_path: Path
) -> None:
    """Two functions of two modules; and calls that cannot have a stamp for a minute."""
    tree.commit({"other.py": WORK})
    asked, program = tmp_path / "asked", "import work, other\n"
    (tmp_path / "bin").mkdir()
    git = tmp_path / "bin" / "git"
    git.write_text(f"#!/bin/sh\necho x >> {asked}\n{{does}}\n".replace("{does}", "exec sleep 600"))
    git.chmod(0o755)
    env = {"PATH": f"{git.parent}:{os.environ['PATH']}", "ns": space.ns}
    program += "from lakeshore.archives import trees\ntrees.GIT_S = 0.5\n"
    program += "print(len({m.scaled.submit(n) for m in (work, other) for n in (1, 2)}))"
    assert produce(space.server.url, tree.top, program, **env)[0] == "4"
    assert asked.read_text() == "x\n"
    program = """
    import sys, work
    from lakeshore.sdk import code
    from lakeshore.sdk.errors import DispatchError
    def refuse(*_): raise DispatchError("no room")
    code._Sender.sent = refuse
    work.scaled.submit(1)
    code.tree_at = code.is_tracked = sys.exit
    print(len({work.scaled.submit(n) for n in range(9)}))
    """
    assert produce(space.server.url, tree.top, program, ns=space.ns)[0] == "9"


def test_what_a_body_submits_is_of_the_commit_that_the_body_is_of(space: Space, tree: Tree, tmp_path: Path) -> None:
    """No git is where an archive is unpacked; and the producer's tree may be gone by then."""
    body = (
        "import dreamlake.lakeshore as dls, work\n\n@dls.udf(queue='outer')\ndef outer(x):\n    return work.scaled(x)\n"
    )
    tree.commit({"src/outer.py": body, "src/work.py": WORK, "src/helper.py": "FACTOR = 4\n"})
    home = {"LAKESHORE_HOME": str(tmp_path / "home"), "ns": space.ns}
    with (
        Worker(space.server.url, tmp_path / "a", queue="outer", **home),
        Worker(space.server.url, tmp_path / "b", **home),
    ):
        program = "import outer; print(outer.outer(5))"
        assert produce(space.server.url, tree.top, program, path="src", ns=space.ns)[0] == "20"
