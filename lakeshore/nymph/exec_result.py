"""What the end of a command means: the body of its callback (nymph/protocol, "exec"). `exit_code`:

>= 0   the command's own; 128 + the signal's number when one ended it, as a shell says it
-1     it did not begin, was stopped, or was lost; `error` says which
-2     its time was up
"""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from typing import Any, Final

from .keeping.client import Exit, Kept, exit_path
from .keeping.protocol import JOB

OUTPUT_MAX: Final = 1 << 20
"""Bytes of stdout, and of stderr, that a result has."""
RESTARTED: Final = "daemon restarted"
LOST: Final = "the daemon's keeper was killed, and the command with it"


def result(exit_code: int, duration_ms: int, error: str | None = None) -> dict[str, Any]:
    """A callback's body without output."""
    return {
        "exit_code": exit_code,
        "stdout": b"",
        "stderr": b"",
        "duration_ms": duration_ms,
        "error": error,
        "result_inline": None,
        "result_ref": None,
    }


def meaning(ended: Exit, stopped: str | None) -> tuple[int, str | None]:
    """exit_code and error. `stopped` is why it was asked to end, when it was."""
    if ended.timed_out:
        return -2, "timed out"
    if ended.cancelled_by == "keeper":
        return -1, LOST
    if ended.cancelled_by is not None:
        return -1, ended.error or stopped or ended.cancelled_by
    if ended.signal is not None:
        number = int(getattr(signal, ended.signal, 0))
        return 128 + number, f"killed by {ended.signal}" + (" for want of memory" if ended.oom else "")
    if ended.code is None:
        return -1, ended.error or "it did not begin"
    return ended.code, None


def add_error(told: dict[str, Any], error: str) -> None:
    """One more."""
    told["error"] = f"{told['error']}; {error}" if told["error"] else error


def add_output(told: dict[str, Any], name: str, path: str) -> None:
    """The head of what it printed, and in `error` that there was more."""
    size = plain_size(path)
    if size:
        told[name] = read_plain(path, OUTPUT_MAX)
        if size > OUTPUT_MAX:
            add_error(told, f"{name} truncated")


def read_plain(path: str, most: int) -> bytes:
    """The head of a file. OSError when it cannot be read."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.pread(fd, most, 0)
    finally:
        os.close(fd)


def plain_size(path: str) -> int | None:
    """Of a file that is one, and no link to one; None when there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def ended_by_itself(ended: Exit) -> bool:
    """Not because somebody, or the want of a daemon, had ended it."""
    return ended.cancelled_by is None or ended.timed_out


def lasted_ms(job: Kept) -> int:
    """Of one that another daemon began: until its end, or now."""
    try:
        with open(os.path.join(job.directory, JOB), encoding="utf-8") as file:
            began = float(json.load(file)["began_at"])
        ended = time.time() if job.exit is None else os.stat(exit_path(job)).st_mtime
    except (OSError, ValueError, KeyError):
        return 0
    return max(0, int((ended - began) * 1000))
