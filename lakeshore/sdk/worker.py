"""The worker loop: take a job, run its body, tell the plane how it ended, until stopped.

`run_worker` is for programs and tests, `Worker` for the worker process and for `worker_async`. Where jobs
come from is a source's affair: an HTTP plane brings one that prefetches and batches, every other plane is driven by its
verbs.

Delivery is at least once, settlement exactly once: a body may run again after its worker was lost.
Reference: python-sdk/dispatch.md, "The worker loop".
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeshore.archives.stamp import MARK

from .belongings import Owned
from .errors import DispatchError, WorkerError
from .execution import Setup, execute, interrupted
from .interrupts import GRACE_S, Interrupter
from .jobs import worker_name
from .sources import Ending, PlaneSource, Source, Work
from .transport import check_policy

if TYPE_CHECKING:
    from .code_mount import Mount
    from .printed import Printed
    from .storage import Storage

__all__ = ["Worker", "run_worker"]

log = logging.getLogger(__name__)

LONG_WAIT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
PLANE_WAIT_S = 0.5  # the verbs of a plane cannot be woken for a drain


def run_worker(
    q: Any,
    *,
    root: Path | str | None = None,
    registry: Mapping[str, Callable[..., Any]] | None = None,
    once: bool = False,
    poll: float = 0.05,
    retries: int = 1,
    stop: Callable[[], bool] | None = None,
    allow_pickled: bool | None = None,
    runtime_policy: str = "minor",
    wait: float = 0.0,
    storage: Storage | str | None = None,
) -> int:
    """Run the jobs of a queue (`Queue` or `SyncQueue`) in this thread; how many were run.

    `root` is the filesystem root of `dls.run` (default: the working directory at this call). `registry` maps a qualname
    or `module:qualname` to a function and is asked first. `once` takes at most one job, waiting up to `wait` seconds
    for it; without it the loop goes on until `stop()`, asked between jobs and every `poll` seconds while idle, is true.
    A failed body runs again while its attempt is at most `retries`. `allow_pickled` permits functions sent by value
    (default: only on a plane of this machine); `runtime_policy` is `strict`, `minor` or `off`. With a `storage` (or its
    name, of the queue's control plane), `dls.run.read` fetches a key that is not below `root`, and what a body wrote is
    stored there before its end is told; without one both are files of this machine.

    A body's failure is the job's, never this call's. In the main thread Ctrl-C stops the body, gives its job back and
    raises KeyboardInterrupt. Raises DispatchError when the plane cannot be used, and WorkerError when a body closed the
    files that this process works with.
    """
    worker = Worker(
        q,
        root=root,
        registry=registry,
        once=once,
        poll=poll,
        retries=retries,
        stop=stop,
        allow_pickled=allow_pickled,
        runtime_policy=runtime_policy,
        wait=wait,
        storage=storage,
    )
    return worker.run()


class Worker:
    """One worker. `run` in the thread that is to run bodies; `drain` and `give_back` from anywhere, signal handlers
    included.
    """

    def __init__(
        self,
        q: Any,
        *,
        root: Path | str | None = None,
        registry: Mapping[str, Callable[..., Any]] | None = None,
        once: bool = False,
        poll: float = 0.05,
        retries: int = 1,
        stop: Callable[[], bool] | None = None,
        allow_pickled: bool | None = None,
        runtime_policy: str = "minor",
        wait: float = 0.0,
        storage: Storage | str | None = None,
        worker_id: str | None = None,
        on_stuck: Callable[[], None] | None = None,
        grace_s: float = GRACE_S,
        own_process: bool = False,
        may_pass: Callable[[DispatchError], bool] | None = None,
        printed: Printed | None = None,
    ) -> None:
        """Options as in `run_worker`. `on_stuck` is called, in another thread, after a body that cannot be stopped was
        reported; it is to end the process. `own_process`: nothing but bodies run in this process, and its caller sees
        to Ctrl-C. `may_pass` says of an error whether to try again, more and more slowly, instead of raising it.
        `printed` is told when a body begins and ends.
        """
        q = getattr(q, "sync", q)
        plane = getattr(q, "plane", None)
        if plane is None:
            raise TypeError(
                f"run_worker takes a Queue or a SyncQueue, got {type(q).__name__}; write run_worker(SyncQueue(name))"
            )
        check_policy(runtime_policy)
        self.executed = 0
        kept = _storage(storage, plane) if isinstance(storage, str) else storage
        self._opened = kept if isinstance(storage, str) else None
        self._q, self._plane = q, plane
        self._once, self._poll, self._retries, self._stop, self._wait = once, poll, retries, stop, wait
        self.worker_id = worker_id or worker_name()
        self._setup = Setup(
            root=Path(root if root is not None else ".").expanduser().absolute(),
            registry=registry,
            allow_pickled=bool(getattr(plane, "local", True)) if allow_pickled is None else allow_pickled,
            runtime_policy=runtime_policy,
            plane=plane,
            owned=Owned() if own_process else None,
            storage=kept,
        )
        code_off = os.environ.get("LAKESHORE_CODE", "").strip().lower() == "off"
        self._fetches = None if code_off or not hasattr(plane, "fetch_code") else plane
        self._rules: dict[str, Any] = {"runtime_policy": runtime_policy, "registry": registry}
        self._mount: Mount | None = None
        self._draining = False
        self._wake = threading.Event()
        self._ctrl_c = False
        self._work: Work | None = None
        self._source: Source | None = None
        self._canary = _Canary()
        self._own_process = own_process
        self._leave = on_stuck
        self._may_pass = may_pass
        self._printed = printed
        self._pause_s = FIRST_PAUSE_S
        self._interrupter = Interrupter(grace_s=grace_s, on_stuck=self._stuck if on_stuck else None)

    # -- from anywhere

    def drain(self) -> None:
        """Finish the running job, take no other, and let `run` return."""
        self._draining = True
        self._interrupter.soon(self._drain_source)

    @property
    def busy(self) -> bool:
        """Whether a body runs."""
        return self._interrupter.busy

    def give_back(self) -> None:
        """Drain, and stop the running body: its job is reported as interrupted and may run again."""
        self.drain()
        self._interrupter.interrupt_current("worker")

    # -- the loop

    def run(self) -> int:
        """Run jobs until drained, stopped, or (`once`) after one; how many were run."""
        source = self._source = self._open()
        with self._interrupter, _CtrlC(self), _Canary() as self._canary:
            try:
                self._loop(source)
            finally:
                if self._canary.alive():
                    source.close()
                    if self._opened is not None:
                        self._opened.close()
        if self._ctrl_c:
            raise KeyboardInterrupt
        return self.executed

    def _loop(self, source: Source) -> None:
        until = time.monotonic() + self._wait if self._once else float("inf")
        longest = self._poll if self._stop else PLANE_WAIT_S if isinstance(source, PlaneSource) else LONG_WAIT_S
        while not self._draining and not (self._stop is not None and self._stop()):
            left = until - time.monotonic()
            work = self._next(source, max(0.0, min(left, longest)))
            if work is not None:
                self._run(source, work, self._prepare(work))
                self.executed += 1
            if self._once and (work is not None or left <= 0):
                return

    def _next(self, source: Source, wait_s: float) -> Work | None:
        try:
            work = source.next(wait_s)
        except DispatchError as error:
            if self._may_pass is None or self._draining or not self._may_pass(error):
                raise
            log.warning("%s; trying again in %g s", error, self._pause_s)
            self._wake.wait(self._pause_s)
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            return None
        self._pause_s = FIRST_PAUSE_S
        return work

    def _prepare(self, work: Work) -> Ending | None:
        """Make importable what a call needs of its commit, before it begins; its ending when that cannot be. Raises
        WorkerError when this process cannot run it and a fresh one can.
        """
        mount = self._mount
        if (mount is None or mount.mounted is None) and (self._fetches is None or MARK not in work.envelope):
            return None
        if mount is None:
            from .code_mount import Mount, got_from  # at its wall: most workers have the code that they run

            assert self._fetches is not None, "asked above"
            mount = self._mount = Mount(got_from(self._fetches), alone=self._own_process, **self._rules)
        return mount.prepare(work.envelope, fresh=self.executed == 0)

    def _run(self, source: Source, work: Work, early: Ending | None) -> None:
        interrupter = self._interrupter
        serial = interrupter.start(work.timeout_s)
        self._work = work
        source.begin(work, lambda why: interrupter.interrupt(serial, why))
        last_resort = self._leave is not None and work.timeout_s is not None
        if last_resort:  # a thread that needs no interpreter: a body may keep it locked
            faulthandler.dump_traceback_later(float(work.timeout_s or 0.0) + 4 * interrupter.grace_s, exit=True, file=2)
        if self._printed is not None:
            self._printed.begin(work)
        if early is None:
            ending = execute(work, source.sink, self._setup, interrupter)
        else:
            ending = early
            interrupter.finish()
        if self._printed is not None:
            self._printed.end(soon=self._draining)
        if last_resort:
            faulthandler.cancel_dump_traceback_later()
        if not self._canary.alive():
            raise WorkerError(
                f"the body of invocation {work.id} closed files that it did not open, this worker's among them: "
                "how it ended cannot be reported; its claim is lost and it may run again"
            )
        self._work = None
        if ending.outcome != "succeeded":
            kind = (ending.error or {}).get("type")
            log.info("invocation %s: %s (%s) in attempt %d", work.id, ending.outcome, kind, work.attempt)
        source.end(work, ending)

    def _open(self) -> Source:
        options: dict[str, Any] = {
            "kind": self._q.kind,
            "temperature": self._q.temperature,
            "retries": self._retries,
            "poll_s": self._poll,
        }
        own = getattr(self._plane, "source", None)
        if own is not None:
            source: Source = own(self._q.name, self.worker_id, once=self._once, **options)
            return source
        return PlaneSource(self._plane, self._q.name, self.worker_id, **options)

    def _drain_source(self) -> None:
        self._wake.set()
        if self._source is not None:
            self._source.drain()

    def _stuck(self, why: str) -> None:
        """A body cannot be stopped: say how it ended, then let the process go."""
        work, source, leave = self._work, self._source, self._leave
        if work is None or source is None or leave is None:
            return
        log.error("the body of invocation %s cannot be stopped (%s): this worker process is replaced", work.id, why)

        def report() -> None:
            try:
                source.end(work, interrupted(work, why))
                source.close()
            except Exception:
                log.exception("the ending of %s was not reported", work.id)

        # The stuck thread may hold what the report needs: do not wait for ever.
        reporter = threading.Thread(target=report, daemon=True)
        reporter.start()
        reporter.join(5.0)
        leave()


class _Canary:
    """A file that nobody else has. When it is gone, a body has closed what this process lives by: using a database or
    a connection then is worse than ending.
    """

    def __enter__(self) -> _Canary:
        self._fd, other = os.pipe()
        os.close(other)
        self._inode = os.fstat(self._fd).st_ino
        return self

    def alive(self) -> bool:
        """Whether it is still there, and not another file under its number."""
        try:
            return os.fstat(self._fd).st_ino == self._inode
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        if self.alive():
            os.close(self._fd)


def _storage(name: str, plane: Any) -> Storage:
    """The storage of that name at the plane's server, with the plane's token."""
    from .storage import Storage  # wall: a worker without one loads no HTTP client

    named = {attribute: getattr(plane, attribute, None) for attribute in ("base_url", "namespace", "token")}
    return Storage(name, **(named if named["base_url"] else {}))


class _CtrlC:
    """In a program's main thread, with Python's own handler in place: Ctrl-C gives the running job back."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._mine = False

    def __enter__(self) -> None:
        if (
            not self._worker._own_process
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            signal.signal(signal.SIGINT, self._on_signal)
            self._mine = True

    def __exit__(self, *_: object) -> None:
        if self._mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_signal(self, *_: object) -> None:
        self._worker._ctrl_c = True
        self._worker.give_back()
