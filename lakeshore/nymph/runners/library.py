"""Our two packages where another user can read them.

The unpacked archive is its owner's alone (0700). A job that runs as another user imports from a copy below the root of
the working directories, `.lakeshore-<its source>`: made once, whole or not at all, writable by the daemon's user only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ..workdir import Account, made_root

PACKAGES = ("lakeshore", "dreamlake")


def readable_by(account: Account, search_path: str, root: Path) -> str:
    """PYTHONPATH with copies in the place of what this user cannot read. OSError when it cannot be copied."""
    return os.pathsep.join(
        entry if not os.path.isdir(os.path.join(entry, PACKAGES[0])) or _reads(account, entry) else copied(entry, root)
        for entry in search_path.split(os.pathsep)
    )


def _reads(account: Account, folder: str) -> bool:
    """Whether every directory down to our packages lets this user through."""
    path = os.path.realpath(os.path.join(folder, PACKAGES[0], "__init__.py"))
    if account.uid == 0:
        return True
    need = 0o4
    while True:
        found = os.stat(path)
        shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
        if not found.st_mode >> shift & need:
            return False
        if path == "/":
            return True
        path, need = os.path.dirname(path), 0o1


def copied(folder: str, root: Path) -> str:
    """The copy of this directory's two packages below `root`. OSError when it cannot be made."""
    made_root(root)
    found = os.stat(os.path.join(folder, PACKAGES[0]))
    target = root / f".lakeshore-{found.st_ino:x}-{found.st_mtime_ns:x}"
    if target.is_dir():
        return str(target)
    fresh = Path(tempfile.mkdtemp(prefix=".lakeshore.", dir=root))
    try:
        for name in PACKAGES:
            shutil.copytree(os.path.join(folder, name), fresh / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (fresh, *fresh.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.rename(fresh, target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return str(target)
