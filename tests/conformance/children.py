"""Other processes for the file plane: small scripts that talk in lines."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

PRELUDE = """
import os, signal, sys, time
from lakeshore.sdk.dispatch import Dispatch, DispatchError
path = sys.argv[1]
def say(*words):
    print(*words, flush=True)
def hear():
    return sys.stdin.readline().strip()
"""
DEADLINE_S = 60.0


class Child:
    """A Python process that runs PRELUDE and `script`. Leaving the block ends it."""

    def __init__(self, script: str, *args: object) -> None:
        code = PRELUDE + textwrap.dedent(script)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def line(self) -> str:
        """The next line that it says."""
        found = self._lines.get(timeout=DEADLINE_S)
        assert found is not None, f"the process ended with {self.process.wait(DEADLINE_S)} and said no more"
        return found

    def lines(self) -> Iterator[str]:
        """What it says until it ends."""
        while (found := self._lines.get(timeout=DEADLINE_S)) is not None:
            yield found

    def tell(self, words: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def done(self) -> None:
        """Wait for its end, which must be a good one."""
        assert self.process.wait(DEADLINE_S) == 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self._lines.put(text.rstrip("\n"))
        self._lines.put(None)


@contextmanager
def children(script: str, count: int, *args: object) -> Iterator[list[Child]]:
    """Several at once."""
    started = [Child(script, *args) for _ in range(count)]
    try:
        yield started
    finally:
        for child in started:
            child.__exit__(None, None, None)
