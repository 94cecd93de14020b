"""What the pages promise of `Dispatch` and its journal, of the process's plane and the environment that picks it."""

from __future__ import annotations

import dataclasses
import inspect
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import served
import worker_bodies as bodies

import dreamlake.lakeshore as dls
from lakeshore import wire
from lakeshore.sdk.claimed import Claimed
from lakeshore.sdk.default_plane import default_dispatch
from lakeshore.sdk.entry.worker import read_settings
from lakeshore.sdk.errors import DispatchError

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
BLINK_S = 0.05
NEEDED = inspect.Parameter.empty


@pytest.fixture
def dp() -> Iterator[dls.Dispatch]:
    made = dls.Dispatch(":memory:")
    yield made
    made.close()


def shape(function: Any, *names: str) -> dict[str, tuple[Any, bool]]:
    """name → (default, keyword only), of the documented parameters."""
    found = inspect.signature(function).parameters
    return {name: (found[name].default, found[name].kind is inspect.Parameter.KEYWORD_ONLY) for name in names}


def frame(seq: int, body: Any = None) -> bytes:
    return wire.Frame(kind=wire.FrameKind.VALUE, seq=seq, body=body, meta=None).to_bytes()


# -- the local plane


@pytest.mark.parametrize(
    ("verb", "parameters"),
    [
        pytest.param(
            "submit",
            {"queue": (NEEDED, False), "envelope": (NEEDED, False), "id": (NEEDED, True), "key": (None, True),
             "priority": (0.0, True), "parent": (None, True)},
            marks=pytest.mark.inventory("P-270"),
        ),
        pytest.param(
            "claim",
            {"queue": (NEEDED, False), "worker_id": (NEEDED, False), "kind": ("fifo", True),
             "temperature": (1.0, True)},
            marks=pytest.mark.inventory("P-271"),
        ),
        pytest.param(
            "ack",
            {"inv_id": (NEEDED, False), "worker_id": (NEEDED, False), "result": (None, True)},
            marks=pytest.mark.inventory("P-273"),
        ),
        pytest.param(
            "nack",
            {"inv_id": (NEEDED, False), "worker_id": (NEEDED, False), "error": (NEEDED, True), "retry": (True, True)},
            marks=pytest.mark.inventory("P-274"),
        ),
        pytest.param(
            "result",
            {"inv_id": (NEEDED, False), "timeout": (30.0, True), "poll": (0.02, True)},
            marks=pytest.mark.inventory("P-277"),
        ),
        pytest.param(
            "count", {"queue": (NEEDED, False), "state": ("queued", False)}, marks=pytest.mark.inventory("P-278")
        ),
        pytest.param(
            "journal_read",
            {"inv_id": (NEEDED, False), "since": (-1, True), "timeout": (30.0, True), "poll": (0.02, True)},
            marks=pytest.mark.inventory("P-291"),
        ),
        pytest.param(
            "journal_trim",
            {"inv_id": (NEEDED, False), "keep_last": (0, True)},
            marks=pytest.mark.inventory("P-293"),
        ),
    ],
)  # fmt: skip
def test_a_verb_takes_what_is_documented_on_both_planes(verb: str, parameters: dict[str, tuple[Any, bool]]) -> None:
    for plane in (dls.Dispatch, dls.HttpDispatch):
        assert shape(getattr(plane, verb), *parameters) == parameters


@pytest.mark.inventory("P-267", "P-268")
def test_a_plane_is_in_memory_or_in_one_file_of_sqlite_with_a_wal(tmp_path: Path) -> None:
    memory = dls.Dispatch()
    assert (memory.path, memory.ns) == (":memory:", "default")
    memory.close()
    dp = dls.Dispatch(str(tmp_path / "d.sqlite"), ns="team")
    dp.submit("q", b"x", id="a")
    dp.close()
    with closing(sqlite3.connect(tmp_path / "d.sqlite")) as database, database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("SELECT ns, id, state FROM invocation").fetchall() == [("team", "a", "queued")]
    database.close()


@pytest.mark.inventory("P-269")
def test_a_plane_in_memory_serves_every_thread(dp: dls.Dispatch) -> None:
    q, ended = dls.SyncQueue("jobs", dispatch=dp), threading.Event()
    worker = threading.Thread(target=lambda: dls.run_worker(q, stop=ended.is_set, poll=0.01))
    worker.start()
    got: dict[int, Any] = {}

    def produce(n: int) -> None:
        got[n] = q.result(bodies.add.submit(n, n, _queue="jobs", _dispatch=dp), timeout=PATIENCE_S)

    producers = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    for thread in producers:
        thread.start()
    for thread in producers:
        thread.join(PATIENCE_S)
    ended.set()
    worker.join(PATIENCE_S)
    assert got == {0: 0, 1: 2, 2: 4, 3: 6}


@pytest.mark.inventory("P-276", "P-280")
def test_a_row_tells_its_state_in_the_documented_words(dp: dls.Dispatch) -> None:
    assert dp.get("a") is None
    for inv in "abcde":
        dp.submit("q", inv.encode(), id=inv)
    done, failing, _running = (dp.claim("q", "w") for _ in range(3))
    assert done is not None
    assert failing is not None
    dp.ack(done.id, "w", result=b"r")
    dp.nack(failing.id, "w", error="no", retry=False)
    dp.cancel("d")
    rows = [dp.get(inv) for inv in "abcde"]
    assert [row["state"] for row in rows if row is not None] == [
        "succeeded",
        "failed",
        "running",
        "cancelled",
        "queued",
    ]
    assert rows[4] is not None
    assert (rows[4]["id"], rows[4]["queue"]) == ("e", "q")


def test_what_is_claimed_is_a_dataclass_with_the_documented_fields(dp: dls.Dispatch) -> None:
    dp.submit("q", b"the bytes", id="a")
    job = dp.claim("q", "w")
    assert job is not None
    assert dataclasses.is_dataclass(Claimed)
    assert (job.id, job.envelope, job.attempt, job.queue) == ("a", b"the bytes", 1, "q")


@pytest.mark.inventory("P-279")
def test_a_closed_plane_says_so(tmp_path: Path) -> None:
    dp = dls.Dispatch(tmp_path / "d.sqlite")
    dp.submit("q", b"", id="a")
    dp.close()
    dp.close()
    with pytest.raises(DispatchError, match="is closed"):
        dp.count("q")
    again = dls.Dispatch(tmp_path / "d.sqlite")
    assert again.count("q") == 1
    again.close()


@pytest.mark.inventory("P-281")
def test_an_invocation_is_one_row_through_its_whole_life(tmp_path: Path) -> None:
    dp = dls.Dispatch(tmp_path / "d.sqlite", durability="process")
    looking = sqlite3.connect(tmp_path / "d.sqlite")

    def rows() -> list[Any]:
        return looking.execute("SELECT id, state FROM invocation").fetchall()

    dp.submit("q", b"", id="a")
    assert rows() == [("a", "queued")]
    dp.claim("q", "w")
    assert rows() == [("a", "running")]
    dp.nack("a", "w", error="again")
    assert rows() == [("a", "queued")]
    dp.claim("q", "w")
    dp.ack("a", "w")
    assert rows() == [("a", "succeeded")]
    named = {name for (name,) in looking.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not [name for name in named if "pending" in name or "ready" in name], "who waits is read off the rows"
    looking.close()
    dp.close()


class Verbs:
    """Somebody's own plane: the documented verbs and nothing else."""

    def __init__(self, inner: dls.Dispatch) -> None:
        for verb in (
            *("submit", "claim", "ack", "nack", "cancel", "get", "result", "count", "close"),
            *("journal_append", "journal_read", "journal_trim"),
        ):
            setattr(self, verb, getattr(inner, verb))


@pytest.mark.inventory("P-288", "P-446")
def test_any_object_with_the_verbs_is_a_plane(dp: dls.Dispatch) -> None:
    import asyncio

    q = dls.SyncQueue("jobs", dispatch=Verbs(dp))
    inv = bodies.count.submit(3, _queue="jobs", _dispatch=q.plane)
    assert q.count() == 1
    assert dls.run_worker(q, once=True, allow_pickled=False) == 1
    assert list(q.stream(inv, timeout=PATIENCE_S)) == [0, 1, 2]
    assert q.result(inv, timeout=PATIENCE_S) == [0, 1, 2]

    async def main() -> Any:
        twin = dls.Queue("jobs", dispatch=q.plane)
        raw = await twin.submit({"n": 1})
        job = await twin.claim()
        assert job is not None
        await twin.ack(job, job.payload)
        return [value async for value in twin.stream(inv)], await twin.result(raw)

    assert asyncio.run(main()) == ([0, 1, 2], {"n": 1})


@pytest.mark.inventory("P-292")
def test_a_reader_blocks_until_the_end_and_activity_resets_its_patience(dp: dls.Dispatch) -> None:
    dp.submit("q", b"", id="a")
    assert dp.claim("q", "w") is not None
    reading = dp.journal_read("a", timeout=0.4)
    started = time.monotonic()
    for seq in range(4):
        dp.journal_append("a", seq, frame(seq))
        assert next(reading)[0] == seq
        time.sleep(0.15)  # silence that is shorter than its patience
    assert time.monotonic() - started > 0.4
    with pytest.raises(TimeoutError):
        next(reading)
    blocked = dp.journal_read("a", since=3, timeout=PATIENCE_S)
    threading.Timer(BLINK_S, lambda: dp.ack("a", "w", result=b"r")).start()
    assert [wire.Frame.from_bytes(data).kind for _seq, data in blocked] == [wire.FrameKind.END]
    dp.submit("q", b"", id="plain")
    dp.claim("q", "w")
    dp.ack("plain", "w")
    assert list(dp.journal_read("plain", timeout=PATIENCE_S)) == []


def test_a_trim_keeps_the_last_frames_and_says_how_many_went(dp: dls.Dispatch) -> None:
    dp.submit("q", b"", id="a")
    dp.claim("q", "w")
    for seq in range(5):
        dp.journal_append("a", seq, frame(seq))
    assert (dp.journal_trim("a", keep_last=2), dp.journal_trim("a", keep_last=2)) == (3, 0)
    assert [seq for seq, _ in islice(dp.journal_read("a", timeout=PATIENCE_S), 2)] == [3, 4]


# -- the process's plane


@pytest.mark.inventory("P-262", "P-264", "P-400")
def test_without_a_url_the_plane_is_a_file_in_the_home_and_is_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "state"))
    plane = default_dispatch()
    assert plane.path == str(tmp_path / "state" / "dispatch.sqlite")
    assert default_dispatch() is plane
    assert dls.SyncQueue("a").plane is dls.Queue("b").sync.plane is plane
    monkeypatch.delenv("LAKESHORE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert default_dispatch().path == str(tmp_path / "user" / ".lakeshore" / "dispatch.sqlite")


@pytest.mark.inventory("P-263", "P-397", "P-398")
def test_a_url_selects_the_control_plane_with_its_token_and_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESHORE_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("LAKESHORE_CLIENT_TOKEN", "secret")
    plane = default_dispatch()
    assert isinstance(plane, dls.HttpDispatch)
    assert (plane.base_url, plane.token, plane.namespace) == ("http://127.0.0.1:9", "secret", "default")
    assert read_settings([]).token == "secret"


@pytest.mark.inventory("P-399", "P-339")
def test_the_namespace_is_default_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (default_dispatch().ns, read_settings([]).namespace) == ("default", "default")
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "team")
    assert (default_dispatch().ns, read_settings([]).namespace) == ("team", "team")
    assert read_settings(["--namespace", "other"]).namespace == "other"


@pytest.mark.inventory("P-401")
def test_three_variables_are_for_the_worker_process_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("QUEUE", "jobs"), ("ROOT", str(tmp_path)), ("RUNTIME_POLICY", "strict")):
        monkeypatch.setenv(f"LAKESHORE_{name}", value)
    settings = read_settings([])
    assert (settings.queue, settings.root, settings.runtime_policy) == ("jobs", str(tmp_path), "strict")
    assert dls.run.root == Path.cwd()
    q = dls.SyncQueue("here")
    inv = bodies.write_key.submit("kept", _queue="here")
    dls.run_worker(q, once=True, root=tmp_path / "own")
    assert q.result(inv, timeout=PATIENCE_S) == "out.txt"
    assert (tmp_path / "own" / "out.txt").exists()


@pytest.mark.inventory("P-342")
def test_pickled_functions_are_allowed_by_the_flag_and_by_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESHORE_ALLOW_PICKLED", "1")
    away = ["--url", "http://127.0.0.1:9"]
    assert read_settings(away).allow_pickled is False
    assert read_settings([*away, "--allow-pickled"]).allow_pickled is True


@pytest.mark.inventory("P-266", "P-089")
def test_a_plane_can_be_named_for_one_call_and_for_one_queue(dp: dls.Dispatch) -> None:
    inv = bodies.add.submit(1, 2, _queue="jobs", _dispatch=dp)
    assert dp.count("jobs") == dls.SyncQueue("jobs", dispatch=dp).count() == 1
    assert default_dispatch().count("jobs") == 0
    assert dp.get(inv) is not None


# -- calls on a plane


@pytest.mark.inventory("P-067", "P-068", "P-097")
def test_a_plain_call_of_a_bound_function_submits_and_waits(dp: dls.Dispatch) -> None:
    bound = dls.udf(queue="jobs")(bodies.add)
    stream = dls.udf(queue="jobs")(bodies.count)
    q, ended = dls.SyncQueue("jobs", dispatch=dp), threading.Event()
    worker = threading.Thread(target=lambda: dls.run_worker(q, stop=ended.is_set, poll=0.01))
    worker.start()
    try:
        assert bound(1, 2, _dispatch=dp) == bound.remote(1, 2, _dispatch=dp) == 3
        assert stream.remote(3, _dispatch=dp) == [0, 1, 2]
        assert q.count("succeeded") == 3
    finally:
        ended.set()
        worker.join(PATIENCE_S)


@pytest.mark.inventory("P-099", "P-742")
def test_a_remote_call_waits_thirty_seconds_or_as_long_as_it_is_told(dp: dls.Dispatch) -> None:
    from lakeshore.sdk.submit import WAIT_S

    assert WAIT_S == 30.0
    bound = dls.udf(queue="jobs")(bodies.add)
    for call in (bound, bound.remote):
        with pytest.raises(TimeoutError, match=f"still 'queued' after {BLINK_S}s"):
            call(1, 2, _dispatch=dp, _timeout=BLINK_S)
    assert dp.count("jobs") == 2, "the invocations go on"


@pytest.mark.inventory("P-100", "P-730")
def test_awaiting_a_bound_function_leaves_the_loop_alive(dp: dls.Dispatch) -> None:
    import asyncio

    bound = dls.udf(queue="jobs")(bodies.aadd)
    q = dls.SyncQueue("jobs", dispatch=dp)

    async def main() -> int:
        waiting = asyncio.ensure_future(bound(1, 2, _dispatch=dp))
        assert await asyncio.to_thread(dls.run_worker, q, once=True, wait=PATIENCE_S) == 1
        with pytest.raises(TimeoutError):
            await bound(1, 2, _dispatch=dp, _timeout=BLINK_S)
        return int(await waiting)

    assert asyncio.run(main()) == 3


@pytest.mark.inventory("P-095", "P-720", "P-747")
def test_a_parent_is_the_running_invocation_or_the_one_that_is_named(dp: dls.Dispatch) -> None:
    alone = bodies.add.submit(1, 2, _queue="jobs", _dispatch=dp)
    named = bodies.add.submit(1, 2, _queue="jobs", _dispatch=dp, _parent=alone)
    rows = [dp.get(inv) for inv in (alone, named)]
    assert rows[0] is not None
    assert rows[1] is not None
    assert rows[0].get("parent") is None
    assert rows[1]["parent"] == alone


@pytest.mark.inventory("P-754")
def test_results_are_taken_as_they_finish_through_the_standard_library(dp: dls.Dispatch) -> None:
    import asyncio

    q = dls.Queue("jobs", dispatch=dp)

    async def main() -> list[int]:
        ids = [await q.submit(n) for n in range(3)]
        newest_first = dls.SyncQueue("jobs", dispatch=dp, kind="filo")
        waiting = [asyncio.ensure_future(q.result(inv, timeout=PATIENCE_S)) for inv in ids]
        done = []
        for _ in ids:
            job = newest_first.claim()
            assert job is not None
            newest_first.ack(job, job.payload)
            finished, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done += [task.result() for task in finished]
            waiting = [task for task in waiting if task not in finished]
        return done

    assert asyncio.run(main()) == [2, 1, 0]


# -- the module map


@pytest.mark.inventory("P-048", "P-740")
@pytest.mark.parametrize("module", ["dreamlake.lakeshore", "dreamlake.lakeshore.daemon"])
def test_the_worker_runs_under_both_its_module_names(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--queue", "empty", "--once"],
        cwd=ROOT,
        env={**served.environment(), "LAKESHORE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "queue 'empty'" in done.stderr


# -- decided contradictions


@pytest.mark.inventory("P-722")
def test_the_queues_own_kind_decides_and_the_claimers_where_it_has_none(tmp_path: Path) -> None:
    dp = dls.Dispatch(tmp_path / "d.sqlite", durability="process")
    for queue in ("own", "none"):
        for n in range(3):
            dp.submit(queue, b"", id=f"{queue}-{n}")
    editing = sqlite3.connect(tmp_path / "d.sqlite")
    assert editing.execute("UPDATE queue SET kind = 'filo' WHERE name = 'own'").rowcount == 1
    editing.commit()
    editing.close()

    def order(queue: str, kind: str) -> list[str]:
        jobs = [dp.claim(queue, "w", kind=kind) for _ in range(3)]
        return [job.id for job in jobs if job is not None]

    assert order("own", "fifo") == ["own-2", "own-1", "own-0"]
    assert order("none", "fifo") == ["none-0", "none-1", "none-2"]
    dp.close()
