"""What a worker of a server must not run, or cannot: each ends that call with the reason, and the worker goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_bodies as bodies
import msgpack
import pytest
import served

from lakeshore import wire
from lakeshore.sdk.errors import DispatchError, InvocationFailed
from lakeshore.sdk.functions import Thunk
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.ids import new_id
from lakeshore.sdk.queues import SyncQueue
from lakeshore.sdk.transport import describe
from lakeshore.wire.messages import MAX_PAYLOAD_BYTES

HERE = Path(__file__).parent
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def q(serving: tuple[SyncQueue, int]) -> SyncQueue:
    return serving[0]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SyncQueue, int]]:
    """A queue of a server, and one worker that refuses pickled functions and runs throughout: its pid."""
    home = tmp_path_factory.mktemp("refusing")
    with served.running(home) as server, (home / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", server.url],
            cwd=HERE,
            env=served.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        plane = HttpDispatch(server.url)
        try:
            yield SyncQueue("work", dispatch=plane), worker.pid
            assert worker.poll() is None, (home / "worker.log").read_text()
            worker.terminate()
            assert worker.wait(PATIENCE_S) == 0
        finally:
            worker.kill()
            worker.wait()
            plane.close()


@pytest.fixture(autouse=True)
def works_on(q: SyncQueue) -> Iterator[None]:
    """Whatever was refused, the same worker runs the next call."""
    yield
    inv = bodies.plus_one.submit(1, _queue=q.name, _dispatch=q.plane)
    assert q.result(inv, timeout=PATIENCE_S) == 2


def send(q: SyncQueue, envelope: bytes) -> str:
    return str(q.plane.submit(q.name, envelope, id=new_id()))


def refusal(q: SyncQueue, inv: str) -> str:
    with pytest.raises(InvocationFailed) as caught:
        q.result(inv, timeout=PATIENCE_S)
    assert (caught.value.state, q.plane.get(inv)["attempt"]) == ("failed", 1), "what no attempt can mend is not retried"
    assert caught.value.error is not None
    return str(caught.value.error["message"])


def envelope(fn: dict[str, Any], /, *args: Any, **changes: Any) -> bytes:
    made = wire.Envelope(
        id=new_id(), fn=fn, args=wire.pack(list(args)), kwargs=wire.pack({}), prefix="", key=None, cfg={}, parent=None
    )
    return bytes(msgpack.packb({**msgpack.unpackb(made.to_bytes()), **changes}))


@pytest.mark.inventory("P-346", "K-36")
def test_an_envelope_from_the_future_says_what_to_upgrade(q: SyncQueue) -> None:
    said = refusal(q, send(q, envelope(describe(bodies.plus_one), 1, v=2, fn="shaped in another way")))
    assert "version 2" in said
    assert "upgrade" in said


GARBAGE = {
    "nothing": b"",
    "text": b"hello",
    "a list": msgpack.packb([1, 2]),
    "a map of something else": msgpack.packb({"a": 1}),
    "cut": envelope(describe(bodies.plus_one), 1)[:-9],
    "args that are no list": envelope(describe(bodies.plus_one), args=msgpack.packb(7)),
    "args that are cut": envelope(describe(bodies.plus_one), args=b"\x92\x01"),
    "fn is a number": envelope(describe(bodies.plus_one), 1, fn=7),
    "another kind of function": envelope({"kind": "wasm", "blob": b""}, 1),
    "a module that is not here": envelope({"kind": "ref", "module": "no_such_module", "qualname": "f"}, 1),
    "a name that is not there": envelope({"kind": "ref", "module": "fault_bodies", "qualname": "no_such"}, 1),
    "a path out": envelope({"kind": "ref", "module": "../../etc/passwd", "qualname": "f"}, 1),
    "the main module": envelope({"kind": "ref", "module": "__main__", "qualname": "main"}, 1),
    "a prefix that leaves the root": envelope(describe(bodies.plus_one), 1, prefix="../../elsewhere"),
    "v is text": envelope(describe(bodies.plus_one), 1, v="1"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_envelope_ends_with_its_reason(q: SyncQueue, name: str) -> None:
    assert len(refusal(q, send(q, GARBAGE[name]))) > 20


@pytest.mark.inventory("P-346", "K-36")
def test_a_pickled_function_is_refused_before_a_byte_of_it_is_read(q: SyncQueue, tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {marker}",)

    import pickle

    trap = {"kind": "pickle", "blob": pickle.dumps(Trap()), "qualname": "trap", "where": "here"}
    for inv in (q.submit(Thunk(lambda x: x, (1,), {})), send(q, envelope(trap, 1))):
        assert "--allow-pickled" in refusal(q, inv)
    assert not marker.exists()


@pytest.mark.inventory("K-36")
@pytest.mark.parametrize(
    ("module", "qualname"),
    [
        ("os", "system"),
        ("subprocess", "run"),
        ("builtins", "exec"),
        ("fault_bodies", "note_run"),
        ("fault_bodies", "plus_one.__wrapped__"),
        ("fault_bodies", "os.system"),
        ("fault_bodies", "plus_one.submit"),
        ("fault_bodies", "plus_one.__class__"),
    ],
)
def test_only_a_udf_runs_by_reference(q: SyncQueue, tmp_path: Path, module: str, qualname: str) -> None:
    marker = tmp_path / "ran"
    reference = {"kind": "ref", "module": module, "qualname": qualname}
    said = refusal(q, send(q, envelope(reference, f"touch {marker}")))
    assert "only UDFs by reference" in said
    assert not marker.exists()


@pytest.mark.inventory("K-36")
@pytest.mark.parametrize("stamp", ["sha256:0123456789abcdef", "", None, 7], ids=["another", "empty", "none", "number"])
def test_a_stale_or_missing_source_hash_is_refused(q: SyncQueue, stamp: object) -> None:
    reference = {**describe(bodies.plus_one), "src_hash": stamp}
    said = refusal(q, send(q, envelope(reference, 1)))
    assert "source" in said
    assert "submitted" in said


@pytest.mark.inventory("K-20")
def test_101_mib_of_arguments_or_result_never_leave(q: SyncQueue) -> None:
    big = b"x" * (MAX_PAYLOAD_BYTES + 1024 * 1024)
    with pytest.raises(DispatchError, match=r"101\.0 MiB, the limit is 100 MiB"):
        q.plane.submit(q.name, big, id=new_id())
    job = q.plane.submit("by-hand", b"small", id=new_id())
    held = q.plane.claim("by-hand", "w")
    assert held is not None
    with pytest.raises(DispatchError, match="100 MiB"):
        q.plane.ack(job, "w", result=big)
    q.plane.ack(job, "w", result=b"small")
    assert q.plane.result(job, timeout=PATIENCE_S) == b"small"


@pytest.mark.inventory("K-24", "P-329")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_generators_that_fail_leave_their_yields_and_no_thread(serving: tuple[SyncQueue, int]) -> None:
    q, pid = serving
    once = {"_queue": q.name, "_dispatch": q.plane, "_run_config": {"max_attempts": 1}}

    def threads() -> int:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))

    for number in range(30):
        inv = bodies.fails_after.submit(3, **once)
        with pytest.raises(InvocationFailed, match="on purpose"):
            q.result(inv, timeout=PATIENCE_S)
        frames = [wire.Frame.from_bytes(data) for _seq, data in q.plane.journal_read(inv, timeout=PATIENCE_S)]
        assert [(frame.kind.name, frame.body) for frame in frames[:-1]] == [("VALUE", n) for n in range(3)], number
        assert frames[-1].kind.name == "ERROR"
        if number == 2:
            few = threads()
    assert threads() <= few + 2
