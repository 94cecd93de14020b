"""A small disk that can be filled and emptied: a tmpfs of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def fast_directory(otherwise: Path) -> Iterator[Path]:
    """A directory in memory where there is such a place: for what is opened again and again and need not survive."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else otherwise) as name:
        yield Path(name)


class SmallDisk:
    """A mounted file system of a few MiB."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Take the free space but for `leave` bytes."""
        free = shutil.disk_usage(self.root).free
        with open(self._ballast, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while free > leave:
                part = min(free - leave, 65536)
                file.write(b"\0" * part)
                free = shutil.disk_usage(self.root).free

    def empty(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(root: Path, megabytes: int = 8) -> Iterator[SmallDisk]:
    """Mount one at `root`; the test is skipped where that is refused."""
    root.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine mounts no small disk: {done.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)
