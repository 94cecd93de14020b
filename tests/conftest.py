"""What every test gets: a clean environment, so that nothing of the machine leaks into a run. And the run's record."""

from __future__ import annotations

import os

import inventory_record
import pytest
from hypothesis import HealthCheck, Phase, settings

# How long an example takes says something of the machine's other work, and nothing of the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# scripts/mutants: the same examples each time, few of them, and nobody reads the smallest one that fails.
settings.register_profile(
    "mutants",
    settings.get_profile("shared machine"),
    max_examples=20,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("shared machine")
    inventory_record.start(config)


LONG = (
    "test_of_hosts_that_are_cut_off_or_killed_nothing_is_lost_and_nothing_runs_twice_at_once",
    "test_a_new_user_gets_from_nothing_to_results_in_a_bare_debian",
    "test_a_short_soak_prints_the_slopes_of_every_process",
    "test_a_row_is_measured_on_every_disk_and_its_syncs_are_counted",
    "test_a_release_carries_the_wheels_of_every_platform_and_python_and_is_small_enough",
)
"""Two minutes of a machine's time for what hardly ever breaks, and what needs both cores to itself, for its leases are
of 3 s. LONG=1 runs them, before a release."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    inventory_record.name_rows(items)
    if not os.environ.get("LONG"):
        long = [item for item in items if getattr(item, "originalname", item.name) in LONG]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No LAKESHORE_* variable of the caller, and a private home for state."""
    for name in list(os.environ):
        if name.startswith(("LAKESHORE_", "DREAMLAKE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("LAKESHORE_CODE", "off")  # modules of the tests lie in a git tree of their own
