"""scripts/coverage-of-inventory: what counts as cited, what stands aside, its exit codes; and the record of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "coverage-of-inventory"

ROWS = """# Rows

## Shipped

| id | fact | source |
|---|---|---|
| P-001 | first | page |
| P-002 | second, a \\| b | page |
| P-003 | third | page |
| P-004 | [HIST] an old one | page |
| P-001 | first, printed again | page |

## Plans [DRAFT]

| P-005 | fifth | page |

## Gaps

| P-006 | sixth | page | proposal |
| P-007 | seventh | page | proposal |
"""

TESTS = """
import pytest

@pytest.mark.inventory("P-001")
@pytest.mark.parametrize("n", [1, 2])
def test_passes(n): pass

@pytest.mark.inventory("P-001", "P-002")
def test_fails(): assert False

@pytest.mark.inventory("P-003")
def test_is_skipped(): pytest.skip("no part")

@pytest.fixture
def broken():
    yield
    raise RuntimeError

@pytest.mark.inventory("P-006")
def test_breaks_at_its_end(broken): pass

@pytest.mark.inventory("P-007", "P-008")
class TestSeveral:
    @pytest.mark.inventory("P-009")
    def test_names_rows_on_two_levels(self): pass
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "sdk.md").write_text(ROWS)
    (tmp_path / "waits.toml").write_text('[[wait]]\nfor = "rain"\nrows = ["P-006..P-007"]\n')
    return tmp_path


def record(place: Path, name: str = "record.json", **rows: dict[str, int]) -> None:
    spelled = {row.replace("_", "-"): outcomes for row, outcomes in rows.items()}
    (place / name).write_text(json.dumps({"tests": 4, "rows": spelled}))


def coverage(place: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, "--inventory", place / "inventory", "--waits", place / "waits.toml"]
    if "--record" not in flags:
        command += ["--record", place / "record.json"]
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=False)


def sdk(place: Path, *flags: str) -> dict[str, Any]:
    done = coverage(place, "--json", *flags)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["files"]["sdk"]
    return found


def test_a_row_is_cited_when_a_test_of_it_passed_and_none_failed(place: Path) -> None:
    record(place, P_001={"passed": 2, "skipped": 1}, P_002={"passed": 1, "failed": 1}, P_003={"skipped": 1})
    found = sdk(place)
    assert (found["rows"], found["cited"], found["missing"]) == (5, 1, 2)
    assert found["sections"][0]["missing"] == ["P-002", "P-003"]


def test_drafts_history_and_notes_stand_aside_by_row_and_by_section(place: Path) -> None:
    record(place, P_004={"passed": 1}, P_005={"passed": 1})
    found = sdk(place)
    assert [section["aside"] for section in found["sections"]] == [1, 1, 0]
    assert (found["rows"], found["cited"], found["aside"]) == (5, 0, 2)


def test_what_waits_is_never_cited_and_is_told_when_a_test_shows_it(place: Path) -> None:
    record(place, P_006={"passed": 1})
    assert sdk(place)["sections"][2]["waits"] == {"P-006": "rain", "P-007": "rain"}
    done = coverage(place)
    assert "waits for rain: P-006 P-007" in done.stdout
    assert "passing tests cite them: P-006" in done.stderr


def test_the_table_has_a_line_for_each_section_and_a_total(place: Path) -> None:
    record(place, P_001={"passed": 1})
    lines = [line.split() for line in coverage(place).stdout.splitlines()]
    assert ["Shipped", "3", "1", "0", "2", "1"] in lines
    assert ["Plans", "[DRAFT]", "0", "0", "0", "0", "1"] in lines
    assert ["total:", "20.0", "%", "5", "1", "2", "2", "2"] in lines


def test_what_is_missing_is_listed_with_its_text(place: Path) -> None:
    record(place, P_001={"passed": 1})
    for flags in (["--missing"], ["--missing", "sdk"], ["--missing", "sdk.md"]):
        assert coverage(place, *flags).stdout.splitlines() == ["P-002  second, a \\| b", "P-003  third"]


def test_several_records_count_together(place: Path) -> None:
    record(place, "one.json", P_001={"passed": 1}, P_002={"passed": 1})
    record(place, "two.json", P_002={"failed": 1}, P_003={"passed": 1})
    found = sdk(place, "--record", str(place / "one.json"), "--record", str(place / "two.json"))
    assert found["sections"][0]["missing"] == ["P-002"]


@pytest.mark.parametrize(("percent", "code"), [("20", 0), ("20.1", 1)])
def test_a_file_below_what_is_asked_for_exits_1(place: Path, percent: str, code: int) -> None:
    record(place, P_001={"passed": 1})
    done = coverage(place, "--at-least", f"sdk={percent}")
    assert done.returncode == code, done.stderr
    assert ("sdk.md is at 20.0 %, below 20.1 %" in done.stderr) is bool(code)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--inventory", "/nowhere"], "the inventory is not at /nowhere; say where with --inventory DIR"),
        (["--record", "/nowhere.json"], "no record of a test run at /nowhere.json; scripts/test writes one"),
        (["--at-least", "sdk"], "write FILE=PERCENT"),
        (["--at-least", "other=1"], "there is no other.md"),
        (["--missing", "other"], "there is no other.md"),
    ],
)
def test_what_cannot_be_used_exits_2_and_says_what_to_do(place: Path, flags: list[str], says: str) -> None:
    record(place)
    done = coverage(place, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_spoilt_record_exits_2(place: Path) -> None:
    (place / "record.json").write_text("[]")
    assert coverage(place).returncode == 2


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_run_writes_what_became_of_each_row_over_all_its_processes(tmp_path: Path, processes: str) -> None:
    hooks = (ROOT / "tests" / "conftest.py").read_text().split("@pytest.fixture")[0]
    (tmp_path / "conftest.py").write_text(hooks)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = inventory(*ids): rows\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    written = tmp_path / "build" / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", processes, f"--basetemp={tmp_path}/bt", "test_some.py"],
        cwd=tmp_path,
        env={**os.environ, "INVENTORY_RECORD": str(written), "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert written.is_file(), done.stdout + done.stderr
    found = json.loads(written.read_text())
    assert found["tests"] == 6
    assert "test_some.py" in found["arguments"]
    assert found["rows"] == {
        "P-001": {"failed": 1, "passed": 2},
        "P-002": {"failed": 1},
        "P-003": {"skipped": 1},
        "P-006": {"failed": 1},
        "P-007": {"passed": 1},
        "P-008": {"passed": 1},
        "P-009": {"passed": 1},
    }


def test_the_checked_in_table_of_waits_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "sdk.md").write_text(ROWS)
    record(tmp_path)
    done = subprocess.run(
        [sys.executable, SCRIPT, "--inventory", tmp_path, "--record", tmp_path / "record.json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
