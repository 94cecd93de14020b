"""Where and with what a run was made; without it a figure means nothing."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .processes import ROOT

OURS = ("h11", "msgpack", "trio")
PEERS = ("huey", "celery", "kombu", "redis")


def describe(directory: Path) -> dict[str, Any]:
    """Processor, cores, kernel, file system, load, Python, SQLite, our commit and our libraries."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "file_system": _file_system(directory),
        "load_before": round(os.getloadavg()[0], 1),
        "python": f"{platform.python_version()}, {_build()}",
        "sqlite": sqlite3.sqlite_version,
        "commit": _said(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]),
        "versions": {name: _version(name) for name in OURS},
    }


def peer_versions(python: Path) -> dict[str, str]:
    """Of the peers' environment, and of redis-server."""
    names = repr(PEERS)
    script = f"import importlib.metadata as m\nfor n in {names}: print(n, m.version(n))"
    found = dict(line.split() for line in _said([str(python), "-c", script]).splitlines())
    words = _said(["redis-server", "--version"]).split()
    found["redis-server"] = next((word[2:] for word in words if word.startswith("v=")), "none")
    return found


def _build() -> str:
    # A Python built without profile-guided optimisation takes half as long again for everything here.
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return "optimised build" if "--enable-optimizations" in arguments else "plain build (not optimised)"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _device, where, type_ = line.split()[:3]
        if str(directory.resolve()).startswith(where) and len(where) >= len(best):
            best, kind = where, type_
    return kind


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except OSError:
        return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
