"""Records which rows of the contract's inventory a run of the tests has shown, for scripts/coverage-of-inventory.

Rule: a row's outcomes are those of the tests that name it with `@pytest.mark.inventory(...)`; a test has one outcome,
the worst of its phases. The processes of a parallel run send theirs along with each report, and the one that started
them writes the file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

PROPERTY = "inventory"
VARIABLE = "INVENTORY_RECORD"
_WORST_LAST = ("passed", "skipped", "failed")


def name_rows(items: list[pytest.Item]) -> None:
    """Let every report of a test carry the rows that it names."""
    for item in items:
        rows = {row for mark in item.iter_markers(PROPERTY) for row in mark.args}
        if rows:
            item.user_properties.append((PROPERTY, sorted(rows)))


class Recorder:
    """Gathers the reports of a whole run and writes them to `path` at its end."""

    def __init__(self, path: Path, arguments: list[str]) -> None:
        self._path = path
        self._arguments = arguments
        self._outcomes: dict[str, str] = {}
        self._rows: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(known, report.outcome, key=_WORST_LAST.index)
        for name, rows in report.user_properties:
            if name == PROPERTY:
                assert isinstance(rows, list)
                self._rows[report.nodeid] = rows

    def pytest_sessionfinish(self) -> None:
        rows: dict[str, Counter[str]] = {}
        for test, named in self._rows.items():
            for row in named:
                rows.setdefault(row, Counter())[self._outcomes[test]] += 1
        record = {"arguments": self._arguments, "tests": len(self._outcomes), "rows": dict(sorted(rows.items()))}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        written.write_text(json.dumps(record, indent=1) + "\n")
        written.replace(self._path)


def start(config: pytest.Config) -> None:
    """Record this run when INVENTORY_RECORD names a file; the processes of a parallel run only report."""
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path).absolute(), list(config.invocation_params.args)))
