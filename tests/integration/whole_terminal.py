"""A program that takes the whole terminal, on one of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import termios
import time


class Terminal:
    """A program on a terminal of its own, and what it wrote to it."""

    def __init__(self, command: list[str], **environ: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
            os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color", **environ})
        self.before = termios.tcgetattr(self.fd)
        self.screen = b""

    def until(self, words: bytes) -> None:
        deadline = time.monotonic() + 60
        while words not in self.screen:
            assert time.monotonic() < deadline, self.screen[-3000:]
            assert self.read(0.1), self.screen[-3000:]

    def read(self, patience_s: float) -> bool:
        """False at the end."""
        if not select.select([self.fd], [], [], patience_s)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.screen += data
        return bool(data)

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        after, deadline = self.before, time.monotonic() + 60
        while self.read(0.1):
            assert time.monotonic() < deadline, self.screen[-3000:]
            with contextlib.suppress(termios.error):
                after = termios.tcgetattr(self.fd)
        self.after = after
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
