"""The daemon's end of the line to its keeper, on trio.

    keeper = await open_keeper(directory, nursery)    # connects to the one that runs, or starts one
    keeper.found                                      # the jobs of an earlier daemon: adopt them, or stop them
    await keeper.spawn(Order(id="01J…", argv=("sleep", "1")))
    ended = await keeper.wait("01J…")
    await keeper.forget("01J…")

`aclose` leaves the jobs running: the keeper waits `orphan_s` for the next daemon. `end` ends them all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import DEVNULL, CompletedProcess
from typing import Any

import trio

from lakeshore._self import python_path

from .job import GRACE_S, OUTPUT_MAX
from .protocol import EXIT, FORGETS_MANY, JOBS, LOG, SOCKET, BadMessage, Decoder, encode, private_directory

START_S = 10.0
_LONGEST = 100
"""Of a socket's path, in bytes: what every system takes."""
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from lakeshore.nymph.keeper import main; sys.exit(main(sys.argv[2]))"
)


class KeeperError(Exception):
    """The keeper could not do it."""


class KeeperTaken(KeeperError):
    """Another daemon uses this directory."""


class KeeperLost(KeeperError):
    """The keeper is gone. What it kept is ended; the next keeper of the directory tells how."""


class NotSpawned(KeeperError):
    """The job did not begin, and nothing of it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job to begin. Its environment is exactly `env` (and the mark that the keeper adds)."""

    id: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    stdin: str | None = None
    """A file that it reads; nothing when None."""
    merge: bool = False
    """stderr goes where stdout goes."""
    claim: Any = None
    """Given back with the job: plain JSON values."""
    timeout_s: float | None = None
    grace_s: float = GRACE_S
    """Between TERM and KILL, seconds."""
    lease_s: float | None = None
    """The keeper ends it by itself when `renew` is not called for so long."""
    output_max: int = OUTPUT_MAX
    """Of each output file, in bytes."""
    output_keep: int = 0
    """Of that, the first so many bytes stay, whatever comes after them."""
    umask: int = 0o022
    nest: bool = False
    """It only keeps spares: see `nests.py`."""
    via: str | None = None
    """The nest one of whose spares becomes the job. NotSpawned when none waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a job ended. `code` and `signal` are None when it never began or its keeper was killed: `error` says why.

    `cancelled_by`: None, or "cancel" (or whatever `stop` was given), "lease", "daemon gone", "shutdown", "output",
    "keeper".
    """

    code: int | None
    signal: str | None
    oom: bool | None
    timed_out: bool
    cancelled_by: str | None
    error: str | None = None

    @staticmethod
    def of(told: Mapping[str, Any]) -> Exit:
        """From what `exit.json` holds."""
        return Exit(
            code=told.get("code"),
            signal=told.get("signal"),
            oom=told.get("oom"),
            timed_out=bool(told.get("timed_out")),
            cancelled_by=told.get("cancelled_by"),
            error=told.get("error"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A job as the keeper has it. `phase`: running, stopping, killing, ended. `start` is in clock ticks since boot."""

    id: str
    claim: Any
    pid: int
    start: str
    phase: str
    directory: str
    exit: Exit | None

    @staticmethod
    def of(told: Mapping[str, Any]) -> Kept:
        """From the keeper's words."""
        ended = told.get("exit")
        return Kept(
            id=told["id"],
            claim=told.get("claim"),
            pid=told["pid"],
            start=told.get("start", ""),
            phase=told["phase"],
            directory=told["directory"],
            exit=None if ended is None else Exit.of(ended),
        )


class KeeperClient:
    """One connection. Any task may call any method."""

    def __init__(self, stream: trio.SocketStream, directory: str) -> None:
        self._stream = stream
        self.directory = os.path.realpath(directory)
        self._unsent = bytearray()
        self._sending = False
        """A task is sending, and goes on until everything is sent."""
        self._numbers = 0
        self._asked: dict[int, trio.Event] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._ended: dict[str, trio.Event] = {}
        self._exits: dict[str, Exit] = {}
        self.lost = trio.Event()
        """Set when the keeper is gone, or this end has left."""
        self.pid = 0
        self.boot = ""
        self._version = 1
        self.found: tuple[Kept, ...] = ()
        self.on_spare: Callable[[str], object] = lambda _nest: None
        """Called with the nest, for each spare that waits there from now on."""

    async def hello(self, *, orphan_s: float) -> None:
        """Become the keeper's daemon. KeeperTaken when it has one."""
        told = await self._ask({"do": "hello", "pid": os.getpid(), "orphan_s": orphan_s})
        self.pid, self.boot, self._version = told["pid"], told["boot"], int(told.get("version", 1))
        self.found = tuple(Kept.of(job) for job in told["jobs"])
        for job in self.found:
            self._note(job)

    async def spawn(self, order: Order) -> Kept:
        """Begin a job: recorded on disk, then running. NotSpawned when it cannot be."""
        words = {name: getattr(order, name) for name in Order.__slots__}
        told = await self._ask({"do": "spawn", **words, "argv": list(order.argv), "env": dict(order.env)})
        job = Kept.of(told)
        self._note(job)
        return job

    async def stop(self, id_: str, *, why: str = "cancel", grace_s: float | None = None) -> None:
        """Ask a job to end: all of it. Does not wait. Of a job that has ended it is a no-op."""
        words = {} if grace_s is None else {"grace_s": grace_s}
        await self._ask({"do": "stop", "id": id_, "why": why, **words})

    async def renew(self, lease_s: float | None, ids: Sequence[str] = ()) -> None:
        """The leases of these jobs (of all when none is named) last so long from now; None: for ever."""
        await self._ask({"do": "renew", "ids": list(ids), "lease_s": lease_s})

    async def jobs(self) -> list[Kept]:
        """Everything that is not forgotten."""
        return [Kept.of(job) for job in (await self._ask({"do": "list"}))["jobs"]]

    async def wait(self, id_: str) -> Exit:
        """Until nothing of the job runs. KeeperLost when the keeper goes first; KeyError for an unknown job."""
        await self._ended[id_].wait()
        if id_ not in self._exits:
            raise KeeperLost("the keeper is gone, and the job with it")
        return self._exits[id_]

    async def forget(self, *ids: str) -> None:
        """Remove the directories of ended jobs."""
        if len(ids) > 1 and self._version >= FORGETS_MANY:
            await self._ask({"do": "forget", "ids": list(ids)})
        else:
            for id_ in ids:
                await self._ask({"do": "forget", "id": id_})
        for id_ in ids:
            self._ended.pop(id_, None)
            self._exits.pop(id_, None)

    def job_directory(self, id_: str) -> str:
        """Where a job of this id has its files."""
        return f"{self.directory}/{JOBS}/{id_}"

    async def end(self) -> None:
        """End every job (TERM, grace, KILL), then the keeper. Returns when that is asked; `wait` tells the rest."""
        await self._ask({"do": "end"})

    def _note(self, job: Kept) -> None:
        event = self._ended.setdefault(job.id, trio.Event())
        if job.exit is not None:
            self._exits[job.id] = job.exit
            event.set()

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self._numbers += 1
        number = self._numbers
        try:
            data = encode({**message, "n": number})
        except BadMessage as error:
            raise NotSpawned(str(error)) from None
        if self.lost.is_set():
            raise KeeperLost("the keeper is gone")
        answered = self._asked[number] = trio.Event()
        try:
            await self._send(data)
            await answered.wait()
        finally:
            del self._asked[number]
            answer = self._answers.pop(number, None)
        if answer is None:
            raise KeeperLost("the keeper is gone")
        if "error" in answer:
            kinds = {"taken": KeeperTaken, "not begun": NotSpawned}
            raise kinds.get(answer.get("kind", ""), KeeperError)(answer["error"])
        return answer

    async def _send(self, data: bytes) -> None:
        """One task sends for all that ask meanwhile. When it cannot, `listen` sees the connection end, and says so."""
        self._unsent += data
        if self._sending:
            return
        self._sending = True
        try:
            with trio.CancelScope(shield=True):  # half a message would be the end of the conversation
                while self._unsent:
                    piece, self._unsent = self._unsent, bytearray()
                    await self._stream.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise KeeperLost("the keeper is gone") from None
        finally:
            self._sending = False

    async def aclose(self) -> None:
        """Leave; what runs runs on."""
        await self._stream.aclose()

    async def listen(self) -> None:
        """Hear the keeper until the connection ends; started by `open_keeper`."""
        decoder = Decoder()
        try:
            while data := await self._stream.receive_some(1 << 18):
                for message in decoder.feed(data):
                    self._hear(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.lost.set()
            await trio.aclose_forcefully(self._stream)
            for answered in self._asked.values():
                answered.set()
            for event in self._ended.values():
                event.set()

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("event") == "exit":
            self._exits[message["id"]] = Exit.of(message["exit"])
            self._ended.setdefault(message["id"], trio.Event()).set()
        elif message.get("event") == "spare":
            self.on_spare(message["nest"])
        elif message.get("re") in self._asked:
            self._answers[message["re"]] = message
            self._asked[message["re"]].set()


async def open_keeper(directory: str, nursery: trio.Nursery, *, orphan_s: float = 30.0) -> KeeperClient:
    """Connect to the keeper of a directory, or start one; a task in `nursery` hears what it says. KeeperTaken when
    it serves another daemon; OSError when the directory is not private and cannot be made so.
    """
    private_directory(directory)
    deadline = trio.current_time() + START_S
    while True:
        late = trio.current_time() > deadline
        line = await _connected(directory)
        if line is None:
            await _start(directory, late=late)
            continue
        keeper = KeeperClient(trio.SocketStream(line), directory)
        nursery.start_soon(keeper.listen)
        try:
            await keeper.hello(orphan_s=orphan_s)
        except BaseException as error:
            await keeper.aclose()
            if isinstance(error, KeeperLost) and not late:
                continue  # it had nothing to keep and was just leaving
            raise
        return keeper


async def _connected(directory: str) -> trio.socket.SocketType | None:
    """A connected socket; None when nobody listens."""
    line = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(directory) as path:
            await line.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    except BaseException:
        line.close()
        raise
    return line


@contextlib.contextmanager
def _short_path(directory: str) -> Iterator[str]:
    """A path of the socket that fits into an address, however deep the directory lies."""
    path = os.path.join(directory, SOCKET)
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    made = tempfile.mkdtemp(prefix="lakeshore-", dir="/tmp")
    try:
        os.symlink(os.path.realpath(directory), os.path.join(made, "k"))
        yield os.path.join(made, "k", SOCKET)
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def _start(directory: str, *, late: bool) -> None:
    """Start a keeper; returns when it listens, or when another one has been started meanwhile."""
    argv = [sys.executable, "-I", "-S", "-c", _BOOT, python_path()[0], directory]
    done: CompletedProcess[bytes] | None = None
    with trio.move_on_after(START_S):
        done = await trio.run_process(argv, stdin=DEVNULL, stdout=DEVNULL, capture_stderr=True, check=False)
    if done is not None and done.returncode == 0:
        return
    if done is not None and done.returncode == 3 and not late:
        await trio.sleep(0.05)  # it was started a moment ago, or is about to end
        return
    said = "" if done is None else done.stderr.decode(errors="replace").strip()
    log = os.path.join(directory, LOG)
    raise KeeperError(f"the keeper of {directory} does not start: {said.splitlines()[-1] if said else f'see {log}'}")


def exit_path(job: Kept) -> str:
    """Where the job's end is recorded."""
    return os.path.join(job.directory, EXIT)
