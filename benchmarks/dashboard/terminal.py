"""A program on a terminal of its own, and when what came out of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from harness import procfs

KEPT = 1 << 18
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


class Silent(Exception):
    """What was waited for did not come; the text is the end of what did."""


class Terminal:
    """`with Terminal(command, columns, lines) as terminal:`; the program is killed at the end.

    All that it writes is taken at once, as by a terminal that never makes it wait. `born` is when it was started.
    """

    def __init__(self, command: Sequence[str], columns: int, lines: int, env: Mapping[str, str]) -> None:
        self.born = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
                os.execvpe(command[0], list(command), dict(env))
            os._exit(127)
        self._bytes, self.written = b"", 0
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:
                data = b""
            with self._news:
                self._bytes = (self._bytes + data)[-KEPT:]
                self.written += len(data)
                self._at = time.perf_counter()
                self._news.notify_all()
            if not data:
                return

    def until(self, pattern: str, within_s: float = 15.0) -> float:
        """When what was written since the last `press` or `forget` had that in it (perf_counter). Silent."""
        wanted, deadline = re.compile(pattern.encode()), time.monotonic() + within_s
        with self._news:
            while not wanted.search(_SEQUENCE.sub(b"", self._bytes)):
                self._news.wait(max(deadline - time.monotonic(), 0))
                if time.monotonic() >= deadline or not self._reader.is_alive():
                    raise Silent(f"no {pattern!r} in {_SEQUENCE.sub(b'', self._bytes)[-3000:]!r}")
            return self._at

    def forget(self) -> None:
        """What was written so far."""
        with self._news:
            self._bytes = b""

    def press(self, keys: str) -> float:
        """Type that; when."""
        self.forget()
        at = time.perf_counter()
        os.write(self._fd, keys.encode())
        return at

    def took_ms(self, keys: str, pattern: str, within_s: float = 15.0) -> float:
        """From these keys to that."""
        at = self.press(keys)
        return (self.until(pattern, within_s) - at) * 1e3

    def cpu_s(self) -> float:
        """So far."""
        return procfs.cpu_s([self.pid])

    def rss_mib(self) -> float:
        """Now."""
        return procfs.rss_mib([self.pid])

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._reader.join(5)
        os.close(self._fd)
