"""Servers for the integration tests: one of each kind per test process. Tests use ids and queues of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from served import ADMIN, Served, running

from lakeshore.cli.main import main


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


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run one command in this process: (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
