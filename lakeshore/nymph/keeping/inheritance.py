"""What an earlier keeper of a directory left: jobs that ended and are not forgotten, and jobs that it did not end."""

from __future__ import annotations

import os
import time

from . import processes
from .guard import GUARD_GRACE_S
from .job import Job, read_record, remove
from .protocol import EXIT, JOBS

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .ledger import Ledger


def inherited(directory: str, ledger: Ledger, boot: str) -> Iterator[Job]:
    """Jobs in the phases "ended" and "stopping". What was never recorded is removed."""
    begun = ledger.records()
    for name in sorted({*os.listdir(JOBS), *begun}):
        place = os.path.join(directory, JOBS, name)
        record = begun.get(name)
        if record is None:
            remove(place)  # it never began
            continue
        job = Job(name, place)
        job.claim, job.pid, job.start = record.get("claim"), int(record.get("pid") or 0), str(record.get("start", ""))
        job.nest = bool(record.get("nest"))
        told = read_record(os.path.join(place, EXIT))
        if told is not None:
            job.phase, job.exit = "ended", told
        else:
            here = record.get("boot") == boot
            job.inherited, job.cancelled_by, job.status = True, "keeper", 0
            job.error = "its keeper was killed" if here else "the machine was started afresh"
            job.phase, job.kill_at = "stopping", time.monotonic() + GUARD_GRACE_S
            leader = processes.look(job.pid) if here and job.pid else None
            if leader is None or leader.start != job.start:
                job.pid = 0  # that number is nobody's, or another's
        yield job
