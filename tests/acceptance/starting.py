"""Starting the one file in a process of its own, with nothing but what it carries, and looking at its unpacked tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

VERSION = re.compile(r"lakeshore \d+\.\d+\.\d+\n")
TREE = re.compile(r"[0-9a-f]{32}-\w+")
CLEAN = [sys.executable, "-S"]  # no site-packages: third-party code can only come from the archive
ENTER = (
    "import runpy, sys\n"
    "sys.argv = [{pyz!r}, '--version']\n"
    "try:\n"
    "    runpy.run_path({pyz!r}, run_name='__main__')\n"
    "except SystemExit as ended:\n"
    "    assert ended.code == 0\n"
    "import lakeshore\n"
)


def environment(cache: Path | None, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "PYTHONPATH", "TMPDIR")}
    return {**kept, **({"XDG_CACHE_HOME": str(cache)} if cache else {}), **more}


def version(
    pyz: Path, cache: Path | None, *, before: Callable[[], None] | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Start the archive for its version, the cheapest thing that goes all the way in."""
    done = subprocess.run(
        [*CLEAN, pyz, "--version"],
        check=False,
        capture_output=True,
        text=True,
        env=environment(cache, **more),
        preexec_fn=before,
    )
    assert done.returncode == 0, done.stderr
    assert VERSION.fullmatch(done.stdout)
    return done


def inside(pyz: Path, cache: Path, code: str, **more: str) -> list[str]:
    """Run `code` in a process that the archive was started in; its printed lines."""
    program = ENTER.format(pyz=str(pyz)) + code
    done = subprocess.run(
        [*CLEAN, "-c", program], check=False, capture_output=True, text=True, env=environment(cache, **more)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[1:]


def trees(cache: Path) -> list[Path]:
    return [path for path in (cache / "lakeshore").iterdir() if TREE.fullmatch(path.name)]


def mounted(options: str, cache: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command that alone sees a fresh file system at `cache`."""
    enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*enter, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    script = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    return subprocess.run(
        [*enter, "sh", "-c", script, "sh", options, str(cache), *command],
        check=False,
        capture_output=True,
        text=True,
        env=environment(cache, **more),
    )
