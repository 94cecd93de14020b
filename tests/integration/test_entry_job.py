"""`python -m dreamlake.lakeshore.daemon.entry`: one invocation in its directory, as a daemon starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import entry_bodies as bodies
import pytest
from served import Served, new_id

import dreamlake.lakeshore as dls
from lakeshore import wire

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE_S = 60.0


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    made = tmp_path / new_id()
    made.mkdir()
    return made


def prepare(workdir: Path, function: Any, *args: Any, prefix: str = "") -> str:
    """Write the call where a daemon writes it; its id."""
    with dls.scope(prefix):
        envelope = dls.thunk(function, *args).to_envelope()
    (workdir / "args.msgpack").write_bytes(envelope.to_bytes())
    return envelope.id


def start(workdir: Path, *flags: str, **env: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.Popen(
        [sys.executable, "-m", "dreamlake.lakeshore.daemon.entry", *flags],
        cwd=workdir,
        env={**clean, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(workdir: Path, *flags: str, **env: str) -> int:
    with start(workdir, *flags, **env) as process:
        try:
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    return process.returncode


def result(workdir: Path) -> Any:
    assert not (workdir / "error.json").exists(), (workdir / "error.json").read_text()
    return wire.unpack((workdir / "result.msgpack").read_bytes())


def error(workdir: Path) -> dict[str, Any]:
    assert not (workdir / "result.msgpack").exists()
    return dict(json.loads((workdir / "error.json").read_text()))


@pytest.mark.inventory("P-349", "P-350", "P-351")
def test_a_call_in_the_working_directory_is_run_and_its_packed_value_left_there(workdir: Path) -> None:
    prepare(workdir, bodies.pair, 1, 2)
    (workdir / "error.json").write_text("of an earlier attempt")
    assert run(workdir) == 0
    assert result(workdir) == (1, 2)
    assert sorted(path.name for path in workdir.iterdir()) == ["args.msgpack", "result.msgpack"]


@pytest.mark.inventory("P-352")
def test_a_failure_leaves_its_type_message_and_traceback(workdir: Path) -> None:
    prepare(workdir, bodies.fails)
    (workdir / "result.msgpack").write_bytes(b"of an earlier attempt")
    assert run(workdir) != 0
    told = error(workdir)
    assert (told["type"], told["message"]) == ("ValueError", "no such scene")
    assert told["traceback"].startswith("Traceback")
    assert "entry_bodies.py" in told["traceback"]


@pytest.mark.inventory("P-353")
@pytest.mark.parametrize("function", [bodies.shards, bodies.later_shards])
def test_a_stream_is_drained_into_one_manifest(workdir: Path, function: Any) -> None:
    prepare(workdir, function, 3, prefix="scenes/0007")
    assert run(workdir) == 0
    assert result(workdir) == [f"shards/{i}.txt" for i in range(3)]
    assert (workdir / "scenes/0007/shards/2.txt").read_text() == "2"


@pytest.mark.inventory("P-354")
def test_the_environment_names_the_invocation_and_its_credentials_are_hidden(workdir: Path) -> None:
    prepare(workdir, bodies.told)
    names = dict(zip(bodies.NAMED, ("01JOB", str(workdir), "01PARENT", "01ROOT"), strict=True))
    assert run(workdir, **names, LAKESHORE_CLIENT_TOKEN="secret") == 0
    assert result(workdir) == {"parent": "01JOB", "secrets": [], **names}


@pytest.mark.inventory("P-071")
def test_the_key_contract_holds_there_too(workdir: Path) -> None:
    prepare(workdir, bodies.sloppy)
    assert run(workdir) == 1
    assert error(workdir)["type"] == "KeyError_"
    with pytest.raises(ValueError, match=r"UDF wrote 1 file\(s\)") as here, dls.scope(root=workdir / "here"):
        bodies.sloppy()
    assert error(workdir)["message"] == str(here.value)


@pytest.mark.inventory("P-355")
def test_a_directory_without_a_call_is_told_and_no_queue_is_looked_at(workdir: Path) -> None:
    assert run(workdir, LAKESHORE_QUEUE="jobs") == 1
    assert "args.msgpack must hold the Envelope" in error(workdir)["message"]
    (workdir / "args.msgpack").write_bytes(b"\xc1")
    assert run(workdir) == 1
    assert error(workdir)["type"] == "WorkerError"


@pytest.mark.inventory("P-731")
def test_a_call_gives_the_same_in_its_entry_and_on_a_worker(workdir: Path) -> None:
    plane = dls.Dispatch(":memory:")
    q = dls.SyncQueue("jobs", dispatch=plane)
    by_entry, by_worker = (bodies.shards.submit(2, _queue="jobs", _dispatch=plane) for _ in range(2))
    job = q.claim()
    assert job is not None
    assert job.id == by_entry
    (workdir / "args.msgpack").write_bytes(job.payload.to_bytes())
    assert run(workdir) == 0
    assert dls.run_worker(q, once=True, root=workdir / "other") == 1
    assert result(workdir) == q.result(by_worker) == ["shards/0.txt", "shards/1.txt"]
    plane.close()


def test_a_function_by_value_needs_consent(workdir: Path) -> None:
    prepare(workdir, lambda: 42)
    assert run(workdir) == 1
    assert error(workdir)["type"] == "TransportError"
    assert run(workdir, "--allow-pickled") == 0
    assert result(workdir) == 42
    assert run(workdir, "--runtime-policy", "loose") == 2


def test_a_signal_stops_the_body_and_says_so(workdir: Path) -> None:
    begun = workdir / "begun"
    prepare(workdir, bodies.waits_for_ever, str(begun))
    with start(workdir) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not begun.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert error(workdir)["type"] == "WorkerInterrupted"


@pytest.mark.inventory("P-757")
def test_with_a_plane_and_a_claim_its_yields_are_posted_as_they_come(workdir: Path, server: Served) -> None:
    plane = dls.HttpDispatch(server.url)
    q = dls.SyncQueue(f"q-{new_id()}", dispatch=plane)
    inv = bodies.shards.submit(3, _queue=q.name, _dispatch=plane)
    job = q.claim()
    assert job is not None
    (workdir / "args.msgpack").write_bytes(job.payload.to_bytes())
    assert run(workdir, LAKESHORE_URL=server.url, DREAMLAKE_INVOCATION_ID=inv, DREAMLAKE_CLAIM=str(job.claim)) == 0
    value = result(workdir)
    plane.ack(inv, q.worker_id, result=wire.pack(value), claim=job.claim, last_seq=2)
    assert list(q.stream(inv)) == [[f"shards/{i}.txt"] for i in range(3)]
    assert q.result(inv) == value == [f"shards/{i}.txt" for i in range(3)]
    plane.close()


def test_what_its_body_submits_goes_to_that_plane_as_its_child(workdir: Path, server: Served) -> None:
    plane = dls.HttpDispatch(server.url)
    queue = f"q-{new_id()}"
    prepare(workdir, bodies.submits, queue)
    assert run(workdir, LAKESHORE_URL=server.url, DREAMLAKE_INVOCATION_ID="01PARENT") == 0
    row = plane.get(result(workdir))
    assert row is not None
    assert (row["queue"], row["parent"]) == (queue, "01PARENT")
    plane.close()
