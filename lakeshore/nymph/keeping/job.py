"""One job of the keeper: from the record that is on disk before it begins to the record of its end.

The order of its life:

1. a child is forked; in a session of its own it waits at a gate
2. `job.json` (id, claim, pid, start, boot) is written; the same record, in the ledger, is synced to the disk
3. the gate opens and the child becomes the program. It never begins unrecorded; a keeper that dies before lets it end
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

from . import processes
from .protocol import EXIT, JOB, MARK, STDERR, STDOUT

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from typing import Any

GRACE_S = 5.0
LEFTOVERS_GRACE_S = 1.0
"""For what still runs when its program has ended."""
PATIENCE_S = 10.0
"""After KILL: a process that hangs in the kernel is reported, not waited for."""
OUTPUT_MAX = 64 << 20
"""How much of each output file stays readable, in bytes; of a flood the head is given back to the disk."""
_MOST_FILES = min(os.sysconf("SC_OPEN_MAX"), 1 << 16)
_OOM_CODE = 128 + signal.SIGKILL  # a shell's, whose program was killed
_RESET = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGCHLD")
    if hasattr(signal, name)
)


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
        "failure",
        "gate",
        "grace_s",
        "id",
        "inherited",
        "kill_at",
        "kills_before",
        "lease_until",
        "memory",
        "output_keep",
        "output_max",
        "phase",
        "pid",
        "record",
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
        self.record: dict[str, Any] = {}
        self.gate = -1
        self.timeout_s: float | None = None
        self.timeout_at: float | None = None
        self.lease_until: float | None = None
        self.kill_at = 0.0
        self.grace_s = GRACE_S
        self.timed_out = False
        self.cancelled_by: str | None = None
        self.error: str | None = None
        self.inherited = False  # it was another keeper's, which was killed: not our child
        self.failure = -1  # the pipe on which a child says why it did not become its program
        self.memory: MemoryKills | None = None
        self.kills_before: int | None = None
        self.output_max, self.output_keep = OUTPUT_MAX, 0
        self.dropped = {STDOUT: 0, STDERR: 0}

    # --- beginning

    def hold(self, order: dict[str, Any], boot: str, memory: MemoryKills) -> None:
        """Step 1. NotBegun when it cannot be. `memory` counts for this process, and so for its children."""
        argv = [str(word) for word in order["argv"]]
        self.claim = order.get("claim")
        self.grace_s = float(order.get("grace_s", GRACE_S))
        timeout_s = order.get("timeout_s")
        self.timeout_s = None if timeout_s is None else float(timeout_s)
        self.output_keep = int(order.get("output_keep", 0))
        self.output_max = max(int(order.get("output_max", OUTPUT_MAX)), 4 * self.output_keep)
        if not argv:
            raise NotBegun("argv is empty")
        env = {**order.get("env", {}), MARK: self.directory}
        gate_in, gate = os.pipe()
        failed_in, failed = os.pipe()
        files: list[int] = []
        try:
            files.append(os.open(order.get("stdin") or os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            for name in (STDOUT, STDERR):
                if name == STDERR and order.get("merge"):
                    files.append(files[-1])
                else:
                    files.append(os.open(os.path.join(self.directory, name), flags, 0o600))
            me = os.getpid()
            pid = os.fork()
            if pid == 0:
                _become(argv, env, order, files, gate_in, failed, me)
        except OSError as error:
            os.close(gate)
            os.close(failed_in)
            raise NotBegun(f"the job cannot be begun: {error}") from None
        finally:
            for fd in {gate_in, failed, *files}:
                os.close(fd)
        try:
            self.pid, self.failure, self.gate = pid, failed_in, gate
            found = processes.look(pid)
            self.start = found.start if found is not None else ""
            self.memory, self.kills_before = memory, memory.seen
            _offer_first(pid)
            self.record = {"id": self.id, "claim": self.claim, "pid": pid, "start": self.start, "boot": boot}
            self.record["began_at"] = time.time()
            with open(os.path.join(self.directory, JOB), "x", encoding="utf-8") as file:
                json.dump(self.record, file)
        except OSError as error:
            self.give_up()
            raise NotBegun(f"the job cannot be begun: {error}") from None

    def release(self, now: float, failed: str | None = None) -> None:
        """Step 3. NotBegun when the child has gone meanwhile, or the record was not synced (`failed` says why)."""
        if failed is not None:
            self.give_up()
            raise NotBegun(failed)
        gate, self.gate = self.gate, -1
        try:
            os.write(gate, b"!")
        except OSError as error:
            self.give_up()
            raise NotBegun(f"the job cannot be begun: {error}") from None
        finally:
            os.close(gate)
        if self.timeout_s is not None:
            self.timeout_at = now + self.timeout_s

    def give_up(self) -> None:
        """End the child, which still waits at the gate."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for fd in (self.failure, self.gate):
            if fd >= 0:
                os.close(fd)
        self.failure = self.gate = -1

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

    def reaped(self, status: int) -> None:
        """Its program has ended."""
        self.status = status
        if self.failure >= 0:
            told = os.read(self.failure, 4096)
            os.close(self.failure)
            self.failure = -1
            if told:
                self.error = told.decode(errors="replace")

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
        path = os.path.join(self.directory, EXIT)
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump(self.exit, file)
            os.replace(f"{path}.new", path)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOENT, errno.EROFS):
                raise  # a full disk must not cost the others their keeper: the daemon is told by message
            self.exit["unrecorded"] = str(error)
        return self.exit

    def shorten(self) -> None:
        """Give the disk back what a flood has written before the last half of `output_max`, but for `output_keep`."""
        for name, dropped in self.dropped.items():
            path = os.path.join(self.directory, name)
            try:
                size = os.lstat(path).st_size
            except OSError:
                continue
            if size - dropped > self.output_max:  # `output_keep` is a small part of it
                upto = (size - self.output_max // 2) & ~0xFFF
                if processes.drop(path, -(-self.output_keep // 4096) * 4096, upto):
                    self.dropped[name] = upto
                elif self.phase == "running":
                    self.error = f"{name} grew above {self.output_max} bytes on a disk that cannot drop its head"
                    self.stop("output", time.monotonic())

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
    try:
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
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


def _become(
    argv: list[str], env: dict[str, str], order: dict[str, Any], files: list[int], gate: int, failed: int, parent: int
) -> None:
    """The child: wait at the gate, then be the program. Never returns."""
    try:
        os.setsid()
        for number in _RESET:  # some stay ignored over an exec, and TERM must end it at the gate
            signal.signal(number, signal.SIG_DFL)
        processes.end_with_parent()
        for target, fd in enumerate(files):
            os.dup2(fd, target)
        low, high = sorted((gate, failed))  # others' gates must end with the keeper, not with this child
        for first, last in ((3, low), (low + 1, high), (high + 1, _MOST_FILES)):
            os.closerange(first, last)
        if os.getppid() != parent or os.read(gate, 1) != b"!":
            os._exit(125)
        what = f"the directory {order.get('cwd')}"
        os.chdir(order.get("cwd") or "/")
        os.umask(int(order.get("umask", 0o022)))
        what = argv[0]
        os.execvpe(argv[0], argv, env)  # noqa: S606  (the caller's program)
    except OSError as error:
        os.write(failed, f"{what}: {error.strerror}".encode(errors="replace"))
    except BaseException as error:  # noqa: BLE001  (whatever it is, this copy of the keeper ends here)
        os.write(failed, repr(error).encode(errors="replace"))
    finally:
        os._exit(127)


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
