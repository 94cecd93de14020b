"""`lakeshore doctor` of the built file: which file runs, where it unpacked itself, where PATH leads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installing import PATH, alone, environment, program, small_file


@pytest.fixture
def place(pyz: Path, tmp_path: Path) -> Path:
    """A directory with the file in it, as it is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(pyz, folder / "lakeshore")
    return folder


def findings(place: Path, cache: Path, tmp_path: Path, *, path: str, under: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the doctor says, by subject."""
    done = subprocess.run(
        [*under, sys.executable, place / "lakeshore", "doctor", "--json"],
        check=False,
        capture_output=True,
        text=True,
        env=environment(
            XDG_CACHE_HOME=str(cache),
            XDG_CONFIG_HOME=str(tmp_path),
            LAKESHORE_HOME=str(tmp_path / "home"),
            LAKESHORE_STATE_DIR=str(tmp_path / "state"),
            PATH=path,
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {found["subject"]: found for found in json.loads(done.stdout)["findings"]}


def test_it_names_the_file_its_cache_and_its_place_on_path(place: Path, warm_cache: Path, tmp_path: Path) -> None:
    found = findings(place, warm_cache, tmp_path, path=f"{place}:{PATH}")
    assert {one["status"] for one in found.values()} == {"ok"}
    assert found["program"]["seen"].endswith(f", {place}/lakeshore")
    assert found["cache"]["seen"].startswith(f"{warm_cache}/lakeshore/")
    assert "mode 700" in found["cache"]["seen"]
    assert found["path"]["seen"].startswith(f"{place}/lakeshore (")


def test_a_cache_that_others_may_write_or_where_nothing_may_run_is_said(
    place: Path, private_cache: Path, tmp_path: Path
) -> None:
    private_cache.chmod(0o777)
    found = findings(place, private_cache, tmp_path, path=f"{place}:{PATH}")
    assert found["cache"]["status"] == "warning"
    assert f"{private_cache} is writable by others" in found["cache"]["seen"]
    assert "XDG_CACHE_HOME" in found["cache"]["advice"]
    private_cache.chmod(0o700)
    under = (*alone(f"tmpfs noexec,mode=700 {private_cache}"),)
    found = findings(place, private_cache, tmp_path, path=f"{place}:{PATH}", under=under)
    assert "is mounted noexec" in found["cache"]["seen"]


def test_a_path_that_leads_to_none_another_or_several_versions_is_said(
    place: Path, warm_cache: Path, tmp_path: Path
) -> None:
    other = program(tmp_path / "other" / "lakeshore", small_file("0.0.1").decode()).parent
    base = os.path.dirname(shutil.which("env") or "/usr/bin/env")
    found = findings(place, warm_cache, tmp_path, path=base)
    assert (found["path"]["status"], found["path"]["advice"]) == ("warning", f'export PATH="{place}:$PATH"')
    found = findings(place, warm_cache, tmp_path, path=f"{other}:{place}:{base}")
    assert f"`lakeshore` is {other}/lakeshore (0.0.1), not the one that runs" in found["path"]["seen"]
    found = findings(place, warm_cache, tmp_path, path=f"{place}:{other}:{base}")
    assert found["path"]["seen"].startswith("several versions: ")
    assert found["path"]["advice"] == "remove all but the first"
