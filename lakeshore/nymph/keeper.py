"""The keeper: the parent of every job of one daemon. It spawns, reaps and records, and runs no user code.

Rules (DESIGN, "The daemon and its jobs"): it outlives its daemon's kill -9 and its update; a daemon that comes back
finds its jobs here. One daemon at a time: a second one is refused while the first is connected. A daemon that does not
come back within `orphan_s` would have lost its leases: its jobs are ended and the keeper ends. With nothing to keep it
ends at once. When the keeper itself dies, its guard (the parent of it, which does nothing else) ends all that ran below
it; when both are killed, the next keeper of the directory ends and records what they left.

One thread, plain Python, few imports: it starts in tens of milliseconds and stays small. What is said over its socket
is in `keeping/protocol.py`, the life of a job in `keeping/job.py`.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import socket
import sys
import time

from lakeshore._deaths import MemoryKills

from .keeping import processes
from .keeping.guard import GUARD_GRACE_S, guard, leave_terminal
from .keeping.job import LEFTOVERS_GRACE_S, PATIENCE_S, Job, NotBegun, read_record, remove
from .keeping.ledger import Ledger
from .keeping.place import hold, is_ours, listen, unlink
from .keeping.protocol import (
    EXIT,
    JOBS,
    LEDGER,
    LOCK,
    MARK,
    SOCKET,
    VERSION,
    BadMessage,
    Decoder,
    encode,
    is_id,
    private_directory,
)

TYPE_CHECKING = False  # as in `keeping/protocol.py`
if TYPE_CHECKING:
    from typing import Any

ORPHAN_S = 30.0
"""How long jobs go on without a daemon: with the grace well below a lease (60 s), less what was used of it."""
FIRST_S = 10.0
"""How long a keeper that was just started waits for its daemon."""
TICK_S = 0.025
LOOK_S = 0.5
"""Between two looks at how much the jobs have written."""
TAKEN = 3


class Peer:
    """A connection: what it said so far and what it has not read yet."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.decoder = Decoder()
        self.out = bytearray()
        self.greeted = False
        self.leaving = False
        """Closed once it has read what was said to it."""


class Keeper:
    """The loop. `directory` is the working directory of the process, so that no path is too long for a socket."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._jobs: dict[str, Job] = {}
        self._by_pid: dict[int, Job] = {}
        self._held: list[tuple[Job, Peer, Any]] = []
        """At their gates, and who asked for them."""
        self._ledger = Ledger(LEDGER)
        self._helpers: set[int] = set()
        self._strays: dict[int, frozenset[str]] = {}
        """Processes whose job is not known, by pid: the jobs that may have left them."""
        self._boot = processes.boot_id()
        self._peers: dict[int, Peer] = {}
        self._daemon: Peer | None = None
        self._orphan_s = ORPHAN_S
        self._left_at: float | None = None
        self._started_at = _clock()
        self._look_at = 0.0
        self._memory = MemoryKills(os.getpid())
        self._ending = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._poll = select.poll()
        self._woken, waker = os.pipe()
        for fd in (self._woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, self._asked_to_end)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._poll.register(self._woken, select.POLLIN)

    def _asked_to_end(self, _number: int, _frame: Any) -> None:
        self._ending = True

    # --- the loop

    def open(self) -> None:
        """Take over what an earlier keeper left, then listen."""
        self._take_over()
        listen(self._listener)
        self._poll.register(self._listener, select.POLLIN)

    def run(self) -> None:
        """Until nothing is left to keep and nobody is there."""
        while not self._done():
            events = self._poll.poll(self._sleep_ms())
            self._hear(events)
            self._begin()
            self._reap()
            self._attend()
            self._speak()
        self._listener.close()
        unlink(SOCKET)

    def _running(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.phase != "ended"]

    def _done(self) -> bool:
        if self._running():
            return False
        if self._ending:
            return not any(peer.out for peer in self._peers.values())
        return not self._peers and (self._left_at is not None or _clock() >= self._started_at + FIRST_S)

    def _deserted_s(self) -> float | None:
        """How long no daemon has been here beyond what is allowed, negative before; None while one is here."""
        if self._daemon is not None:
            return None
        since = self._started_at + FIRST_S if self._left_at is None else self._left_at + self._orphan_s
        return _clock() - since

    def _sleep_ms(self) -> float | None:
        """Until the next deadline; None when there is none."""
        running = self._running()
        if any(job.phase != "running" or job.status is not None for job in running) or self._ending:
            return TICK_S * 1000
        now = time.monotonic()
        due = [job.timeout_at - now for job in running if job.timeout_at is not None]
        clock = _clock()
        due += [job.lease_until - clock for job in running if job.lease_until is not None]
        if running:
            due.append(self._look_at - now)
        deserted_s = self._deserted_s()
        if deserted_s is not None:
            due.append(-deserted_s)
        return max(0.0, min(due)) * 1000 + 1 if due else None

    def _attend(self) -> None:
        """What is due: deadlines, signals, endings."""
        now, clock = time.monotonic(), _clock()
        running = self._running()
        deserted = (self._deserted_s() or -1.0) >= 0
        for job in running:
            if job.phase == "running" and job.status is None:
                if job.timeout_at is not None and now >= job.timeout_at:
                    job.timed_out = True
                    job.stop(None, now)
                elif job.lease_until is not None and clock >= job.lease_until:
                    job.stop("lease", now)
                elif deserted or self._ending:
                    job.stop("daemon gone" if deserted else "shutdown", now)
                if job.phase == "stopping":
                    self._signal(job, signal.SIGTERM)
        if running and now >= self._look_at:
            self._look_at = now + LOOK_S
            self._memory.look()
            for job in running:
                job.shorten()
        self._finish(running, now)

    def _finish(self, running: list[Job], now: float) -> None:
        everything: dict[int, processes.Process] | None = None
        for job in running:
            if job.phase == "running" and job.status is None:
                continue
            if job.status is None and now < job.kill_at:
                continue
            if job.status is not None and not job.inherited and not self._left_anything(job):
                self._conclude(job)
                continue
            everything = processes.table() if everything is None else everything
            members = self._members(job, everything)
            if job.status is not None and not members:
                self._conclude(job)
            elif job.phase == "running":
                job.phase, job.kill_at = "stopping", now + min(job.grace_s, LEFTOVERS_GRACE_S)
                self._signal(job, signal.SIGTERM, members)
            elif now >= job.kill_at + PATIENCE_S and job.phase == "killing":
                job.error = f"still there after KILL: {', '.join(map(str, sorted(members)))}"
                self._conclude(job)
            elif now >= job.kill_at:
                job.phase = "killing"
                self._signal(job, signal.SIGKILL, members)

    def _conclude(self, job: Job) -> None:
        self._by_pid.pop(job.pid, None)
        told = job.ended()
        self._strays = {pid: jobs for pid, jobs in self._strays.items() if os.path.exists(f"/proc/{pid}")}
        if self._daemon is not None:
            self._say(self._daemon, {"event": "exit", "id": job.id, "claim": job.claim, "exit": told})

    # --- processes

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._helpers.discard(pid)
            self._strays.pop(pid, None)
            job = self._by_pid.get(pid)
            if job is not None:
                job.reaped(status)

    def _left_anything(self, job: Job) -> bool:
        """A cheap look, for nearly every job ends whole: its group, and children of ours that are no job's program."""
        if job.pid and processes.group_lives(job.pid):
            return True
        orphans = processes.children()
        return orphans is None or any(pid not in self._by_pid and pid not in self._helpers for pid in orphans)

    def _members(self, job: Job, everything: dict[int, processes.Process]) -> set[int]:
        """What of a job still runs."""
        if not everything:  # a system that does not tell
            return {job.pid} if processes.group_lives(job.pid) else set()
        me = os.getpid()
        own = set()
        if job.pid:
            own = {p.pid for p in everything.values() if job.pid in (p.session, p.group, p.pid) and p.pid != me}
        for process in everything.values():
            if process.pid in own or process.pid == me:
                continue
            orphan = process.parent == me and process.pid not in self._by_pid and process.pid not in self._helpers
            if job.inherited:
                if processes.variable(process.pid, MARK) == job.directory:
                    own.add(process.pid)
            elif orphan and self._is_of(job, process):
                own.add(process.pid)
        return processes.below(own, everything)

    def _is_of(self, job: Job, process: processes.Process) -> bool:
        """Whose an orphan is: its session's, its group's, the one in its environment; else of the last that may be."""
        if process.session in self._by_pid or process.group in self._by_pid:
            return False
        mark = processes.variable(process.pid, MARK)
        if mark is not None and mark.startswith(self._directory):
            return mark == job.directory
        suspects = self._strays.get(process.pid)
        if suspects is None:
            suspects = frozenset(other.id for other in self._running())
            self._strays[process.pid] = suspects
        others = (self._jobs.get(id_) for id_ in suspects if id_ != job.id)
        return all(other is None or other.phase == "ended" for other in others)

    def _signal(self, job: Job, number: int, members: set[int] | None = None) -> None:
        everything = processes.table() if members is None else {}
        members = self._members(job, everything) if members is None else members
        groups = [job.pid] if job.pid and processes.group_lives(job.pid) else []
        grouped = {pid for pid in members if groups and _group(pid) == job.pid}
        helper = processes.send(number, groups=groups, pids=members - grouped)
        if helper is not None:
            self._helpers.add(helper)

    # --- what an earlier keeper left

    def _take_over(self) -> None:
        begun = self._ledger.records()
        for name in sorted({*os.listdir(JOBS), *begun}):
            directory = os.path.join(self._directory, JOBS, name)
            record = begun.get(name)
            if record is None:
                remove(directory)  # it never began
                continue
            job = Job(name, directory)
            job.claim, job.pid, job.start = record.get("claim"), int(record["pid"]), str(record.get("start", ""))
            self._jobs[name] = job
            told = read_record(os.path.join(directory, EXIT))
            if told is not None:
                job.phase, job.exit = "ended", told
                continue
            job.inherited, job.cancelled_by, job.status = True, "keeper", 0
            here = record.get("boot") == self._boot
            job.error = "its keeper was killed" if here else "the machine was started afresh"
            job.phase, job.kill_at = "stopping", time.monotonic() + GUARD_GRACE_S
            everything = processes.table()
            leader = everything.get(job.pid)
            if not here or (leader is not None and leader.start != job.start):
                job.pid = 0  # that number is now another's
            members = self._members(job, everything) if here else set()
            if members:
                self._signal(job, signal.SIGTERM, members)
            else:
                self._conclude(job)

    # --- the socket

    def _hear(self, events: list[tuple[int, int]]) -> None:
        fresh = False
        for fd, _event in events:
            if fd == self._woken:
                try:
                    os.read(fd, 4096)
                except BlockingIOError:
                    continue
            elif fd == self._listener.fileno():
                fresh = True
            elif fd in self._peers:
                self._listen_to(self._peers[fd])
        if fresh:  # after the others: a daemon that has just died must not keep its successor out
            self._welcome()

    def _welcome(self) -> None:
        while True:
            try:
                line, _address = self._listener.accept()
            except OSError:
                return
            if not is_ours(line):
                line.close()
                continue
            line.setblocking(False)
            self._peers[line.fileno()] = Peer(line)
            self._poll.register(line, select.POLLIN)

    def _listen_to(self, peer: Peer) -> None:
        try:
            data = peer.line.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
            return
        try:
            for message in peer.decoder.feed(data):
                self._obey(peer, message)
        except BadMessage as error:
            self._say(peer, {"error": str(error)})
            peer.leaving = True

    def _drop(self, peer: Peer) -> None:
        self._poll.unregister(peer.line)
        self._peers.pop(peer.line.fileno(), None)
        peer.line.close()
        if peer is self._daemon:
            self._daemon = None
            self._left_at = _clock()

    def _say(self, peer: Peer, message: dict[str, Any]) -> None:
        peer.out += encode(message)

    def _speak(self) -> None:
        for peer in list(self._peers.values()):
            while peer.out:
                try:
                    sent = peer.line.send(peer.out)
                except BlockingIOError:
                    break
                except OSError:
                    self._drop(peer)
                    break
                del peer.out[:sent]
            else:
                if peer.leaving:
                    self._drop(peer)
                    continue
            if peer.line.fileno() >= 0:
                self._poll.modify(peer.line, select.POLLIN | (select.POLLOUT if peer.out else 0))

    def _obey(self, peer: Peer, message: dict[str, Any]) -> None:
        verb = getattr(self, f"_do_{message.get('do')}", None)
        if verb is None:
            answer: dict[str, Any] = {"error": f"the keeper (version {VERSION}) does not know {message.get('do')!r}"}
        elif peer is not self._daemon and message.get("do") != "hello":
            answer = {"error": "say hello first"}
        else:
            try:
                answer = verb(peer, message) or {}
                if message["do"] == "spawn":
                    return  # answered when it is on disk
            except NotBegun as error:
                answer = {"error": str(error), "kind": "not begun"}
            except (KeyError, TypeError, ValueError) as error:
                answer = {"error": f"{message.get('do')}: {error!r}", "kind": "usage"}
        self._say(peer, {**answer, "re": message.get("n")})

    # --- verbs

    def _do_hello(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        if self._daemon is not None and self._daemon is not peer:
            peer.leaving = True
            return {"error": f"another daemon uses {self._directory}", "kind": "taken"}
        self._daemon = peer
        self._orphan_s = float(message.get("orphan_s") or ORPHAN_S)
        jobs = [job.told() for job in self._jobs.values()]
        return {"version": VERSION, "pid": os.getpid(), "boot": self._boot, "jobs": jobs}

    def _do_spawn(self, peer: Peer, message: dict[str, Any]) -> None:
        id_ = message["id"]
        if not is_id(id_):
            raise NotBegun(f"{id_!r} cannot name a job: letters, digits, '-', '_' and '.', at most 128")
        if id_ in self._jobs:
            raise NotBegun(f"job {id_} is here already")
        if self._ending:
            raise NotBegun("the keeper is ending")
        directory = os.path.join(self._directory, JOBS, id_)
        job = Job(id_, directory)
        try:
            os.mkdir(directory, 0o700)
        except OSError as error:
            raise NotBegun(f"the job cannot be begun: {error}") from None
        try:
            if time.monotonic() >= self._look_at:
                self._memory.look()
            job.hold(message, self._boot, self._memory)
        except BaseException:
            remove(directory)
            raise
        self._renew(job, message.get("lease_s"))
        self._jobs[id_] = self._by_pid[job.pid] = job
        self._held.append((job, peer, message.get("n")))

    def _begin(self) -> None:
        """All that were asked for in this round: one sync, then their gates."""
        if not self._held:
            return
        held, self._held = self._held, []
        try:
            self._ledger.add([job.record for job, _peer, _n in held])
            failed = None
        except OSError as error:
            failed = f"the job cannot be begun: {error}"
        for job, peer, n in held:
            try:
                job.release(time.monotonic(), failed)
                answer = job.told()
            except NotBegun as error:
                del self._jobs[job.id], self._by_pid[job.pid]
                self._ledger.forget(job.id)
                remove(job.directory)
                answer = {"error": str(error), "kind": "not begun"}
            self._say(peer, {**answer, "re": n})

    def _do_list(self, _peer: Peer, _message: dict[str, Any]) -> dict[str, Any]:
        return {"jobs": [job.told() for job in self._jobs.values()]}

    def _do_stop(self, _peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        job = self._jobs.get(message["id"])
        if job is None:
            return {"error": f"no job {message['id']}", "kind": "unknown"}
        was = job.phase
        job.stop(str(message.get("why") or "cancel"), time.monotonic(), message.get("grace_s"))
        if was == "running" and job.phase == "stopping":
            self._signal(job, signal.SIGTERM)
        return job.told()

    def _do_renew(self, _peer: Peer, message: dict[str, Any]) -> None:
        """These jobs' leases (all that run when none is named) last for so long from now."""
        for id_ in message.get("ids") or list(self._jobs):
            if id_ in self._jobs:
                self._renew(self._jobs[id_], message["lease_s"])

    def _renew(self, job: Job, lease_s: float | None) -> None:
        job.lease_until = None if lease_s is None else _clock() + float(lease_s)

    def _do_forget(self, _peer: Peer, message: dict[str, Any]) -> dict[str, Any] | None:
        job = self._jobs.get(message["id"])
        if job is None:
            return None
        if job.phase != "ended":
            return {"error": f"job {job.id} still runs", "kind": "running"}
        self._ledger.forget(job.id)
        remove(job.directory)
        del self._jobs[job.id]
        return None

    def _do_end(self, _peer: Peer, _message: dict[str, Any]) -> None:
        """End every job, then this process."""
        self._ending = True


def _clock() -> float:
    """Seconds on a clock that counts suspend: for leases, which go on while a lid is closed."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _keep(directory: str, ready: int) -> None:
    """The keeper's life."""
    processes.end_with_parent(signal.SIGTERM)
    processes.adopt_orphans()
    try:
        _lock = hold(LOCK)
    except BlockingIOError:
        os.write(ready, b"taken")
        os._exit(TAKEN)
    keeper = Keeper(directory)
    keeper.open()
    gc.freeze()  # a fork copies what is touched
    os.write(ready, b"ready")
    os.close(ready)
    keeper.run()


def main(directory: str) -> int:
    """Start guard and keeper of a directory; return when the keeper listens: 0, or 3 when one lives there already."""
    private_directory(directory)
    directory = os.path.realpath(directory)
    os.chdir(directory)
    os.umask(0o077)
    os.makedirs(JOBS, mode=0o700, exist_ok=True)
    heard, ready = os.pipe()
    if os.fork():
        os.close(ready)
        told = os.read(heard, 16)
        return {b"ready": 0, b"taken": TAKEN}.get(told, 1)
    code = 1
    try:
        os.close(heard)
        os.setsid()
        leave_terminal()
        processes.adopt_orphans()
        keeper = os.fork()
        if keeper:
            os.close(ready)
            guard(keeper)
        else:
            _keep(directory, ready)
        code = 0
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            os.write(ready, b"full")
        _complain()
    except BaseException:  # noqa: BLE001  (a copy of the starter: it ends here whatever happens)
        _complain()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _complain() -> None:
    import traceback  # wall: it costs more than the rest of this module

    traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
