"""The plan of scripts/mutants: what it names is there, and a mutant is known again by what it changes."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAN = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))

DIFF = """--- lakeshore/a.py
+++ lakeshore/a.py
@@ -1,4 +1,4 @@
 def f(self) -> int:
-    return max(
-        self.a,
-    )
+    return max(
+        None,
+    )
"""


@pytest.fixture
def script() -> Iterator[ModuleType]:
    loader = importlib.machinery.SourceFileLoader("mutants_script", str(ROOT / "scripts" / "mutants"))
    spec = importlib.util.spec_from_loader("mutants_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants_script"] = module  # its dataclasses look themselves up
    write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
        yield module
    finally:
        sys.dont_write_bytecode = write
        del sys.modules["mutants_script"]


def test_ten_modules_at_least_are_made_wrong_and_all_that_is_named_is_there() -> None:
    modules = PLAN["module"]
    assert len({row["path"] for row in modules}) == len(modules) >= 10
    for row in modules:
        assert row["tests"]
        for path in (row["path"], *row["tests"]):
            assert (ROOT / path).is_file(), path
            assert path.startswith(("lakeshore/", "tests/unit/")), "what is mutated must be tested fast"


def test_what_is_not_counted_is_in_a_mutated_module_and_has_a_reason() -> None:
    modules = tuple(row["path"].removesuffix(".py").replace("/", ".") + "." for row in PLAN["module"])
    for entry in PLAN["equivalent"]:
        assert entry["function"].startswith(modules), entry["function"]
        assert entry["was"] != entry["becomes"] and entry["because"], entry["function"]


def test_a_mutant_is_known_by_its_function_and_its_lines_whatever_its_number(script: ModuleType) -> None:
    for name in ("lakeshore.a.xǁThingǁf__mutmut_1", "lakeshore.a.xǁThingǁf__mutmut_27"):
        change = script.change_of(name, DIFF)
        assert change == script.Change(
            function="lakeshore.a.Thing.f", was="return max(\nself.a,\n)", becomes="return max(\nNone,\n)"
        )
    assert script.function_of("lakeshore.wire.signing.x__nacl__mutmut_3") == "lakeshore.wire.signing._nacl"


def test_what_was_left_out_of_the_count_is_in_no_share(script: ModuleType) -> None:
    score = script.Score(noticed=9, equivalent=5, missed=[("name", "survived", DIFF)])
    assert (score.counted, score.percent) == (10, 90.0)
