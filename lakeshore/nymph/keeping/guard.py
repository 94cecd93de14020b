"""The guard: the parent of a keeper, and nothing else. When the keeper ends, so does all that ran below it."""

from __future__ import annotations

import os
import signal
import time

from . import processes
from .job import PATIENCE_S, read_record
from .ledger import Ledger
from .protocol import EXIT, JOBS, LEDGER, LOG

GUARD_GRACE_S = 2.0
"""What jobs get between TERM and KILL when their keeper was killed."""
TICK_S = 0.025
LOG_MAX = 1 << 20


def guard(keeper: int) -> None:
    """The guard's life: when the keeper ends, so does all that ran below it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.waitpid(-1, 0)[0] != keeper:
        continue
    number, until = signal.SIGTERM, time.monotonic() + GUARD_GRACE_S
    asked: set[int] = set()
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        everything = processes.table()
        if not everything:
            _end_groups()
            return
        left = processes.below([os.getpid()], everything) - {os.getpid()}
        if time.monotonic() >= until:
            number = signal.SIGKILL
        if time.monotonic() >= until + PATIENCE_S:
            return
        processes.send(number, pids=left if number == signal.SIGKILL else left - asked)
        asked |= left
        time.sleep(TICK_S)


def _end_groups() -> None:
    """The guard's work on a system that does not tell what runs below it: the recorded groups that did not end."""
    begun = Ledger.read(LEDGER)
    groups = [int(record.get("pid") or 0) for id_, record in begun.items() if read_record(_exit_of(id_)) is None]
    groups = [group for group in groups if group]
    processes.send(signal.SIGTERM, groups=groups)
    until = time.monotonic() + GUARD_GRACE_S
    while time.monotonic() < until and any(processes.group_lives(group) for group in groups):
        time.sleep(TICK_S)
    processes.send(signal.SIGKILL, groups=groups)


def _exit_of(name: str) -> str:
    return os.path.join(JOBS, name, EXIT)


def leave_terminal() -> None:
    """Nothing is read or printed from here on but what goes wrong, into the log."""
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(log).st_size > LOG_MAX:
        os.ftruncate(log, 0)
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for target, fd in enumerate((nowhere, log, log)):
        os.dup2(fd, target)
    for fd in (log, nowhere):
        os.close(fd)
