"""`examples/test_runner.py` runs suites and examples, and writes the same JSON to its two places."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from example_places import EXAMPLES, place
from snippets.processes import Place, serving
from snippets.reference import ROOT

from lakeshore import HttpDispatch

PLAIN = ("02-hello-local-python", "05-pipeline-iteration")
QUEUED = ("08-queues-cpu-vs-gpu", "09-hello-queue-udf", "10-fan-out-gather")
LOSSES = [
    "{'seed': 42, 'loss': 0.6394267984578837}",
    "{'seed': 7, 'loss': 0.32383276483316237}",
    "{'seed': 1, 'loss': 0.13436424411240122}",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of the examples and of one suite, to write in: `lakeshore-examples` is the documented name."""
    top = tmp_path / "checkout"
    shutil.copytree(EXAMPLES, top / "examples", ignore=shutil.ignore_patterns("__pycache__", "results.json"))
    (top / "lakeshore-examples").symlink_to("examples")
    (top / "tests" / "unit").mkdir(parents=True)
    for name in ("pyproject.toml", "tests/unit/test_wire_names.py"):
        shutil.copy(ROOT / name, top / name)
    return top


def ran(where: Place, checkout: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run the runner by its documented name; what it wrote."""
    done = where.run(str(checkout / "lakeshore-examples" / "test_runner.py"), *arguments, timeout_s=300)
    assert done.returncode == code, done.stdout + done.stderr
    text = (checkout / "lakeshore-examples" / "results.json").read_text("utf-8")
    assert (checkout / "docs" / "public" / "test-results.json").read_text("utf-8") == text
    written: dict[str, Any] = json.loads(text)
    return written


def states(listed: list[dict[str, Any]]) -> dict[str, str]:
    return {one["id"]: one["status"] for one in listed}


def test_the_documented_path_leads_to_the_examples() -> None:
    assert (ROOT / "lakeshore-examples" / "test_runner.py").samefile(EXAMPLES / "test_runner.py")


@pytest.mark.inventory("P-635", "P-476", "P-477")
def test_by_default_examples_run_without_a_control_plane_and_those_that_need_one_are_skipped(
    checkout: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = place("checkout", tmp_path, request)
    needing = [f"{name}@cp" for name in QUEUED]
    written = ran(where, checkout, "--examples-only", "--only", *PLAIN, *QUEUED, *needing)
    assert states(written["examples"]) == {
        **dict.fromkeys((*PLAIN, *QUEUED), "passed"),
        **dict.fromkeys(needing, "skipped"),
    }
    assert written["suites"] == []
    assert written["summary"] == {"passed": 5, "failed": 0, "skipped": 3}
    output = {one["id"]: one.get("output") for one in written["examples"]}
    assert output["02-hello-local-python"] == LOSSES
    assert output["05-pipeline-iteration"][-1] == "the square root of 2 is 1.414214"
    assert output["08-queues-cpu-vs-gpu"][-1] == "prepared and embedded by different processes: True"
    assert output["09-hello-queue-udf"][-1] == "result: 5"
    assert output["10-fan-out-gather"][0] == str([x * x for x in range(10)])
    assert all("--enable-cp" in one["reason"] for one in written["examples"] if one["status"] == "skipped")
    assert not (tmp_path / "home" / ".lakeshore").exists(), "the user's own plane is left alone"


@pytest.mark.inventory("P-634", "P-636")
def test_with_enable_cp_an_example_is_submitted_to_the_server_of_lakeshore_url(
    checkout: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server") as served, contextlib.closing(HttpDispatch(served.url)) as plane:
        where = place("checkout", tmp_path, request, LAKESHORE_URL=served.url)
        written = ran(where, checkout, "--examples-only", "--enable-cp", "--only", "09-hello-queue-udf@cp")
        assert states(written["examples"]) == {"09-hello-queue-udf@cp": "passed"}
        assert plane.count("hello", "succeeded") == 1


@pytest.mark.inventory("P-634")
def test_without_a_server_enable_cp_starts_one(checkout: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = place("checkout", tmp_path, request)
    written = ran(where, checkout, "--examples-only", "--enable-cp", "--only", "09-hello-queue-udf@cp")
    assert states(written["examples"]) == {"09-hello-queue-udf@cp": "passed"}
    assert written["examples"][0]["plane"] == "control plane"


@pytest.mark.inventory("P-633", "P-634")
def test_suites_and_examples_are_chosen_by_id_and_a_failure_is_told_and_is_the_exit_code(
    checkout: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = place("checkout", tmp_path, request)
    (checkout / "examples" / "00_hello_udf.py").write_text("print('so far')\nraise SystemExit('no further')\n", "utf-8")
    written = ran(where, checkout, "--suites", "lakeshore-wire", "--only", "00_hello_udf", "06_dynamic_graph", code=1)
    (suite,) = written["suites"]
    assert (suite["id"], suite["status"], suite["failed"]) == ("lakeshore-wire", "passed", 0)
    assert suite["passed"] > 5
    assert states(written["examples"]) == {"00_hello_udf": "failed", "06_dynamic_graph": "passed"}
    assert written["examples"][0]["output"] == ["so far", "no further"]
    assert written["summary"] == {"passed": 2, "failed": 1, "skipped": 0}

    written = ran(where, checkout, "--suites-only", "--suites", "lakeshore-controlplane")
    assert written["examples"] == []
    assert states(written["suites"]) == {"lakeshore-controlplane": "skipped"}, "its tests are not in this checkout"


@pytest.mark.parametrize("arguments", [("--suites-only", "--examples-only"), ("--only", "no-such"), ("--suites", "x")])
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    arguments: tuple[str, ...], checkout: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    done = place("checkout", tmp_path, request).run(str(checkout / "examples" / "test_runner.py"), *arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr
    assert not (checkout / "examples" / "results.json").exists()
