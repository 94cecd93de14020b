"""Archives of code on a daemon's host: the daemon fetches, its jobs import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import daemons as d
import pytest
from code_trees import WORK, Tree, produce
from served import Served
from spaces import Space

SUBMIT = """
import json, sys, work
_queue = {queue!r}
print(json.dumps(work.{call}(*{args!r}, _queue=_queue, _run_config={config!r})))
"""


@pytest.fixture
def daemon(server: Served, tmp_path: Path) -> Iterator[d.Daemon]:
    with d.daemon(server.url, tmp_path / "host") as one:
        yield one.start().polls()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree", {"work.py": WORK, "helper.py": "FACTOR = 3\n"})


def asked(daemon: d.Daemon, server: Served, tree: Tree, call: str, *args: object, **config: object) -> object:
    program = SUBMIT.format(queue=daemon.queue, call=f"{call}.remote", args=args, config=config)
    return json.loads(produce(server.url, tree.top, program)[0])


def test_a_daemons_job_imports_what_its_daemon_fetched(server: Served, daemon: d.Daemon, tree: Tree) -> None:
    for number in range(3):  # cold, then warm
        assert asked(daemon, server, tree, "scaled", number) == 3 * number
    assert asked(daemon, server, tree, "counted", 3) == [0, 3, 6]
    file, _helper, _pid, _path = asked(daemon, server, tree, "places")  # type: ignore[misc]
    assert Path(file).is_relative_to(daemon.directory / ".lakeshore" / "code" / tree.head)
    assert daemon.said().count("fetched the code of commit") == 1
    older, factor = tree.head, "FACTOR = 5\n"
    tree.commit({"helper.py": factor})
    assert [asked(daemon, server, tree, "scaled", 1), tree.head != older] == [5, True]


def test_a_job_whose_archive_is_gone_says_so_and_one_that_does_without_runs(
    server: Served, daemon: d.Daemon, tree: Tree
) -> None:
    space = Space(server, "default")
    program = SUBMIT.format(queue="nobody", call="scaled.submit", args=(1,), config={})
    produce(server.url, tree.top, program)
    (row,) = [row for row in space("GET", "code-repos").body["codeRepos"] if row["commit"] == tree.head]
    stamp = """
    import json, work
    from lakeshore.sdk.default_plane import default_dispatch
    plane = default_dispatch()
    plane.push_code = lambda function: {stamp!r}
    try:
        print(work.scaled.remote(2, _queue={queue!r}, _run_config={config!r}))
    except Exception as error:
        print(error)
    """
    told = {"remote": "r", "commit": tree.head, "archiveKey": row["archiveKey"], "storageName": None}
    assert space("DELETE", f"code-repos/{row['id']}").status == 200
    ask = stamp.format(stamp=told, queue=daemon.queue, config={})
    said = produce(server.url, tree.top, ask)[0]
    assert "cannot import module 'work'" in said and "lakeshore code push" in said
    here = {"env": {"PYTHONPATH": str(tree.top)}}
    assert produce(server.url, tree.top, stamp.format(stamp=told, queue=daemon.queue, config=here))[0] == "6"


@pytest.mark.parametrize("rule", ["off", "first"])
def test_what_a_daemon_says_of_archives_holds_for_its_jobs_whatever_calls_say(
    server: Served, tree: Tree, tmp_path: Path, rule: str
) -> None:
    here = tmp_path / "checkout"
    here.mkdir()
    (here / "work.py").write_text(WORK)
    (here / "helper.py").write_text("FACTOR = 1000\n")
    env = {"LAKESHORE_URL": server.url, "LAKESHORE_CODE": "off" if rule == "first" else "first"}
    with d.daemon(server.url, tmp_path / "host", LAKESHORE_CODE=rule) as daemon:
        daemon.start().polls()
        with_own = {"env": {**env, "PYTHONPATH": str(here)}}
        assert asked(daemon, server, tree, "scaled", 2, **with_own) == (6 if rule == "first" else 2000)
        program = f"""
        import work
        try:
            print(work.scaled.remote(1, _queue={daemon.queue!r}, _run_config={{"env": {env!r}}}))
        except Exception as error:
            print(error)
        """
        said = produce(server.url, tree.top, program)[0]
        assert said == "3" if rule == "first" else "cannot import module 'work'" in said
