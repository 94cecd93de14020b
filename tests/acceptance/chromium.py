"""A real Chromium without a window, driven over a pipe: open a page, evaluate in it, wait for something to be true."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ABSENT = "no Chromium: install the Debian package chromium"
PATIENCE_S = 90.0
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
PLACE = """\
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A browser reads its commands from descriptor 3 and writes to 4."""
QUIET = ("--disable-background-networking", "--disable-component-update", "--no-proxy-server")


class Page:
    """One tab."""

    def __init__(self, commands: int, answers: Any) -> None:
        self._commands, self._answers = commands, answers
        self._last = 0
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def reload(self) -> None:
        self._call("Page.reload")

    def value(self, expression: str) -> Any:
        """What the expression is worth in the page; None while it raises, as between two documents."""
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.value(f"Boolean({expression})") is not True:
            assert time.monotonic() < deadline, f"never true: {expression}; {self.value('document.body.innerText')}"
            time.sleep(0.05)

    def _call(self, method: str, **params: Any) -> Any:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(_until_zero(self._answers))
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return answer["result"]


def _until_zero(file: Any) -> bytes:
    taken = bytearray()
    while (byte := file.read(1)) != b"\0":
        assert byte, "the browser has ended"
        taken += byte
    return bytes(taken)


@contextlib.contextmanager
def browsing(directory: Path) -> Iterator[Page]:
    """A browser with a profile in `directory`. It does not outlive the block."""
    (theirs_in, commands), (answers, theirs_out) = os.pipe(), os.pipe()
    command = [str(PROGRAM), *FLAGS, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={directory / 'profile'}"]
    with (directory / "chromium.log").open("wb") as log:
        browser = subprocess.Popen(
            [sys.executable, "-c", PLACE, str(theirs_in), str(theirs_out), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(theirs_in, theirs_out),
            start_new_session=True,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        with open(answers, "rb") as file:
            yield Page(commands, file)
    finally:
        os.close(commands)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
