"""One job of the keeper: from the record that is on disk before it begins to the record of its end.

The order of its life:

1. its record (id, claim, boot) is synced, in the ledger, with those of all jobs that are begun in the same moment
2. `job.json`, the same record, is written, and its files are opened
3. it is spawned, in a session of its own: never unrecorded. Its pid and its start follow, into both records
4. the program ends, or is asked to: TERM, the grace, KILL, for its session, its group, what descends from them and what
   left them (known by `MARK` in its environment). What a program leaves running when it ends is ended the same way
5. nothing of it runs any more: `exit.json` appears, whole: {code, signal, oom, timed_out, cancelled_by}, and `error`
   (why it never began, or what could not be ended) where there is something to say
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time

from lakeshore._deaths import MemoryKills, signal_name

from . import processes, spawning
from .protocol import EXIT, JOB, MARK, STDERR, STDOUT
from .shelf import NEW_EXIT, Shelf

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from typing import Any

    from .nests import Spare

GRACE_S = 5.0
LEFTOVERS_GRACE_S = 1.0
"""For what still runs when its program has ended."""
PATIENCE_S = 10.0
"""After KILL: a process that hangs in the kernel is reported, not waited for."""
OUTPUT_MAX = 64 << 20
"""How much of each output file stays readable, in bytes; of a flood the head is given back to the disk."""
_OOM_CODE = 128 + signal.SIGKILL  # a shell's, whose program was killed


class NotBegun(Exception):
    """The job could not be begun, and nothing of it is left."""


class Job:
    """`phase`: running → (stopping → killing) → ended."""

    __slots__ = (
        "cancelled_by",
        "claim",
        "directory",
        "dropped",
        "error",
        "exit",
        "grace_s",
        "id",
        "inherited",
        "kill_at",
        "kills_before",
        "lease_until",
        "memory",
        "nest",
        "order",
        "output_keep",
        "output_max",
        "phase",
        "pid",
        "record",
        "spare",
        "start",
        "status",
        "timed_out",
        "timeout_at",
        "timeout_s",
    )

    def __init__(self, id_: str, directory: str) -> None:
        self.id, self.directory = id_, directory
        self.claim: Any = None
        self.phase = "running"
        self.pid, self.start = 0, ""
        self.status: int | None = None  # of waitpid, once it was reaped
        self.exit: dict[str, Any] | None = None
        self.order: dict[str, Any] = {}
        self.record: dict[str, Any] = {}
        """What the ledger holds of it."""
        self.timeout_s: float | None = None
        self.timeout_at: float | None = None
        self.lease_until: float | None = None
        self.kill_at = 0.0
        self.grace_s = GRACE_S
        self.timed_out = False
        self.cancelled_by: str | None = None
        self.error: str | None = None
        self.nest = False  # it only keeps spares (`nests.py`)
        self.spare: Spare | None = None  # who becomes it
        self.inherited = False  # it was another keeper's, which was killed: not our child
        self.memory: MemoryKills | None = None
        self.kills_before: int | None = None
        self.output_max, self.output_keep = OUTPUT_MAX, 0
        self.dropped = {STDOUT: 0, STDERR: 0}

    # --- beginning

    def take(self, order: dict[str, Any], boot: str) -> None:
        """Read what is wanted. NotBegun, or what Python raises, for an order that is none."""
        if not order["argv"]:
            raise NotBegun("argv is empty")
        order["argv"] = [str(word) for word in order["argv"]]
        self.nest = bool(order.get("nest"))
        order["env"] = {**(order.get("env") or {}), **({} if self.nest else {MARK: self.directory})}
        self.order = order
        self.claim = order.get("claim")
        self.grace_s = float(order.get("grace_s", GRACE_S))
        timeout_s = order.get("timeout_s")
        self.timeout_s = None if timeout_s is None else float(timeout_s)
        self.output_keep = int(order.get("output_keep", 0))
        self.output_max = max(int(order.get("output_max", OUTPUT_MAX)), 4 * self.output_keep)
        self.record = {"id": self.id, "claim": self.claim, "boot": boot, "began_at": time.time()}
        if self.nest:
            self.record["nest"] = True

    def begin(self, memory: MemoryKills, home: int, shelf: Shelf) -> dict[str, Any]:
        """Steps 2 and 3, when step 1 is done; what is known now for its record. When there is no such program, it has
        ended. NotBegun when it cannot be; then nothing of it is left. `memory` counts for this process, and so for its
        children; `home` is the keeper's directory.
        """
        if self.phase != "running":
            raise NotBegun("it was stopped before it began")
        files: list[int] = []
        try:
            if not shelf.take(self.directory):
                os.mkdir(self.directory, 0o700)
            record = _opened(f"{self.directory}/{JOB}")
            files.append(record)
            text = json.dumps(self.record).encode("ascii")
            _overwrite(record, text)
            files.append(os.open(self.order.get("stdin") or os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            for name in (STDOUT, STDERR):
                if name == STDERR and self.order.get("merge"):
                    files.append(files[-1])
                else:
                    files.append(_opened(f"{self.directory}/{name}", os.O_APPEND))
            self.memory, self.kills_before = memory, memory.seen
            try:
                self.pid = self._spawned(files[1:], home)
            except spawning.NoProgram as error:
                self.error = str(error)
                return {}
            found = processes.look(self.pid)
            self.start = found.start if found is not None else ""
            _add(record, len(text) - 1, f', "pid": {self.pid}, "start": "{self.start}"}}')
        except OSError as error:
            remove(self.directory)
            raise NotBegun(f"the job cannot be begun: {error}") from None
        finally:
            for fd in set(files):
                os.close(fd)
            self.order = {}
        _offer_first(self.pid)
        return {"id": self.id, "pid": self.pid, "start": self.start}

    def _spawned(self, files: list[int], home: int) -> int:
        if self.spare is not None:
            return self.spare.become(self.order, files)
        return spawning.spawn(
            self.order["argv"],
            self.order["env"],
            cwd=self.order.get("cwd") or "/",
            umask=int(self.order.get("umask", 0o022)),
            files=files,
            home=home,
        )

    # --- ending

    def stop(self, why: str | None, now: float, grace_s: float | None = None) -> None:
        """Ask it to end, the whole of it. The first reason stays; a shorter grace than before is heard."""
        if self.phase == "ended":
            return
        grace_s = self.grace_s if grace_s is None else grace_s
        if self.phase == "running":
            if self.status is None:
                self.cancelled_by = why
            self.phase, self.kill_at = "stopping", now + grace_s
        elif self.phase == "stopping":
            self.kill_at = min(self.kill_at, now + grace_s)

    def ended(self) -> dict[str, Any]:
        """Step 5: what `exit.json` now holds."""
        code = number = None
        if self.status is not None and self.error is None:
            if os.WIFSIGNALED(self.status):
                number = os.WTERMSIG(self.status)
            else:
                code = os.WEXITSTATUS(self.status)
        oom: bool | None = False
        if (number == signal.SIGKILL and self.phase != "killing") or code == _OOM_CODE:
            oom = self.memory.told_since(self.kills_before) if self.memory is not None else None
        self.exit = {
            "code": code,
            "signal": None if number is None else signal_name(number),
            "oom": oom,
            "timed_out": self.timed_out,
            "cancelled_by": self.cancelled_by,
        }
        if self.error is not None:
            self.exit["error"] = self.error
        self.phase = "ended"
        new = f"{self.directory}/{NEW_EXIT}"
        try:
            fd = _opened(new)
            try:
                _overwrite(fd, json.dumps(self.exit).encode("ascii"))
            finally:
                os.close(fd)
            os.replace(new, f"{self.directory}/{EXIT}")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOENT, errno.EROFS):
                raise  # a full disk must not cost the others their keeper: the daemon is told by message
            self.exit["unrecorded"] = str(error)
        return self.exit

    def shorten(self) -> bool:
        """Give the disk back what a flood has written: all but its last half of `output_max`, and its `output_keep`.
        False when the disk cannot drop it.
        """
        for name, dropped in self.dropped.items():
            path = f"{self.directory}/{name}"
            try:
                size = os.lstat(path).st_size
            except OSError:
                continue
            if size - dropped > self.output_max:
                upto = (size - self.output_max // 2) & ~0xFFF
                if processes.drop(path, -(-self.output_keep // 4096) * 4096, upto):
                    self.dropped[name] = upto
                elif self.phase == "running":
                    self.error = f"{name} grew above {self.output_max} bytes on a disk that cannot drop its head"
                    return False
        return True

    def told(self) -> dict[str, Any]:
        """How it stands, for the daemon."""
        return {
            "id": self.id,
            "claim": self.claim,
            "pid": self.pid,
            "start": self.start,
            "phase": self.phase,
            "directory": self.directory,
            "exit": self.exit,
        }


def remove(directory: str) -> None:
    """A job's directory, in which there are only files. What cannot be removed stays."""
    for name in (STDOUT, STDERR, JOB, EXIT):
        try:  # noqa: SIM105  (see `place.unlink`)
            os.unlink(f"{directory}/{name}")
        except OSError:
            pass
    try:
        os.rmdir(directory)
    except OSError:
        _remove_the_rest(directory)


def _remove_the_rest(directory: str) -> None:
    try:
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        os.rmdir(directory)
    except OSError:
        return


def read_record(path: str) -> dict[str, Any] | None:
    """What a record holds; None when it is not there or not whole."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _opened(path: str, flags: int = 0) -> int:
    """A new file of ours, or one that was used before."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)


def _overwrite(fd: int, text: bytes) -> None:
    """In place: a file that is emptied first is written to the disk at once by some file systems."""
    os.write(fd, text)
    os.ftruncate(fd, len(text))


def _add(record: int, at: int, text: str) -> None:
    """What is known once it runs. On a full disk it stays in the ledger's memory."""
    try:  # noqa: SIM105  (see `place.unlink`)
        os.pwrite(record, text.encode("ascii"), at)
    except OSError:
        pass


def _offer_first(pid: int) -> None:
    """When memory is short, the kernel takes a job before the daemon and its keeper."""
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b"300")
    except OSError:
        pass  # it is offered sooner already, and only root takes that back
    finally:
        os.close(fd)
