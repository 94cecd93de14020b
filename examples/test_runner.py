# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore[test,server,cli]", "scikit-learn"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""Runs the unit-test suites and every example, and writes what came of it as JSON.

    uv run examples/test_runner.py                       # or python, with the checkout on PYTHONPATH
    uv run examples/test_runner.py --examples-only --only 00_hello_udf 07_sweep

The result is in `results.json` beside this file, and once more in `docs/public/test-results.json` for the site. The
examples that submit to a queue run on a plane in a file of their own, with workers that are started for them. With
--enable-cp they run on a control plane, too: that of LAKESHORE_URL, or one that is started for them. The exit code is 1
when anything failed.
"""

import argparse
import ast
import contextlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dreamlake.lakeshore as dls
from dreamlake.lakeshore.stack import Stack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WRITTEN = (HERE / "results.json", ROOT / "docs" / "public" / "test-results.json")
LONGEST_S = 300.0
TAIL_LINES = 20
MODULES = {"scikit-learn": "sklearn"}

SUITES = {
    "lakeshore-wire": ("The codec, envelopes and frames", ["tests/unit/test_wire_*.py"]),
    "lakeshore-py": ("The SDK without a plane", ["tests/unit/test_sdk_*.py"]),
    "lakeshore-planes": ("The local planes against the contract", ["tests/conformance/test_local_planes.py"]),
    "lakeshore-cli": ("The command line", ["tests/unit/test_cli_*.py"]),
    "lakeshore-controlplane": (
        "The control plane",
        ["tests/unit/test_server_*.py", "tests/integration/test_server_*.py"],
    ),
}


@dataclass(frozen=True, kw_only=True)
class Example:
    """What is run: scripts in turn, on a plane whose queues have so many workers each."""

    id: str
    scripts: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    queues: tuple[tuple[str, int], ...] = ()


FANS = ("fan_out.py", "fan_out_stream.py", "pipeline.py")
EXAMPLES = [
    *(Example(id=path.stem, scripts=(path.name,)) for path in sorted(HERE.glob("0[0-6]_*.py"))),
    Example(id="07_sweep", scripts=("07_sweep.py",)),
    Example(id="08_stream", scripts=("08_stream.py",), arguments=("--text", "--depth", "1000")),
    Example(id="02-hello-local-python", scripts=("02-hello-local-python/train.py",)),
    Example(id="05-pipeline-iteration", scripts=("05-pipeline-iteration/pipeline.py",)),
    Example(id="08-queues-cpu-vs-gpu", scripts=("08-queues-cpu-vs-gpu/mixed.py",), queues=(("cpu", 1), ("gpu", 1))),
    Example(id="09-hello-queue-udf", scripts=("09-hello-queue-udf/hello_udf.py",), queues=(("hello", 1),)),
    Example(
        id="10-fan-out-gather",
        scripts=tuple(f"10-fan-out-gather/{name}" for name in FANS),
        queues=(("compute", 2),),
    ),
]
ON_A_SERVER = {f"{example.id}@cp": example for example in EXAMPLES if example.queues}
IDS = [*(example.id for example in EXAMPLES), *ON_A_SERVER]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the suites and the examples; write results.json.")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--suites-only", action="store_true", help="leave the examples out")
    either.add_argument("--examples-only", action="store_true", help="leave the suites out")
    parser.add_argument("--suites", nargs="+", metavar="<id>", choices=SUITES, help=f"only these: {', '.join(SUITES)}")
    parser.add_argument("--only", nargs="+", metavar="<id>", choices=IDS, help=f"only these: {', '.join(IDS)}")
    parser.add_argument("--enable-cp", action="store_true", help="also the examples that need a control plane")
    given = parser.parse_args()

    suites = [] if given.examples_only else [suite(id_) for id_ in given.suites or SUITES]
    examples = [] if given.suites_only else list(run_examples(given.only or IDS, enable_cp=given.enable_cp))
    everything = [*suites, *examples]
    counts = {state: sum(one["status"] == state for one in everything) for state in ("passed", "failed", "skipped")}
    payload = {
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": dls.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "summary": counts,
        "suites": suites,
        "examples": examples,
    }
    for path in WRITTEN:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(payload, indent=2) + "\n", "utf-8")
    print(", ".join(f"{count} {state}" for state, count in counts.items()), "-", *map(str, WRITTEN))
    return 1 if counts["failed"] else 0


# --- suites


def suite(id_: str) -> dict[str, Any]:
    """Run one suite with pytest; its counts come from the report that pytest writes."""
    title, patterns = SUITES[id_]
    files = sorted(str(path) for pattern in patterns for path in ROOT.glob(pattern))
    told: dict[str, Any] = {"id": id_, "title": title}
    if importlib.util.find_spec("pytest") is None:
        return say({**told, "status": "skipped", "reason": "pytest is not installed"})
    if not files:
        return say({**told, "status": "skipped", "reason": f"its tests are not in {ROOT}"})
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *files]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        if report.exists():
            for found in ET.parse(report).iter("testsuite"):
                counts = {name: counts[name] + int(found.get(name, 0)) for name in counts}
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    told |= {
        "status": "passed" if done.returncode == 0 else "failed",
        "passed": passed,
        "failed": failed,
        "skipped": counts["skipped"],
        "seconds": round(time.perf_counter() - began, 2),
    }
    if done.returncode:
        told["output"] = tail(done.stdout + done.stderr)
    return say(told)


# --- examples


def run_examples(ids: list[str], *, enable_cp: bool) -> Iterator[dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        url = os.environ.get("LAKESHORE_URL", "")
        if enable_cp and not url and any(id_ in ON_A_SERVER for id_ in ids):
            url = stack.enter_context(Stack()).serve()
        for example in EXAMPLES:
            if example.id in ids:
                with tempfile.TemporaryDirectory() as home:
                    yield run(example.id, example, environment(LAKESHORE_HOME=home))
        for id_, example in ON_A_SERVER.items():
            if id_ in ids and enable_cp:
                yield run(id_, example, {**environment(keep=True), "LAKESHORE_URL": url})
            elif id_ in ids:
                told = {"id": id_, "title": title_of(example), "plane": "control plane"}
                yield say({**told, "status": "skipped", "reason": "needs a control plane: --enable-cp"})


def run(id_: str, example: Example, env: dict[str, str]) -> dict[str, Any]:
    """Run an example's scripts in an empty directory, beside its workers."""
    plane = "control plane" if "LAKESHORE_URL" in env else "minimal"
    told: dict[str, Any] = {"id": id_, "title": title_of(example), "plane": plane}
    missing = [name for script in example.scripts for name in needs(HERE / script) if not installed(name)]
    if missing:
        return say({**told, "status": "skipped", "reason": f"not installed: {', '.join(missing)}"})
    began = time.perf_counter()
    output, status = "", "passed"
    with tempfile.TemporaryDirectory() as directory, working(example, env, directory):
        for script in example.scripts:
            command = [sys.executable, str(HERE / script), *example.arguments]
            try:
                done = subprocess.run(
                    command, cwd=directory, env=env, capture_output=True, text=True, timeout=LONGEST_S, check=False
                )
            except subprocess.TimeoutExpired:
                output, status = output + f"{script}: not done after {LONGEST_S:g} s\n", "failed"
                break
            output += done.stdout
            if done.returncode:
                output, status = output + done.stderr, "failed"
                break
    return say({**told, "status": status, "seconds": round(time.perf_counter() - began, 2), "output": tail(output)})


@contextlib.contextmanager
def working(example: Example, env: dict[str, str], directory: str) -> Iterator[None]:
    """The example's workers, which accept the functions of its scripts."""
    workers = []
    for queue, count in example.queues:
        command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", queue, "--allow-pickled"]
        quietly = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        workers += [subprocess.Popen(command, cwd=directory, env=env, **quietly) for _ in range(count)]
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()


def environment(*, keep: bool = False, **more: str) -> dict[str, str]:
    """Ours without what selects a plane (unless kept), and with what we can import ourselves."""
    env = {name: value for name, value in os.environ.items() if keep or not name.startswith("LAKESHORE_")}
    path = [os.path.abspath(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if path:
        env["PYTHONPATH"] = os.pathsep.join(path)  # the examples run in another directory
    return {**env, **more}


def needs(script: Path) -> list[str]:
    """The packages of a script's own metadata (PEP 723), without ours."""
    block = re.search(r"(?m)^# /// script$\n((?:^#.*$\n)+?)^# ///$", script.read_text("utf-8"))
    text = "" if block is None else re.sub(r"(?m)^# ?", "", block[1])
    return [name for name in tomllib.loads(text).get("dependencies", []) if not name.startswith("lakeshore")]


def installed(package: str) -> bool:
    return importlib.util.find_spec(MODULES.get(package, package)) is not None


def title_of(example: Example) -> str:
    """The first sentence of what its first script says of itself."""
    told = ast.get_docstring(ast.parse((HERE / example.scripts[0]).read_text("utf-8"))) or example.id
    return " ".join(told.partition("\n\n")[0].split())


def tail(output: str) -> list[str]:
    return output.splitlines()[-TAIL_LINES:]


def say(told: dict[str, Any]) -> dict[str, Any]:
    how = told.get("reason") or f"{told['seconds']:.1f} s"
    print(f"{told['status']:<8} {told['id']:<26} {how}", flush=True)
    return told


if __name__ == "__main__":
    sys.exit(main())
