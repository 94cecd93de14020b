"""Why an interpreter cannot run a job: it is not there, it does not start, or it is too old. Says what was found.

Looked at only after a job has failed without a word: a job that runs does not pay for it. Whatever is started here is
started as the job's user (`prefix` is the command that becomes it) and away from the daemon's directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from lakeshore._old_python import NAMES

OLDEST = (3, 11)
_PROBE = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
PATIENCE_S = 20.0


def version(python: str, prefix: Sequence[str] = ()) -> tuple[int, ...] | None:
    """What it says of itself, whatever its age; None when it does not start."""
    try:
        done = subprocess.run(  # noqa: S603  (the interpreter that the run names)
            [*prefix, python, "-E", "-c", _PROBE],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.decode(errors="replace").strip().split(".")
    return tuple(map(int, words)) if done.returncode == 0 and all(word.isdecimal() for word in words) else None


def explained(python: str, path: str, prefix: Sequence[str] = ()) -> str | None:
    """Why `python` (a name on `path`, or a file) runs no job here; None when it could."""
    found = shutil.which(python, path=path)
    told = None if found is None else version(found, prefix)
    if told is not None and told >= OLDEST:
        return None
    if found is None:
        why = f"there is no {python}"
    elif told is None:
        why = f"{found} does not start"
    else:
        why = f"{found} is Python {'.'.join(map(str, told))}"
    return (
        f"a job needs Python {OLDEST[0]}.{OLDEST[1]} or newer, but {why} on this host; {_others(path, prefix)}. "
        "Install one, or name one with run_config.python"
    )


def _others(path: str, prefix: Sequence[str]) -> str:
    """Every Python on the path, with its version."""
    seen: dict[str, str] = {}
    for name in NAMES:
        where = shutil.which(name, path=path)
        told = None if where is None else version(where, prefix)
        if where is not None and told is not None:
            seen.setdefault(os.path.realpath(where), f"{where} ({'.'.join(map(str, told))})")
    return f"found: {', '.join(seen.values())}" if seen else f"no other Python is on its PATH ({path})"
