"""The attendant: a process of the keeper that begins a job elsewhere, follows it, and ends when it has ended.

    standard input   what to do, as JSON: {"kind", "here", "workdir", …}; the file is removed once it is read
    standard output  what the job prints, and standard error likewise, as far as it can be had
    exit status      the job's own; without one 1
    error.json       written where the job left none and the elsewhere knows why it failed

TERM means: end the job there, then leave. A second one changes nothing; the keeper's KILL comes after its grace, and
what was left elsewhere then is swept by the runner. It imports the standard library alone, for it is started with
nothing else on its path. Reference: nymph/daemons.md, "Runners".
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from . import docker, kube, slurm
from .elsewhere import Elsewhere, Unable, warn

KINDS: Mapping[str, Callable[[Mapping[str, Any]], Elsewhere]] = {
    "docker": docker.Container,
    "slurm": slurm.Batch,
    "kube": kube.Pod,
}
TERMINATED = 128 + signal.SIGTERM


def main() -> int:
    """Attend one job."""
    told = json.load(sys.stdin)
    os.unlink(told["here"])
    job = KINDS[told["kind"]](told)
    asked: list[int] = []

    def terminated(number: int, _frame: object) -> None:
        asked.append(number)
        if len(asked) == 1:
            job.stop()

    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGINT, terminated)
    try:
        if asked:
            return TERMINATED
        return job.run()
    except Unable as error:
        warn(str(error))
        job.explain(error.kind, str(error))
        return 1
