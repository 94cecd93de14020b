"""The one file, built once for all processes of a test run, and places to run it from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from one_file import built_once, trusted_parent

sys.path.append(str(Path(__file__).parents[1] / "integration"))  # its servers and hosts


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the archive for this machine."""
    return built_once(tmp_path_factory.getbasetemp())


@pytest.fixture
def private_cache() -> Iterator[Path]:
    """An empty XDG_CACHE_HOME that the archive trusts."""
    parent = trusted_parent()
    if parent is None:
        pytest.skip("no directory here that only this user can write")
    path = Path(tempfile.mkdtemp(prefix="cache-", dir=parent))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def warm_cache(pyz: Path) -> Iterator[Path]:
    """An XDG_CACHE_HOME in which the archive is unpacked already, for tests that only want to run it."""
    parent = trusted_parent()
    if parent is None:
        pytest.skip("no directory here that only this user can write")
    path = Path(tempfile.mkdtemp(prefix="cache-", dir=parent))
    subprocess.run(
        [sys.executable, pyz, "--version"],
        check=True,
        capture_output=True,
        env={**os.environ, "XDG_CACHE_HOME": str(path)},
    )
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def filled_cache(private_cache: Path, warm_cache: Path) -> Path:
    """An XDG_CACHE_HOME of this test's own, with the archive unpacked in it: for tests that spoil the tree."""
    return Path(shutil.copytree(warm_cache, private_cache, symlinks=True, dirs_exist_ok=True))


@pytest.fixture
def public_place() -> Iterator[Path]:
    """A directory that every user can read: pytest's own are private."""
    path = Path(tempfile.mkdtemp(prefix="lakeshore-public-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
