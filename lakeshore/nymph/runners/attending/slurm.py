"""A batch job: `sbatch`, then `squeue` now and again, and `scancel` for TERM.

A job that has left the queue is judged by what it left: its exit status, its result. Its output is copied here as it
grows, where the cluster shares the working directory's file system.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import Any

from .elsewhere import ERROR, RESULT, Elsewhere, Tail, Unable, asked, nap, said, warn

SCRIPT, OUT, ERR, EXIT, ID = "job.sbatch", "slurm.out", "slurm.err", "slurm.exit", "slurm.id"
_SUBMITTED = re.compile(r"Submitted batch job (\d+)")
_GOOD = ("CD", "COMPLETED")
_BAD = {
    **dict.fromkeys(("F", "FAILED"), "failed"),
    **dict.fromkeys(("CA", "CANCELLED"), "was cancelled"),
    **dict.fromkeys(("TO", "TIMEOUT"), "reached its time limit (run_config.slurm.time)"),
    **dict.fromkeys(("OOM", "OUT_OF_MEMORY"), "ran out of memory (run_config.slurm.mem)"),
    **dict.fromkeys(("NF", "NODE_FAIL"), "lost its node"),
    **dict.fromkeys(("PR", "PREEMPTED"), "was preempted"),
    **dict.fromkeys(("BF", "BOOT_FAIL"), "got a node that did not boot"),
    **dict.fromkeys(("DL", "DEADLINE"), "reached its deadline"),
}
_FILES_S = 10.0
"""How long files may take to come from a node, seconds."""


class Batch(Elsewhere):
    """`script` is job.sbatch, `poll_s` the time between two looks at the queue."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(told)
        self._id = ""
        self._poll_s = float(told["poll_s"])
        sys.stdout.flush()
        self._tails = (Tail(self.workdir / OUT, 1), Tail(self.workdir / ERR, 2))

    def run(self) -> int:
        self._submit()
        if self.stopping:
            self._cancel()
        state = self._follow()
        for tail in self._tails:
            tail.copy()
        return self._status(state)

    def stop(self) -> None:
        self.stopping = True

    def _submit(self) -> None:
        (self.workdir / SCRIPT).write_text(self.told["script"])
        done = asked(["sbatch", SCRIPT], cwd=str(self.workdir))
        found = _SUBMITTED.search(done.stdout)
        if done.returncode != 0 or found is None:
            raise Unable("SlurmError", f"sbatch refused the job: {said(done)}")
        self._id = found[1]
        (self.workdir / ID).write_text(self._id)

    def _cancel(self) -> None:
        done = asked(["scancel", self._id])
        if done.returncode != 0:
            warn(f"scancel {self._id}: {said(done)}")

    def _follow(self) -> str:
        """Until it has left the queue or ended there; its last state, "" when none was seen."""
        cancelled, over_at = False, None
        due = time.monotonic()
        while True:
            if self.stopping and not cancelled:
                cancelled, due = True, time.monotonic()
                self._cancel()
            for tail in self._tails:
                tail.copy()
            if over_at is None and any(self.left(name) for name in (EXIT, RESULT, ERROR)):
                over_at = due = time.monotonic()  # it is ending: the queue will say so at once
            if time.monotonic() >= due:
                state = self._state()
                if state == "" or state in _GOOD or state in _BAD:
                    return state
                hurry = over_at is not None or cancelled
                due = time.monotonic() + (min(0.5, self._poll_s) if hurry else self._poll_s)
            nap(due)

    def _state(self) -> str:
        done = asked(["squeue", "-j", self._id, "-h", "-o", "%T"])
        if done.returncode != 0:
            if "Invalid job id" in done.stderr:
                return ""
            warn(f"squeue -j {self._id}: {said(done)}; trying again")
            return "UNKNOWN"
        words = done.stdout.split()
        return words[0] if words else ""

    def _status(self, state: str) -> int:
        if state in _BAD:
            self.explain("SlurmError", f"SLURM job {self._id} {_BAD[state]}")
            return self._exit_status() or 1
        deadline = time.monotonic() + (0 if self.stopping else _FILES_S)
        while (code := self._exit_status()) is None and time.monotonic() < deadline:
            nap(deadline)
        if code is None:
            self.explain("SlurmError", f"SLURM job {self._id} left the queue without a result; {self._why()}")
            return 0 if self.left(RESULT) else 1
        return code

    def _exit_status(self) -> int | None:
        try:
            return int((self.workdir / EXIT).read_text())
        except (OSError, ValueError):
            return None

    def _why(self) -> str:
        done = asked(["scontrol", "show", "job", "-o", self._id])
        found = dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)
        if done.returncode != 0 or "JobState" not in found:
            return "and the controller knows nothing of it any more"
        return f"its state is {found['JobState']}, exit code {found.get('ExitCode', 'unknown')}"
