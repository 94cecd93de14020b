"""How a function crosses: which arm is chosen, what each carries, and the worker's gates in their order."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import json
import math
import os
import pickle
import platform
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dreamlake.lakeshore as dls
from lakeshore.sdk import failures
from lakeshore.sdk.bodies import run_body
from lakeshore.sdk.errors import TransportError, WorkerError
from lakeshore.sdk.transport import (
    INLINE_PICKLE_LIMIT,
    Resolver,
    check_runtime,
    describe,
    resolve,
    runtime_stamp,
    source_hash,
)
from lakeshore.wire.names import ANY_SOURCE

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[str], ModuleType]

SOURCE = """
import dreamlake.lakeshore as dls

@dls.udf
def topk(x):
    return x + 1

def plain(x):
    return x

@dls.udf(queue="q", transport="pickle")
def snapshot(x):
    return helper(x) * 2

def helper(x):
    return x + 1

fast = dls.udf(queue="fast")(plain)

class Scene:
    @dls.udf
    def title(self):
        return "t"

    def method(self):
        return 1
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module of the user's and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def make(source: str) -> ModuleType:
        name = f"user_{uuid.uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(source)
        names.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield make
    for name in names:
        sys.modules.pop(name, None)


def reload(module: ModuleType) -> None:
    """The module as a worker sees it that starts now."""
    del sys.modules[module.__name__]


@pytest.mark.inventory("P-146", "P-153", "P-154")
def test_an_importable_function_goes_by_reference(write: Write) -> None:
    user = write(SOURCE)
    sent = describe(user.topk)
    digits = hashlib.sha256(b"@dls.udf\ndef topk(x):\n    return x + 1\n").hexdigest()[:16]
    assert sent == {"kind": "ref", "module": user.__name__, "qualname": "topk", "src_hash": f"sha256:{digits}"}
    assert describe(user.topk, "ref") == sent
    assert describe(user.Scene.title)["qualname"] == "Scene.title"
    assert describe(math.sqrt) == {"kind": "ref", "module": "math", "qualname": "sqrt", "src_hash": None}


def test_a_udf_under_another_name_goes_by_that_name(write: Write) -> None:
    user = write(SOURCE)
    sent = describe(user.fast)
    assert (sent["kind"], sent["qualname"]) == ("ref", "fast")
    assert resolve(sent) is user.fast


class Instance:
    def __call__(self) -> int:
        return 1


@pytest.mark.inventory("P-147", "P-148", "P-408")
def test_what_cannot_be_imported_goes_by_value_and_is_refused_by_ref(write: Write) -> None:
    user = write(SOURCE)

    def closure() -> int:
        return 1

    for fn in (lambda: 1, closure, dls.udf(closure), Instance(), user.Scene().method, functools.partial(user.plain, 1)):
        assert describe(fn)["kind"] == "pickle"
        with pytest.raises(TransportError, match=r"cannot be sent by reference: .*transport=\"pickle\""):
            describe(fn, "ref")


@pytest.mark.inventory("P-150")
def test_an_unknown_transport_is_named() -> None:
    with pytest.raises(TransportError) as caught:
        describe(len, "json")
    assert str(caught.value) == 'unknown transport \'json\'; use "ref" | "pickle" | "auto"'


@pytest.mark.inventory("P-155", "P-156", "P-159")
def test_the_pickle_arm_carries_what_a_worker_needs_to_judge_it() -> None:
    sent = describe(lambda: 40 + 2)
    assert set(sent) == {"kind", "blob", "hash", "source", "qualname", "where", "runtime"}
    assert sent["hash"] == "sha256:" + hashlib.sha256(sent["blob"]).hexdigest()
    assert sent["qualname"].endswith("<lambda>")
    assert "40 + 2" in sent["source"]
    assert sent["where"].startswith(sent["qualname"] + " (")
    assert f"{__file__}:" in sent["where"]
    assert sent["runtime"] == runtime_stamp()
    assert set(sent["runtime"]) == {"python", "impl", "cloudpickle", "pickle_protocol", "platform"}
    assert sent["runtime"]["python"] == platform.python_version()


@pytest.mark.inventory("P-158")
def test_where_a_function_by_value_came_from_is_told() -> None:
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    assert describe(lambda: 1)["where"].endswith(f"<lambda> ({__file__}:{line})")


@pytest.mark.inventory("P-168")
def test_by_reference_nothing_around_the_function_is_captured(write: Write) -> None:
    user = write("import dreamlake.lakeshore as dls\nfactor = 2\n@dls.udf\ndef scaled(x):\n    return x * factor\n")
    sent = describe(user.scaled)
    assert sent["kind"] == "ref"
    user.factor = 100  # of this process; a worker's own module is what counts
    reload(user)
    assert resolve(sent).local(21) == 42


@pytest.mark.inventory("P-724")
def test_the_default_policy_looks_at_pythons_minor_and_at_cloudpickles_major() -> None:
    ours = runtime_stamp()
    major, minor = sys.version_info[:2]
    check_runtime({**ours, "python": f"{major}.{minor}.99", "cloudpickle": f"{ours['cloudpickle'][0]}.99.0"})
    for change in ({"python": f"{major}.{minor + 1}.0"}, {"cloudpickle": "99.0.0"}):
        with pytest.raises(TransportError, match="runtime policy"):
            check_runtime({**ours, **change})


@pytest.mark.inventory("P-149", "P-169")
def test_pickle_takes_a_snapshot(write: Write) -> None:
    user = write(SOURCE)
    sent = describe(user.snapshot, "pickle")
    assert sent["kind"] == "pickle"
    assert resolve(sent, allow_pickled=True)(1) == 4
    box = [1]
    frozen = describe(lambda: box[0])
    box[0] = 2
    assert resolve(frozen, allow_pickled=True)() == 1


@pytest.mark.inventory("P-151", "P-409")
@pytest.mark.inventory("S-660")
def test_a_function_that_captures_data_is_refused_with_the_way_out() -> None:
    data = os.urandom(INLINE_PICKLE_LIMIT)
    with pytest.raises(TransportError, match="pass the data as arguments instead"):
        describe(lambda: data)
    assert INLINE_PICKLE_LIMIT == 32 * 1024


def test_a_function_that_captures_a_live_thing_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w") as live, pytest.raises(TransportError, match="cannot be pickled"):
        describe(lambda: live.fileno() + sys._getframe().f_lineno + id(live.buffer))


@pytest.mark.inventory("P-160", "P-407")
def test_gate_one_pickled_functions_need_consent_before_anything_is_looked_at() -> None:
    poison = {
        "kind": "pickle",
        "blob": b"not a pickle",
        "hash": "wrong",
        "runtime": {},
        "where": "<lambda> (/p/x.py:12)",
    }
    with pytest.raises(TransportError, match=r"^this worker refuses pickled functions") as caught:
        resolve(poison)
    assert "`daemon install --allow-pickled`" in str(caught.value)
    assert "`daemon install --code <dir>`" in str(caught.value)


def test_a_module_that_is_missing_says_both_ways_out_also_on_a_daemons_host() -> None:
    with pytest.raises(WorkerError, match="cannot import module 'no_such_module'") as caught:
        resolve({"kind": "ref", "module": "no_such_module", "qualname": "f"})
    for way in ("PYTHONPATH", "`daemon install --code <dir>`", "python_path", "--allow-pickled"):
        assert way in str(caught.value)


exploded: list[int] = []


def explode() -> Callable[[], None]:
    exploded.append(1)
    return lambda: None


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (explode, ())


@pytest.mark.inventory("P-161")
def test_gate_two_the_runtime_is_checked_before_any_byte_is_unpickled() -> None:
    blob = pickle.dumps(Bomb())
    other = {**runtime_stamp(), "python": "2.7.18"}
    sent = {"kind": "pickle", "blob": blob, "hash": "sha256:" + hashlib.sha256(blob).hexdigest(), "runtime": other}
    with pytest.raises(TransportError, match=r"python 2\.7\.18"):
        resolve(sent, allow_pickled=True)
    assert exploded == []
    resolve({**sent, "runtime": runtime_stamp()}, allow_pickled=True)
    assert exploded == [1]


@pytest.mark.inventory("P-162", "P-163", "P-164")
@pytest.mark.parametrize(
    ("change", "refused_by"),
    [
        ({}, set()),
        ({"python": "{major}.{minor}.99"}, {"strict"}),
        ({"python": "{major}.99.0"}, {"strict", "minor"}),
        ({"cloudpickle": "{cloud}.99.0"}, {"strict"}),
        ({"cloudpickle": "99.0.0"}, {"strict", "minor"}),
        ({"impl": "pypy"}, {"strict", "minor"}),
        ({"pickle_protocol": 99}, {"strict", "minor"}),
        ({"platform": "plan9-vax"}, set()),
    ],
)
def test_each_policy_compares_what_it_says(change: dict[str, Any], refused_by: set[str]) -> None:
    words = {"major": sys.version_info[0], "minor": sys.version_info[1], "cloud": runtime_stamp()["cloudpickle"][0]}
    changed = {k: v.format(**words) if isinstance(v, str) else v for k, v in change.items()}
    for policy in ("strict", "minor", "off"):
        if policy in refused_by:
            with pytest.raises(TransportError, match="runtime policy"):
                check_runtime({**runtime_stamp(), **changed}, policy)
        else:
            check_runtime({**runtime_stamp(), **changed}, policy)


def test_an_unknown_policy_and_a_missing_stamp_are_refused() -> None:
    with pytest.raises(ValueError, match=r"strict \| minor \| off"):
        check_runtime(runtime_stamp(), "lax")
    with pytest.raises(ValueError, match=r"strict \| minor \| off"):
        resolve({"kind": "ref"}, runtime_policy="lax")
    with pytest.raises(TransportError, match="unknown"):
        check_runtime(None, "minor")


def test_a_damaged_blob_is_not_unpickled() -> None:
    sent = describe(lambda: 1)
    with pytest.raises(TransportError, match="damaged"):
        resolve({**sent, "blob": sent["blob"] + b"x"}, allow_pickled=True)


@pytest.mark.inventory("P-157")
def test_source_is_never_executed() -> None:
    sent = {**describe(lambda: 1), "source": "raise SystemExit"}
    assert resolve(sent, allow_pickled=True)() == 1


@pytest.mark.inventory("P-165", "P-418")
def test_gate_three_other_source_is_refused(write: Write, tmp_path: Path) -> None:
    user = write(SOURCE)
    sent = describe(user.topk)
    reload(user)
    (tmp_path / f"{user.__name__}.py").write_text(SOURCE.replace("x + 1", "x + 2222"))
    with pytest.raises(WorkerError, match=f"{user.__name__}:topk source differs from the submitted version"):
        resolve(sent)
    assert resolve(sent, runtime_policy="off")(1) == 2223


@pytest.mark.inventory("P-165")
def test_source_that_changed_under_a_running_worker_is_refused(write: Write, tmp_path: Path) -> None:
    user = write(SOURCE)
    path = tmp_path / f"{user.__name__}.py"
    path.write_text(SOURCE.replace("x + 1", "x + 2222"))
    newer = describe(write(SOURCE.replace("x + 1", "x + 2222")).topk)["src_hash"]
    sent = {"kind": "ref", "module": user.__name__, "qualname": "topk", "src_hash": newer}
    with pytest.raises(WorkerError, match="restart the worker"):
        resolve(sent)


@pytest.mark.inventory("P-165", "P-418")
def test_a_reference_that_passed_once_is_judged_again_when_its_name_leads_elsewhere(write: Write) -> None:
    user = write(SOURCE)
    sent = describe(user.topk)
    resolver = Resolver(registry=None, allow_pickled=False, runtime_policy="minor")
    assert resolver(sent) is resolver(sent) is user.topk
    with pytest.raises(WorkerError, match=r"source differs.*daemon install --code"):
        resolver({**sent, "src_hash": "sha256:0123456789abcdef"})
    with pytest.raises(TransportError, match="unknown function kind"):
        resolver({**sent, "kind": "other"})
    with pytest.raises(WorkerError):
        resolver({**sent, "src_hash": ["unhashable"]})
    user.topk = user.Scene.title
    with pytest.raises(WorkerError, match=r"source differs.*daemon install --code"):
        resolver(sent)
    user.topk = user.plain
    with pytest.raises(TransportError, match="only UDFs by reference"):
        resolver(sent)


@pytest.mark.inventory("P-166", "K-36")
def test_a_missing_hash_is_refused_where_the_source_is_at_hand(write: Write) -> None:
    user = write(SOURCE)
    sent = {"kind": "ref", "module": user.__name__, "qualname": "topk", "src_hash": None}
    with pytest.raises(WorkerError, match="without a source hash"):
        resolve(sent)
    assert resolve(sent, runtime_policy="off") is user.topk
    assert resolve({**sent, "module": "math", "qualname": "sqrt"}, allow_pickled=True) is math.sqrt


def test_a_call_that_outlives_versions_runs_on_whatever_source_is_here(write: Write, tmp_path: Path) -> None:
    user = write(SOURCE)
    sent = {"kind": "ref", "module": user.__name__, "qualname": "topk", "src_hash": ANY_SOURCE}
    assert resolve(sent) is user.topk
    with pytest.raises(TransportError, match="only UDFs by reference"):
        resolve({**sent, "module": "math", "qualname": "sqrt"})
    (tmp_path / f"{user.__name__}.py").write_text(SOURCE.replace("x + 1", "x + 234"))
    reload(user)
    importlib.invalidate_caches()
    assert resolve(sent)(1) == 235


@pytest.mark.inventory("K-36")
@pytest.mark.parametrize("name", ["os:system", "subprocess:run", "builtins:eval", "lakeshore.sdk.transport:resolve"])
def test_a_reference_to_anything_but_a_udf_is_refused(name: str) -> None:
    module, qualname = name.split(":")
    sent = {"kind": "ref", "module": module, "qualname": qualname, "src_hash": None}
    with pytest.raises(TransportError, match=f"only UDFs by reference, and {name} is none"):
        resolve(sent)
    assert callable(resolve(sent, allow_pickled=True, runtime_policy="off"))


@pytest.mark.inventory("P-333", "P-417", "P-762")
def test_a_module_that_is_not_here_is_named() -> None:
    with pytest.raises(WorkerError, match=r"^cannot import module 'no_such_module': ModuleNotFoundError"):
        resolve({"kind": "ref", "module": "no_such_module", "qualname": "f", "src_hash": None})
    with pytest.raises(WorkerError, match=r"^cannot import module '__main__'"):
        resolve({"kind": "ref", "module": "__main__", "qualname": "main", "src_hash": None})
    with pytest.raises(WorkerError, match="has no 'nothing' here"):
        resolve({"kind": "ref", "module": "math", "qualname": "nothing", "src_hash": None})
    with pytest.raises(TransportError, match="unknown function kind"):
        resolve({"kind": "wasm"})


def test_a_module_that_fails_while_it_is_imported_is_named(write: Write, tmp_path: Path) -> None:
    (tmp_path / "user_broken.py").write_text("1/0")
    with pytest.raises(WorkerError, match="cannot import module 'user_broken': ZeroDivisionError"):
        resolve({"kind": "ref", "module": "user_broken", "qualname": "f", "src_hash": None})


def test_a_refusal_of_the_workers_own_is_told_once_and_what_the_users_module_did_with_its_lines(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "user_broken_too.py").write_text("def begins():\n    return 1 / 0\n\nbegins()\n")

    def told(module: str) -> dict[str, Any]:
        with pytest.raises(WorkerError) as caught:
            resolve({"kind": "ref", "module": module, "qualname": "f", "src_hash": None})
        trace = caught.value.__traceback__
        assert trace is not None
        return failures.describe(caught.value.with_traceback(trace.tb_next))  # without this test's own line

    assert "traceback" not in told("no_such_module")
    assert "no_such_module" in told("no_such_module")["message"]
    assert "user_broken_too.py" in told("user_broken_too")["traceback"]
    assert "in begins" in told("user_broken_too")["traceback"]


@pytest.mark.inventory("P-323")
def test_a_registry_entry_comes_first(write: Write) -> None:
    user = write(SOURCE)

    def stand_in(x: int) -> int:
        return -x

    sent = describe(user.topk)
    assert resolve(sent, registry={"topk": stand_in}) is stand_in
    assert resolve(sent, registry={f"{user.__name__}:topk": stand_in, "topk": len}) is stand_in
    assert resolve(describe(user.snapshot, "pickle"), registry={"snapshot": stand_in}) is stand_in
    assert resolve({"kind": "ref", "module": "gone", "qualname": "topk"}, registry={"topk": stand_in}) is stand_in
    with pytest.raises(WorkerError, match="source differs"):
        resolve({**sent, "src_hash": "sha256:0000000000000000"}, registry={"topk": user.topk})


def test_the_source_hash_is_that_of_the_function_inside() -> None:
    def body() -> int:
        return 1

    assert source_hash(dls.udf(body)) == source_hash(body)
    assert source_hash(dls.udf(queue="q")(body)) == source_hash(body)
    assert source_hash(len) is None


SCRIPT = """
import json, sys
import dreamlake.lakeshore as dls
from dreamlake.lakeshore import run
from lakeshore.sdk.transport import describe

RATE = 3

@dls.udf
def scale(x):
    return x * RATE

@dls.udf(queue="gpu")
async def later(x):
    return scale(x)

def plain(n):
    return n + 1

@dls.udf(queue="q")
def total(n):
    if n == 0:
        return 0
    run.write("k", dir=True)
    return [dls.run.prefix, "k"] if n < 0 else plain(scale(n)) + total.local(n - 1)

@dls.udf
def stream(n):
    for i in range(n):
        yield scale(i)

if __name__ == "__main__":
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(scale, [2]) == [6]
    sent = {}
    for fn in (total, stream, later, lambda: scale(2)):
        d = describe(fn)
        assert d["kind"] == "pickle", d
        sent[d["qualname"]] = d["blob"].hex()
    print(json.dumps(sent))
"""


@pytest.mark.inventory("P-147", "P-728")
def test_functions_of_a_script_travel_with_the_functions_that_they_use(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    functions = {name: pickle.loads(bytes.fromhex(blob)) for name, blob in json.loads(done.stdout).items()}
    assert list(run_body(functions["stream"], [3], {})) == [0, 3, 6]
    assert run_body(functions["<lambda>"], [], {}) == 6
    with dls.scope("far", root=tmp_path):
        assert run_body(functions["later"], [2], {}) == 6
        assert run_body(functions["total"], [-1], {}) == ["far", "k"]
    with pytest.raises(TypeError):
        run_body(functions["total"], [], {})


def test_a_closure_udf_pickles_with_any_pickler_of_functions() -> None:
    import cloudpickle

    offset = 5

    @dls.udf(queue="q")
    def shift(x: int) -> int:
        return x + offset

    copied = cloudpickle.loads(cloudpickle.dumps(shift))
    assert isinstance(copied, dls.UDF)
    assert (copied.queue, copied.kind, copied.__name__) == ("q", "sync", "shift")
    assert copied.local(1) == 6
