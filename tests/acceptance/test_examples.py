"""The examples that need nothing but Python: each is run as a user runs it, and prints what it is there to show."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from example_places import EXAMPLES, KINDS, STRICT, place

ULID = "[0-9A-HJKMNP-TV-Z]{26}"
SCRIPTS = sorted(path for path in EXAMPLES.rglob("*.py") if "# /// script" in path.read_text("utf-8"))
BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
IMPORTED_AS = {"scikit-learn": "sklearn", "lakeshore": "dreamlake"}
LINES = {
    "00_hello_udf": f"invocation: {ULID}\nresult: 5\n",
    "01_fan_out": r"in order: \[0, 1, 4, 9, 16, 25, 36, 49\]\nthe same values as they finish: True\n",
    "02_pipeline": "".join(f"{x} -> {2 * x:2} -> {hex(2 * x)}\n" for x in range(6))
    + "the same without a barrier: True\n",
    "03_body_kinds": "".join(
        f"{title}:\n  sync            9\n  async           9\n"
        r"  generator       \[0, 1, 4\]\n  async generator \[0, 1, 4\]" + "\n"
        for title in ("here", "through a queue")
    ),
    "04_ids_not_futures": (
        r"L0 one call: str -> 49\nL1 many: \[0, 1, 4, 9, 16\]\nL2 stages: 25\n"
        r"L3 second wave: \[81, 256\] over 2 edges\n"
        r"keys: the same id: True - jobs queued: 1\nfrom a file: 144\n"
    ),
    "05_streams_topics": (
        r"live: \[0, 1\] cursor: 1\nresumed: \[2, 3\]\nreplayed: \[0, 1, 2, 3\]\nbefore it broke: 0\n"
        r"an error is no end: True\ntopic: \[10, 20, 30\]\nnext after 0: 20\n"
    ),
    "06_dynamic_graph": (
        r"seed 0: \[0\] -> \[1\]\nseed 1: \[1, 2\] -> \[1, 4\]\nseed 2: \[2, 3, 4\] -> \[4, 4, 4\]\n"
        r"18 edges \(12 score, 6 refine\)\nthe plane knows them: True\n"
    ),
}
ROWS = {
    "00_hello_udf": ["P-493"],
    "01_fan_out": ["P-494"],
    "02_pipeline": ["P-495", "P-738"],
    "03_body_kinds": ["P-496"],
    "04_ids_not_futures": ["P-497"],
    "05_streams_topics": ["P-498"],
    "06_dynamic_graph": ["P-499", "P-500"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.inventory(*ROWS[name])) for name in LINES])
def test_an_example_prints_what_it_teaches_and_leaves_nothing(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = place(kind, tmp_path, request)
    done = where.run(*STRICT, str(EXAMPLES / f"{name}.py"))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(LINES[name], done.stdout), done.stdout
    assert list((tmp_path / "home").iterdir()) == [], "an example in memory writes nothing"


def test_the_examples_that_the_reference_names_are_there_and_begin_with_what_they_teach() -> None:
    scripts = [path for path in SCRIPTS if path.parent == EXAMPLES and path.stem[0].isdigit()]
    assert [path.stem for path in scripts][: len(LINES)] == list(LINES)
    for path in scripts:
        told = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        assert told is not None and "\nTeaches: " in told, path


@pytest.mark.inventory("P-632")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_carries_the_metadata_that_uv_run_needs(script: Path) -> None:
    text = script.read_text("utf-8")
    found = BLOCK.search(text)
    assert found, "no PEP 723 block"
    told = tomllib.loads("".join(line[2:] or "\n" for line in found["content"].splitlines(keepends=True)))
    assert told["requires-python"] == ">=3.11"
    names = [wanted.partition("[")[0] for wanted in told["dependencies"]]
    source = told["tool"]["uv"]["sources"]["lakeshore"]["path"]
    assert (script.parent / source / "pyproject.toml").is_file()
    declared = {IMPORTED_AS.get(name, name) for name in names}
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [node.module]
            if isinstance(node, ast.ImportFrom) and node.module
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    beside = {path.stem for path in script.parent.glob("*.py")}
    assert imported - set(sys.stdlib_module_names) - beside <= declared
