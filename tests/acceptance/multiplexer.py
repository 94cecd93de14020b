"""A terminal as a person sees it: a shell in tmux, keys for it, and the text on its screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

TMUX = shutil.which("tmux")
SHELL = "PS1='ready> ' exec /bin/sh"
PATIENCE_S = 60.0
needs_tmux = pytest.mark.skipif(TMUX is None, reason="no tmux: install the Debian package tmux")


class Session:
    """A shell on a terminal, of 100 columns and 30 lines unless `size` says another, and what is to be seen there."""

    def __init__(
        self,
        directory: Path,
        environ: dict[str, str],
        *,
        shell: str = SHELL,
        user: tuple[int, int] | None = None,
        size: tuple[int, int] = (100, 30),
    ) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="tmux-", dir="/tmp"))  # the path of a socket must be short
        self._socket, self._user = self._place / "socket", user
        if user is not None:
            os.chown(self._place, *user)
        self._env = {**environ, "TERM": "xterm-256color", "ENV": "/dev/null"}
        given = ["-x", str(size[0]), "-y", str(size[1]), "-c", str(directory), shell]
        self._do("-f", "/dev/null", "new-session", "-d", *given)

    def _do(self, *arguments: str) -> str:
        command = [str(TMUX), "-S", str(self._socket), *arguments]
        who: Any = {} if self._user is None else {"user": self._user[0], "group": self._user[1], "extra_groups": []}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=self._env, timeout=60, **who)
        return done.stdout

    def write(self, text: str) -> None:
        """Type without Enter."""
        self._do("send-keys", "-l", text)

    def type(self, text: str) -> None:
        self.write(text)
        self._do("send-keys", "Enter")

    def press(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self._do("resize-window", "-x", str(columns), "-y", str(lines))

    def text(self) -> str:
        return self._do("capture-pane", "-p")

    def until(self, *words: str, there: bool = True) -> None:
        """Until all of it is to be seen; or none."""
        deadline = time.monotonic() + PATIENCE_S
        while not all((word in text) is there for text in [self.text()] for word in words):
            assert time.monotonic() < deadline, f"{words} {'not ' if there else ''}in\n{self.text()}"
            time.sleep(0.05)

    def close(self) -> None:
        try:
            self._do("kill-server")
        finally:
            shutil.rmtree(self._place)
