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
import sys
import time
from collections import deque

from lakeshore._deaths import MemoryKills

from .keeping import processes, spawning
from .keeping.guard import guard, leave_terminal
from .keeping.inheritance import inherited
from .keeping.job import LEFTOVERS_GRACE_S, PATIENCE_S, Job, NotBegun, remove
from .keeping.kin import Kin
from .keeping.ledger import Ledger
from .keeping.nests import Nests
from .keeping.peers import Peer, Peers
from .keeping.place import hold
from .keeping.protocol import JOBS, LEDGER, LOCK, VERSION, is_id, private_directory
from .keeping.shelf import Shelf

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
AT_ONCE = 8
"""Jobs that are spawned before the keeper looks up: who waits for an end waits for no more than these."""
TAKEN = 3


class Keeper:
    """The loop. `directory` is the working directory of the process, so that no path is too long for a socket."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._home = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
        self._jobs: dict[str, Job] = {}
        """All that are not forgotten."""
        self._active: dict[str, Job] = {}
        """Those that have not ended."""
        self._restless: dict[str, Job] = {}
        """Of these, those whose program has ended, or that are being ended."""
        self._by_pid: dict[int, Job] = {}
        self._ordered: list[tuple[Job, Peer, Any]] = []
        """Not yet recorded, and who asked for them."""
        self._recorded: deque[tuple[Job, Peer, Any]] = deque()
        """Not yet begun."""
        self._ledger = Ledger(LEDGER)
        self._shelf = Shelf()
        self._boot = processes.boot_id()
        self._kin = Kin(directory, self._active, self._by_pid)
        self._nests = Nests()
        self._poll = select.poll()
        self._peers = Peers(self._poll)
        self._daemon: Peer | None = None
        self._orphan_s = ORPHAN_S
        self._left_at: float | None = None
        self._started_at = _clock()
        self._look_at = 0.0
        self._due = 0.0
        """No deadline of a job is before it."""
        self._memory = MemoryKills(os.getpid())
        self._ending: str | None = None
        """Why all that runs is ended: a daemon's word is its drain's; a signal is none of a job's doing."""
        self._woken, waker = os.pipe()
        for fd in (self._woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.signal(signal.SIGTERM, self._asked_to_end)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGIO):  # the last one is that of a lease
            signal.signal(number, signal.SIG_IGN)
        self._poll.register(self._woken, select.POLLIN)

    def _asked_to_end(self, _number: int, _frame: Any) -> None:
        self._ending = self._ending or "keeper"

    # --- the loop

    def open(self) -> None:
        """Take over what an earlier keeper left, then listen."""
        for job in inherited(self._directory, self._ledger, self._boot):
            self._jobs[job.id] = job
            if job.phase == "ended":
                if job.nest:
                    self._forget(job)
                continue
            self._active[job.id] = self._restless[job.id] = job
            members = self._kin.members(job, processes.table())
            if members:
                self._kin.signal(job, signal.SIGTERM, members)
            else:
                self._conclude(job)
        self._peers.open()

    def run(self) -> None:
        """Until nothing is left to keep and nobody is there."""
        while not self._done():
            self._hear([fd for fd, _event in self._poll.poll(self._sleep_ms())])
            self._record()
            self._begin()
            self._reap()
            self._attend()
            self._peers.speak()
            self._miss_daemon()
        self._peers.close()
        self._shelf.clear()

    def _done(self) -> bool:
        if self._active or self._ordered or self._recorded:
            return False
        if self._ending:
            return self._peers.silent()
        return not self._peers and (self._left_at is not None or _clock() >= self._started_at + FIRST_S)

    def _deserted_s(self) -> float | None:
        """How long no daemon has been here beyond what is allowed, negative before; None while one is here."""
        if self._daemon is not None:
            return None
        since = self._started_at + FIRST_S if self._left_at is None else self._left_at + self._orphan_s
        return _clock() - since

    def _sleep_ms(self) -> float | None:
        """Until the next deadline; None when there is none."""
        if self._recorded:
            return 0
        if self._restless or self._ending:
            return TICK_S * 1000
        due = [self._due - time.monotonic()] if self._active else []
        deserted_s = self._deserted_s()
        if deserted_s is not None:
            due.append(-deserted_s)
        return max(0.0, min(due)) * 1000 + 1 if due else None

    def _attend(self) -> None:
        """What is due: deadlines, signals, endings."""
        now = time.monotonic()
        deserted = (self._deserted_s() or -1.0) >= 0
        if self._active and (now >= self._due or deserted or self._ending is not None):
            looks = now >= self._look_at
            if looks:
                self._look_at = now + LOOK_S
                self._memory.look()
            self._due = self._look_at
            for job in list(self._active.values()):
                self._attend_to(job, now, "daemon gone" if deserted else self._ending)
                if looks and not job.shorten():
                    self._stop(job, "output", now)
        if self._restless:
            self._finish(list(self._restless.values()), now)

    def _attend_to(self, job: Job, now: float, why: str | None) -> None:
        if job.phase != "running" or job.status is not None:
            return
        clock = _clock()
        if job.timeout_at is not None and now >= job.timeout_at:
            job.timed_out = True
            self._stop(job, None, now)
        elif job.lease_until is not None and clock >= job.lease_until:
            self._stop(job, "lease", now)
        elif why is not None:
            self._stop(job, why, now)
        else:
            self._expect(job, now, clock)

    def _expect(self, job: Job, now: float, clock: float) -> None:
        """Its deadlines. That of a lease comes sooner when the host sleeps: hence the looks in between."""
        if job.timeout_at is not None:
            self._due = min(self._due, job.timeout_at)
        if job.lease_until is not None:
            self._due = min(self._due, now + job.lease_until - clock)

    def _stop(self, job: Job, why: str | None, now: float, grace_s: float | None = None) -> None:
        was = job.phase
        job.stop(why, now, grace_s)
        if was == "running" and job.id in self._active:
            self._restless[job.id] = job
            self._kin.signal(job, signal.SIGTERM)

    def _finish(self, jobs: list[Job], now: float) -> None:
        everything: dict[int, processes.Process] | None = None
        orphans: bool | None = None
        for job in jobs:
            if job.status is None and now < job.kill_at:
                continue
            if job.status is not None and not job.inherited:
                orphans = self._kin.orphans() if orphans is None else orphans
                if not orphans and not (job.pid and processes.group_lives(job.pid)):
                    self._conclude(job)
                    continue
            everything = processes.table() if everything is None else everything
            members = self._kin.members(job, everything)
            if job.status is not None and not members:
                self._conclude(job)
            elif job.phase == "running":
                job.phase, job.kill_at = "stopping", now + min(job.grace_s, LEFTOVERS_GRACE_S)
                self._kin.signal(job, signal.SIGTERM, members)
            elif now >= job.kill_at + PATIENCE_S and job.phase == "killing":
                job.error = f"still there after KILL: {', '.join(map(str, sorted(members)))}"
                self._conclude(job)
            elif now >= job.kill_at:
                job.phase = "killing"
                self._kin.signal(job, signal.SIGKILL, members)

    def _conclude(self, job: Job) -> None:
        self._by_pid.pop(job.pid, None)
        self._active.pop(job.id, None)
        self._restless.pop(job.id, None)
        told = job.ended()
        self._kin.look()
        if self._daemon is not None:
            self._daemon.say({"event": "exit", "id": job.id, "exit": told})
        if job.nest:
            self._forget(job)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._kin.reaped(pid)
            job = self._by_pid.get(pid)
            if job is not None:
                job.status = status
                self._restless[job.id] = job

    # --- beginning

    def _record(self) -> None:
        """All that were ordered in this round: one sync."""
        if not self._ordered:
            return
        ordered, self._ordered = self._ordered, []
        try:
            self._ledger.add([job.record for job, _peer, _n in ordered])
        except OSError as error:
            for job, peer, n in ordered:
                self._refuse(job, peer, n, f"the job cannot be begun: {error}")
        else:
            self._recorded.extend(ordered)

    def _begin(self) -> None:
        """Some of those that are recorded."""
        known = []
        for _ in range(min(AT_ONCE, len(self._recorded))):
            job, peer, n = self._recorded.popleft()
            try:
                known.append(job.begin(self._memory, self._home, self._shelf))
            except NotBegun as error:
                self._ledger.forget(job.id)
                self._refuse(job, peer, n, str(error))
                continue
            finally:
                if job.spare is not None:
                    job.spare.peer.leaving = True
            now = time.monotonic()
            self._active[job.id] = job
            if not job.pid:
                self._conclude(job)
            else:
                self._by_pid[job.pid] = job
                job.timeout_at = None if job.timeout_s is None else now + job.timeout_s
                self._expect(job, now, _clock())
            peer.say({**job.told(), "re": n})
        self._ledger.note([record for record in known if record])

    def _refuse(self, job: Job, peer: Peer, n: Any, why: str) -> None:
        del self._jobs[job.id]
        if job.spare is not None:
            job.spare.peer.leaving = True
        peer.say({"error": why, "kind": "not begun", "re": n})

    # --- the socket

    def _hear(self, fds: list[int]) -> None:
        if self._woken in fds:
            try:  # noqa: SIM105  (see `place.unlink`)
                os.read(self._woken, 4096)
            except BlockingIOError:
                pass
        for peer, message in self._peers.heard(fds):
            self._obey(peer, message)
        self._miss_daemon()

    def _miss_daemon(self) -> None:
        if self._daemon is not None and self._daemon.gone:
            self._daemon = None
            self._left_at = _clock()
            for job in [job for job in self._active.values() if job.nest]:
                self._stop(job, "daemon gone", time.monotonic())

    def _obey(self, peer: Peer, message: dict[str, Any]) -> None:
        verb = getattr(self, f"_do_{message.get('do')}", None)
        if verb is None:
            answer: dict[str, Any] = {"error": f"the keeper (version {VERSION}) does not know {message.get('do')!r}"}
        elif peer is not self._daemon and message.get("do") not in ("hello", "spare"):
            answer = {"error": "say hello first"}
        else:
            try:
                answer = verb(peer, message) or {}
                if message["do"] in ("spawn", "spare"):
                    return  # answered when it is on disk; and by a job to become
            except NotBegun as error:
                answer = {"error": str(error), "kind": "not begun"}
            except (KeyError, TypeError, ValueError) as error:
                answer = {"error": f"{message.get('do')}: {error!r}", "kind": "usage"}
        peer.say({**answer, "re": message.get("n")})

    # --- verbs

    def _do_hello(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        if self._daemon is not None and self._daemon is not peer:
            peer.leaving = True
            return {"error": f"another daemon uses {self._directory}", "kind": "taken"}
        self._daemon = peer
        self._orphan_s = float(message.get("orphan_s") or ORPHAN_S)
        jobs = [job.told() for job in self._jobs.values() if not job.nest]
        return {"version": VERSION, "pid": os.getpid(), "boot": self._boot, "jobs": jobs}

    def _do_spawn(self, peer: Peer, message: dict[str, Any]) -> None:
        id_ = message["id"]
        if not is_id(id_):
            raise NotBegun(f"{id_!r} cannot name a job: letters, digits, '-', '_' and '.', at most 128")
        if id_ in self._jobs:
            raise NotBegun(f"job {id_} is here already")
        if self._ending:
            raise NotBegun("the keeper is ending")
        job = Job(id_, os.path.join(self._directory, JOBS, id_))
        job.take(message, self._boot)
        via = message.get("via")
        if via is not None:
            job.spare = self._nests.take(via, self._jobs.get(via))
            self._kin.promised(job.spare.pid)
        self._renew(job, message.get("lease_s"))
        self._jobs[id_] = job
        self._ordered.append((job, peer, message.get("n")))

    def _do_list(self, _peer: Peer, _message: dict[str, Any]) -> dict[str, Any]:
        return {"jobs": [job.told() for job in self._jobs.values() if not job.nest]}

    def _do_spare(self, peer: Peer, _message: dict[str, Any]) -> None:
        """A process that would become a job."""
        spare = self._nests.add(peer, self._active.values())
        if spare is None:
            peer.leaving = True
            return
        self._kin.helper(spare.pid)
        if self._daemon is not None:
            self._daemon.say({"event": "spare", "nest": spare.nest})

    def _do_stop(self, _peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        job = self._jobs.get(message["id"])
        if job is None:
            return {"error": f"no job {message['id']}", "kind": "unknown"}
        self._stop(job, str(message.get("why") or "cancel"), time.monotonic(), message.get("grace_s"))
        return job.told()

    def _do_renew(self, _peer: Peer, message: dict[str, Any]) -> None:
        """These jobs' leases (all that run when none is named) last for so long from now."""
        for id_ in message.get("ids") or list(self._active):
            if id_ in self._jobs:
                self._renew(self._jobs[id_], message["lease_s"])

    def _renew(self, job: Job, lease_s: float | None) -> None:
        job.lease_until = None if lease_s is None else _clock() + float(lease_s)
        if job.id in self._active:
            self._expect(job, time.monotonic(), _clock())

    def _do_forget(self, _peer: Peer, message: dict[str, Any]) -> dict[str, Any] | None:
        ids = message.get("ids") or (message["id"],)
        jobs = [self._jobs[id_] for id_ in ids if id_ in self._jobs]
        self._forget(*(job for job in jobs if job.phase == "ended"))
        running = [job.id for job in jobs if job.phase != "ended"]
        return {"error": f"job {', '.join(running)} still runs", "kind": "running"} if running else None

    def _forget(self, *jobs: Job) -> None:
        self._ledger.forget(*(job.id for job in jobs))
        for job in jobs:
            if not self._shelf.put(job.directory):
                remove(job.directory)
            del self._jobs[job.id]

    def _do_end(self, _peer: Peer, _message: dict[str, Any]) -> None:
        """End every job, then this process."""
        self._ending = "shutdown"


def _clock() -> float:
    """Seconds on a clock that counts suspend: for leases, which go on while a lid is closed."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


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
    os.umask(spawning.MASK)
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
