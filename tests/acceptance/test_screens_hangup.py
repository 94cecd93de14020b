"""A screen whose terminal goes away ends, instead of waiting for it."""

from __future__ import annotations

import os
import pty
import select
import time
from pathlib import Path

import pytest
from starting import CLEAN, environment

PATIENCE_S = 60.0
SCREENS = {
    "tui": ["tui", "--url", "http://127.0.0.1:9"],
    "nymph tui": ["nymph", "tui", "--url", "http://127.0.0.1:9"],
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_ends_when_its_terminal_is_closed(name: str, pyz: Path, filled_cache: Path) -> None:
    environ = environment(filled_cache, TERM="xterm-256color", LC_ALL="C.UTF-8")
    command = [*CLEAN, str(pyz), *SCREENS[name]]
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execve(command[0], command, environ)
        finally:
            os._exit(127)
    deadline = time.monotonic() + PATIENCE_S
    seen = b""
    try:
        while b"127.0.0.1:9" not in seen:
            assert time.monotonic() < deadline and select.select([terminal], [], [], PATIENCE_S)[0], seen
            seen += os.read(terminal, 1 << 16)
    finally:
        os.close(terminal)
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
    if ended == (0, 0):
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert ended != (0, 0), "it still ran"
