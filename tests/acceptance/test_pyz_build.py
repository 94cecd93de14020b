"""The one file as an artefact: what is in it, and that a commit determines its bytes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from one_file import ROOT, build, copy_checkout, load_build


@pytest.mark.inventory("N-003", "N-004")
def test_the_file_is_executable_and_small_and_starts_with_python3(pyz: Path) -> None:
    assert os.access(pyz, os.X_OK)
    assert pyz.stat().st_size <= 25 * 2**20
    assert pyz.read_bytes().startswith(b"#!/usr/bin/env python3\n")


@pytest.mark.inventory("N-422")
def test_its_root_holds_our_two_packages_and_main_and_nothing_else(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as opened:
        names = opened.namelist()
    assert {name.split("/")[0] for name in names} == {"lakeshore", "dreamlake", "__main__.py"}
    folders = {f"{name.rsplit('/', 1)[0]}/" for name in names if name.endswith(".py") and "/_vendor/" not in name}
    assert folders - {"__main__.py/"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".so"))]


def test_each_third_party_part_brings_its_licence(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as opened:
        names = opened.namelist()
    parts = {name.split("/")[2] for name in names if name.startswith("lakeshore/_vendor/") and ".dist-info/" in name}
    licensed = {
        name.split("/")[2]
        for name in names
        if ".dist-info/" in name and any(word in name.upper() for word in ("LICEN", "COPYING"))
    }
    assert parts
    assert parts == licensed


def test_the_same_sources_give_the_same_bytes_wherever_they_lie_and_a_second_build_asks_no_network(
    pyz: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first, second = tmp_path / "first", tmp_path / "second"
    copy_checkout(one)
    shutil.copytree(one, two)
    build(first, checkout=one)
    build(second, checkout=two, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path), TZ="Asia/Tokyo", LC_ALL="C")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.inventory("N-007", "N-008")
def test_a_release_carries_the_wheels_of_every_platform_and_python_and_is_small_enough(tmp_path: Path) -> None:
    module = load_build()
    path = tmp_path / "lakeshore"
    build(path, "--platforms", "all")
    assert path.stat().st_size <= module.LIMIT
    locked = (ROOT / "requirements" / "pyz.txt").read_text()
    tags = {"linux_x86_64": "manylinux", "linux_aarch64": "manylinux", "darwin_arm64": "macosx"}
    wanted = {("abi3", "pynacl")} | {
        (f"cp{python}", project)
        for python, published in module.PYTHONS.items()
        for project in published
        if project != "pynacl" or python.endswith("t")
    }
    with zipfile.ZipFile(path) as opened:
        carried = {name.split("/")[3] for name in opened.namelist() if name.startswith("lakeshore/_vendor/_native/")}
        assert carried == set(tags)
        for platform, system in tags.items():
            prefix = f"lakeshore/_vendor/_native/{platform}/"
            wheels = [name for name in opened.namelist() if name.startswith(prefix)]
            found = set()
            for name in wheels:
                assert hashlib.sha256(opened.read(name)).hexdigest() in locked
                folder, wheel = name.removeprefix(prefix).split("/")
                project, _version, _python, abi, place = wheel.removesuffix(".whl").split("-")
                assert folder == abi
                assert system in place
                assert platform.split("_", 1)[1] in place or "universal2" in place
                found.add((folder, project))
            assert found == wanted


def test_the_lock_names_every_file_by_hash_and_no_index() -> None:
    for lock in ("pyz.txt", "test.txt", "dev.txt"):
        lines = (ROOT / "requirements" / lock).read_text().splitlines()
        assert not [line for line in lines if "://" in line or line.startswith("-") or "index" in line]
        assert all(line.startswith(("    --hash=sha256:", "#")) or "==" in line for line in lines if line.strip())


def test_a_wheel_that_is_not_the_locked_one_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_build()
    locked = {"msgpack": "msgpack==1.2.4 \\\n    --hash=sha256:" + "0" * 64}
    monkeypatch.setattr(module, "WHEELS", tmp_path)
    lines = locked["msgpack"] + "\n"
    kept = tmp_path / f"linux_x86_64-cp311-{hashlib.sha256(lines.encode()).hexdigest()[:16]}"
    kept.mkdir()
    (kept / "msgpack-1.2.4-cp311-cp311-any.whl").write_bytes(b"another")
    with pytest.raises(module.Problem, match=re.escape("is not what requirements/pyz.txt locks")):
        module.download(locked, ["msgpack"], "linux_x86_64", "311")


def test_without_pip_and_venv_the_build_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as u, runpy\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('pip', 'venv', 'ensurepip') else real(name, *a)\n"
        f"module = runpy.run_path({str(ROOT / 'build_pyz.py')!r})\n"
        "from pathlib import Path\n"
        f"module['pip'].__globals__['HERE'] = Path({str(tmp_path)!r})\n"
        "try:\n"
        "    module['pip']()\n"
        "except module['Problem'] as problem:\n"
        "    print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "apt install python3-venv" in done.stdout
