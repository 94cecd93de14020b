"""`lakeshore auth login` on a terminal, with an answer that is typed."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from pathlib import Path

from served import environment

ROOT = Path(__file__).resolve().parents[2]


def typed(answer: bytes, url: str, home: Path) -> tuple[int, bytes]:
    """`auth login` in a terminal where `answer` is typed at the question: the exit code and what was shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        env = environment(XDG_CONFIG_HOME=str(home / "config"), TERM="xterm", LAKESHORE_URL=url)
        os.execve(sys.executable, [sys.executable, "-m", "lakeshore", "auth", "login"], env)
    screen, asked, deadline = b"", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            screen += data
        if b"Token for" in screen and not asked:
            asked = True
            os.write(terminal, answer)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen
