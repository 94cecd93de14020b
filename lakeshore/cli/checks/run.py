"""Runs checks side by side, each in a thread of its own, so that one that hangs costs its time limit and no more.

What a check saw before it hung is kept. A thread that hangs in the kernel cannot be ended: it is left behind, and ends
with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

from .finding import Asked, Check, Finding, failure


class _Running:
    def __init__(self, name: str, check: Check, asked: Asked) -> None:
        self.name = name
        self.found: list[Finding] = []
        self.done = threading.Event()
        self._check, self._asked = check, asked
        threading.Thread(target=self._run, name=f"check {name}", daemon=True).start()

    def _run(self) -> None:
        try:
            for finding in self._check(self._asked):
                self.found.append(finding)
        except Exception as error:  # noqa: BLE001  (a check that fails is a line like any other)
            self.found.append(
                failure(
                    self.name,
                    f"could not be checked: {type(error).__name__}: {error}",
                    "the lines above it are as they were seen; this is a defect of `lakeshore doctor` worth reporting",
                )
            )
        finally:
            self.done.set()


def run(checks: Mapping[str, Check], asked: Asked) -> Iterator[Finding]:
    """The findings of all checks, in their order, after at most `asked.limit_s`."""
    deadline = time.monotonic() + asked.limit_s
    started = [_Running(name, check, asked) for name, check in checks.items()]
    for running in started:
        in_time = running.done.wait(max(0.0, deadline - time.monotonic()))
        yield from list(running.found)
        if not in_time:
            yield failure(
                running.name,
                f"no answer within {asked.limit_s:g} s",
                "something hangs: a server that accepts and does not answer, a name server, or a disk; "
                "--timeout gives it longer",
            )
