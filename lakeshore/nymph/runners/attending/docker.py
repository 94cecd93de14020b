"""A container: `docker run` in the foreground, and `docker stop` for TERM.

docker's own client passes TERM on, but a first process without a handler ignores it, and a client that is killed leaves
its container behind: so the container is stopped by its id, with docker's ten seconds before KILL. A young one gets
TERM again each second: an interpreter that has just begun does not hear the first.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .elsewhere import Elsewhere, Unable, asked

STOP_S = 10
YOUNG_S = 10.0
_CID = re.compile(r"[0-9a-f]{12,64}")
_DAEMON_FAILED, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127


class Container(Elsewhere):
    """`argv` is the whole `docker run`, `cid` the file that names the container, `program` what runs in it."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(told)
        self._cid = Path(told["cid"])
        self._stopper: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        try:
            client = subprocess.Popen(self.told["argv"], stdin=subprocess.DEVNULL)  # noqa: S603  (docker)
        except FileNotFoundError:
            raise Unable("DockerError", "there is no docker on this host's PATH") from None
        begun = time.monotonic()
        while (code := self._waited(client)) is None:
            if self._stopper is not None and time.monotonic() - begun < YOUNG_S:
                asked(["docker", "kill", "--signal=TERM", self._named() or ""])
        if self._stopper is not None:
            self._stopper.wait()
        elif self.stopping:
            asked(self.told["sweep"])  # before it had a name: by now there may be one
        if code == _DAEMON_FAILED:
            self.explain("DockerError", "docker could not start the container: see its message in the job's stderr")
        elif code in (_NOT_EXECUTABLE, _NOT_FOUND):
            program = self.told["program"]
            self.explain(
                "InterpreterError" if program.startswith("python") else "DockerError",
                f"the image {self.told['image']} has no {program} that runs",
            )
        return code if code >= 0 else 128 - code

    def _waited(self, client: subprocess.Popen[bytes]) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return client.wait(timeout=1)
        return None

    def stop(self) -> None:
        self.stopping = True
        container = self._named()
        if container is not None:
            argv = ["docker", "stop", "-t", str(STOP_S), container]
            self._stopper = subprocess.Popen(  # noqa: S603  (docker)
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def _named(self) -> str | None:
        try:
            text = self._cid.read_text().strip()
        except (OSError, ValueError):
            return None
        return text if _CID.fullmatch(text) else None
