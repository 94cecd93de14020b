"""The public names: which exist, which must not, where each is importable from, and what a local program loads."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dreamlake.lakeshore as dls
import lakeshore

ROOT = Path(__file__).resolve().parents[2]

DOCUMENTED = [
    "udf", "UDF", "thunk", "Thunk", "scope", "run", "RunContext", "Queue", "SyncQueue", "Topic", "Job", "Dispatch",
    "HttpDispatch", "run_worker", "Storage", "TemporaryCredentials", "DreamRc", "Provider", "RunConfig", "load_config",
    "resolve",
]  # fmt: skip
ADDED = ["arun_worker", "DispatchError", "wire", "errors"]
DELETED = [
    "Future", "QueueFuture", "gather", "gather_async", "as_completed", "as_completed_async", "map", "map_async",
    "apply", "apply_spawn", "apply_async", "Pool", "rpc_future", "pipeline", "PipelineRun", "merge", "flow",
]  # fmt: skip


def fresh(program: str, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, *flags, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.inventory("P-022", "P-716", "P-715")
def test_all_is_the_documented_list_and_our_additions() -> None:
    assert sorted(dls.__all__) == sorted(DOCUMENTED + ADDED)
    assert list(dls.__all__) == list(lakeshore.__all__)


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.inventory(f"P-{23 + n:03}")) for n, name in enumerate(DOCUMENTED)),
        *ADDED,
    ],
)
def test_each_name_is_one_object_on_both_paths_and_says_when_it_is_not_built(name: str) -> None:
    module, _ = lakeshore._OWNERS[name]
    assert getattr(dls, name) is getattr(lakeshore, name)
    if not exists(module):
        with pytest.raises(ImportError, match=f"not built yet: {module}"):
            getattr(dls, name)("argument")
    assert name in dir(dls)


ROWS_OF_ABSENCE = {
    "Future": ("P-423", "P-733"),
    "gather": ("P-424", "P-765"),
    "pipeline": ("P-425",),
    "PipelineRun": ("P-426", "P-748"),
    "merge": ("P-427", "P-750"),
    "flow": ("P-767",),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.inventory(*ROWS_OF_ABSENCE.get(name, ("P-425",)))) for name in DELETED],
)
def test_deleted_names_are_absent(name: str) -> None:
    assert not hasattr(dls, name)
    assert not hasattr(lakeshore, name)
    assert not any(hasattr(owner, name) for owner in (dls.Queue, dls.SyncQueue))
    assert not exists(f"dreamlake.lakeshore.{name}")


@pytest.mark.inventory("P-428")
def test_a_worker_can_be_awaited_though_an_older_page_has_no_name_for_it() -> None:
    assert inspect.iscoroutinefunction(dls.arun_worker)
    here, there = (inspect.signature(run).parameters for run in (dls.run_worker, dls.arun_worker))
    assert list(here)[:1] == list(there)[:1]


@pytest.mark.inventory("P-320")
def test_run_worker_takes_what_is_documented_a_wait_and_a_storage() -> None:
    parameters = list(inspect.signature(dls.run_worker).parameters.values())
    assert parameters[0].name == "q"
    assert {p.name: p.default for p in parameters[1:]} == {
        "root": None,
        "registry": None,
        "once": False,
        "poll": 0.05,
        "retries": 1,
        "stop": None,
        "allow_pickled": None,
        "runtime_policy": "minor",
        "wait": 0.0,
        "storage": None,
    }
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[1:])


@pytest.mark.inventory("P-049", "P-050")
def test_the_entry_and_the_streams_are_where_the_pages_say() -> None:
    entry = importlib.import_module("dreamlake.lakeshore.daemon.entry")
    assert callable(entry.main)
    queues = importlib.import_module("dreamlake.lakeshore.queues")
    assert queues.Queue is dls.Queue
    where = inspect.getsourcefile(dls.Queue.stream)
    assert where is not None
    assert Path(where).name == "queues.py"


@pytest.mark.inventory("P-053")
def test_the_errors_are_in_one_module_and_named_as_on_the_pages() -> None:
    errors = importlib.import_module("dreamlake.lakeshore.errors")
    for name in ("TransportError", "WorkerError", "KeyError_", "DispatchError"):
        assert getattr(errors, name).__name__ == name
        assert issubclass(getattr(errors, name), dls.errors.LakeshoreError)


@pytest.mark.inventory("P-051")
def test_dispatch_is_a_module_once_imported_and_never_a_function() -> None:
    assert not callable(getattr(dls, "dispatch", None))


@pytest.mark.inventory("P-003")
def test_dreamlake_is_a_namespace_package() -> None:
    assert not (ROOT / "dreamlake" / "__init__.py").exists()


@pytest.mark.inventory("P-044", "P-046", "P-713")
@pytest.mark.parametrize(
    ("alias", "target"),
    [
        ("wire", "lakeshore.wire"),
        ("context", "lakeshore.sdk.context"),
        ("functions", "lakeshore.sdk.functions"),
        ("queues", "lakeshore.sdk.queues"),
        ("dispatch", "lakeshore.sdk.dispatch"),
        ("http_dispatch", "lakeshore.sdk.http_dispatch"),
        ("worker", "lakeshore.sdk.worker"),
        ("errors", "lakeshore.sdk.errors"),
        ("storage", "lakeshore.sdk.storage"),
        ("code_archive", "lakeshore.sdk.code"),
    ],
)
def test_a_documented_submodule_is_the_module_itself(alias: str, target: str) -> None:
    if exists(target):
        assert importlib.import_module(f"dreamlake.lakeshore.{alias}") is importlib.import_module(target)
    else:
        with pytest.raises(ImportError, match=f"not built yet: {target}"):
            importlib.import_module(f"dreamlake.lakeshore.{alias}")


@pytest.mark.inventory("P-045")
def test_dispatch_error_lives_beside_dispatch() -> None:
    from dreamlake.lakeshore.dispatch import Dispatch, DispatchError

    assert DispatchError is dls.DispatchError
    assert Dispatch is dls.Dispatch


def test_run_is_the_proxy_and_no_submodule_can_take_its_place() -> None:
    assert not exists("lakeshore.run")
    assert not exists("dreamlake.lakeshore.run")
    assert repr(dls.run).startswith("<dls.run ")


@pytest.mark.inventory("P-739", "P-014")
def test_version_is_the_real_one() -> None:
    from lakeshore._version import __version__

    assert dls.__version__ == lakeshore.__version__
    assert dls.__version__.split(".")[0].isdigit()
    assert dls.__version__ == __version__ or dls.__version__ != "0.0.0"


@pytest.mark.inventory("P-054", "P-058")
def test_importing_the_package_loads_almost_nothing() -> None:
    loaded = json.loads(
        fresh(
            "import sys; before = set(sys.modules); import dreamlake.lakeshore as dls, json;"
            "ours = [m for m in set(sys.modules) - before if m.startswith(('lakeshore', 'dreamlake'))];"
            "print(json.dumps(sorted(ours)))"
        )
    )
    assert loaded == ["dreamlake", "dreamlake.lakeshore", "lakeshore", "lakeshore._built", "lakeshore._vendored"]


LOCAL = """
import dreamlake.lakeshore as dls, sys, tempfile

@dls.udf
def one(x): dls.run.write("k").write_text("v"); return "k"

@dls.udf(queue="gpu")
def bound(x): return x

@dls.udf
def many(n):
    yield from range(n)

@dls.udf
async def later(x): return x

@dls.udf
async def stream(n):
    for i in range(n): yield i

with dls.scope("s", root=tempfile.mkdtemp()):
    assert one(1) == "k" and bound.local(2) == 2 and list(many(2)) == [0, 1]
    assert dls.run.read("k").read_text() == "v" and dls.run.prefix == "s"
    try: later(1).send(None)
    except StopIteration as stop: assert stop.value == 1
    try: stream(1).__anext__().send(None)
    except StopIteration as stop: assert stop.value == 0
assert dls.thunk(lambda: 1).fn() == 1
heavy = {"httpx", "msgpack", "sqlite3", "trio", "asyncio", "h11", "cloudpickle", "yaml", "platformdirs", "numpy"}
ours = {m for m in sys.modules if m.startswith("lakeshore.")}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
remote = ("wire", "plane", "net", "config", "server", "sdk.dispatch", "sdk.queues", "sdk.submit", "sdk.transport")
assert not any(m.startswith(tuple("lakeshore." + r for r in remote)) for m in ours), ours
"""


@pytest.mark.inventory("P-055", "P-056", "P-443")
def test_a_local_program_loads_nothing_distributed() -> None:
    fresh(LOCAL)


@pytest.mark.inventory("P-059")
def test_a_local_program_needs_no_third_party_package() -> None:
    # -S: no site-packages at all
    fresh(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + LOCAL, "-S")
