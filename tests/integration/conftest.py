"""Servers for the integration tests: one of each kind per test process. Tests use ids and queues of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from served import ADMIN, Served, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server in open mode."""
    with running(tmp_path_factory.mktemp("open")) as served:
        yield served


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that needs tokens; its client sends the admin token."""
    with running(tmp_path_factory.mktemp("secured"), env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN) as served:
        yield served
