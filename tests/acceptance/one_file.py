"""How the acceptance tests build the one file, and where they may run it from."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from lakeshore._start import unsafe_above

ROOT = Path(__file__).resolve().parents[2]


def build(output: Path, *arguments: str, checkout: Path = ROOT, **environment: str) -> None:
    """Run the build as a contributor does."""
    command = [sys.executable, str(checkout / "build_pyz.py"), "--output", str(output), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr


def built_once(basetemp: Path) -> Path:
    """The archive for this machine, built by the first process of a test run that asks. `basetemp` is pytest's."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        basetemp = basetemp.parent  # of all workers of this run
    folder = basetemp / "one-file"
    folder.mkdir(exist_ok=True)
    path = folder / "lakeshore"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            build(path)
    return path


def load_build() -> ModuleType:
    """`build_pyz.py` as a module."""
    spec = importlib.util.spec_from_file_location("build_pyz", ROOT / "build_pyz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_checkout(place: Path) -> Path:
    """What a build reads, elsewhere: the sources, the lock and the wheels that are kept."""
    for name in ("lakeshore", "dreamlake", "requirements", "build/wheels"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "build_pyz.py", place)
    return place


def trusted_parent() -> Path | None:
    """A directory that only we can write, all the way up; pytest's own are below a world-writable one."""
    for place in (ROOT / "build", Path.home() / ".cache"):
        try:
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not unsafe_above(f"{place.resolve()}/x"):
                return place.resolve()
        except OSError:
            continue
    return None
