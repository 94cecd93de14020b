"""What every test gets: a clean environment, so that nothing of the machine leaks into a run. And the run's record."""

from __future__ import annotations

import os

import inventory_record
import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine's other work, and nothing of the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("shared machine")
    inventory_record.start(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    inventory_record.name_rows(items)


@pytest.fixture(autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No LAKESHORE_* variable of the caller, and a private home for state."""
    for name in list(os.environ):
        if name.startswith(("LAKESHORE_", "DREAMLAKE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path_factory.mktemp("home")))
