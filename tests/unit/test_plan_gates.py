"""The test plan's gates: everything that a gate asks for is shown by some test here, and a gate that waits is known."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CASES = TESTS.parent / "lakeshore" / "testing"
UNIT, CONFORMANCE = range(430, 449), range(449, 471)
INVARIANT, LOCAL_GOLDEN = (59, 443), (474,)
ALONE = (476, 620)
"""Examples that need no control plane."""


def rows(*groups: tuple[int, ...] | range) -> set[str]:
    return {f"P-{number:03}" for group in groups for number in group}


def named() -> set[str]:
    """The rows that tests and cases name."""
    sources = [*TESTS.rglob("test_*.py"), *CASES.rglob("*.py"), *TESTS.rglob("*.yaml")]
    return {
        row
        for path in sources
        if path.name != Path(__file__).name
        for row in re.findall(r"\bP-\d{3}\b", path.read_text("utf-8"))
    }


def functions(pattern: str) -> int:
    return sum(len(re.findall(r"(?m)^def test_", path.read_text("utf-8"))) for path in (TESTS / "unit").glob(pattern))


@pytest.mark.inventory("P-438", "P-444")
@pytest.mark.parametrize(("suite", "at_least"), [("test_wire_*.py", 19), ("test_sdk_context.py", 17)])
def test_the_suites_that_the_plan_counts_are_at_least_as_large(suite: str, at_least: int) -> None:
    assert functions(suite) >= at_least


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(rows(UNIT), id="0-wire", marks=pytest.mark.inventory("P-487")),
        pytest.param(rows(UNIT, INVARIANT), id="1-seam", marks=pytest.mark.inventory("P-488")),
        pytest.param(
            rows(UNIT, CONFORMANCE, INVARIANT, LOCAL_GOLDEN, ALONE), id="2-queues", marks=pytest.mark.inventory("P-489")
        ),
    ],
)
def test_a_gate_has_a_test_for_everything_that_it_asks_for(wanted: set[str]) -> None:
    waiting = tomllib.loads((TESTS / "inventory_waits.toml").read_text("utf-8"))["wait"]
    assert sorted(wanted - named() - {"P-438", "P-444"}) == []
    assert not wanted & {row for entry in waiting for row in entry["rows"]}
