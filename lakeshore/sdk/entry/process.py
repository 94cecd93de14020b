"""What the processes that run bodies share: their voice, their end, and the credentials that no body is to see."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import NoReturn

_MAIN = threading.main_thread()
_SECRETS = ("LAKESHORE_CLIENT_TOKEN", "LAKESHORE_TOKEN", "LAKESHORE_ADMIN_TOKEN")


def token() -> str | None:
    """The bearer that the environment names."""
    return os.environ.get("LAKESHORE_CLIENT_TOKEN") or os.environ.get("LAKESHORE_TOKEN") or None


def hide_secrets() -> None:
    """Take the credentials out of the environment, before any body runs."""
    for name in _SECRETS:
        os.environ.pop(name, None)


def say(sentence: str) -> None:
    """Tell whoever watches this process."""
    with contextlib.suppress(OSError, ValueError):  # a body may have closed it
        print(sentence, file=sys.stderr, flush=True)  # noqa: T201  # this is the process's voice


def leave(code: int) -> NoReturn:
    """End the process, though a body may have left a thread that never ends."""
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not _MAIN]
    if not left:
        warm = sys.modules.get("lakeshore.sdk.entry.warm")
        if warm is not None and warm.is_spare():
            warm.end(code)
        raise SystemExit(code)
    say(f"lakeshore worker: not waiting for what bodies left running: {', '.join(left)}")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
