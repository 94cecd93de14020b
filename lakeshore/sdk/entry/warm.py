"""A nest: an interpreter past its imports that forks spares, each of which waits for one job, runs it and ends.

`await_job` returns in a spare that has got a job, as the process that would have been started for it: its files as
stdin, stdout and stderr, its directory, its environment, its arguments, a session of its own. The nest itself runs
nothing of a user's and imports nothing but ours; it ends by a signal, or when it forks in vain.

A spare ends by `end`: everything that a Python program can count on at its exit happens (threads and exit handlers are
done, objects that nothing but modules of the job held are finalized, files are flushed, C's own exit handlers run), but
what the nest had imported is not taken apart: that costs as much as a job.
The other side: `nymph/keeping/nests.py`. Linux only: elsewhere nobody asks for it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ..transport import source_hash

READY, BUSY = 2, 4
"""How many are forked at a time: what forks them and ends, so that they are the keeper's, costs as much as a fork."""
BUSY_S = 0.25
"""Spares that are gone so soon are called for faster than one by one: more are forked, before the last one goes."""
_KEEPER = "keeper.sock"
_LENGTH = struct.Struct(">I")
_FDS = 3
_VAIN = 10
_FILE = io.IOBase.__base__ or io.IOBase  # below the abstract one, which asks Python about every class
_BORN_WITH: set[str] = set()
"""The modules that a spare was forked with; empty in any other process."""


def await_job(place: str) -> list[str]:
    """Be a nest, of the keeper whose directory is `place`; return in each spare that has got a job, with the arguments
    of its entry.
    """
    _rehearse()
    _BORN_WITH.update(sys.modules)
    gc.collect()
    gc.freeze()  # a fork copies what is touched
    nest, keeper, own = os.getpid(), os.getppid(), _added()
    spares: dict[int, None] = {}  # the pipes on which each says that it is taken, or ends
    vain, forked_at = 0, -BUSY_S
    while True:
        now = time.monotonic()
        busy = now - forked_at < BUSY_S
        if len(spares) <= (1 if busy else 0):
            forked_at = now
            says = _fork((BUSY if busy else READY) - len(spares), spares)
            if says is not None:
                return _spare(says, place, nest, keeper, own)
        for fd in select.select(list(spares), [], [])[0]:
            taken = os.read(fd, 1)
            os.close(fd)
            del spares[fd]
            vain = 0 if taken else vain + 1
            if vain >= _VAIN:
                sys.exit("no spare process lives: nothing is kept warm here")
            if not taken:
                time.sleep(0.1)


def _fork(count: int, spares: dict[int, None]) -> int | None:
    """So many more spares, whose pipes are added. In each of them: where it says that it is taken; in the nest None."""
    pipes = [os.pipe() for _ in range(count)]
    middle = os.fork()
    if middle == 0:
        for _, says in pipes:
            if os.fork() == 0:
                for fd in {*spares, *(fd for pipe in pipes for fd in pipe)} - {says}:
                    os.close(fd)
                return says
        os._exit(0)
    for heard, says in pipes:
        os.close(says)
        spares[heard] = None
    os.waitpid(middle, 0)
    return None


def is_spare() -> bool:
    """Whether this process was forked by a nest."""
    return bool(_BORN_WITH)


def end(code: int) -> NoReturn:
    """The end of a spare, whose job is over."""
    steps: list[Callable[[], object]] = [threading._shutdown, atexit._run_exitfuncs, _print, _drop_modules, _flush]  # type: ignore[attr-defined]  # what an interpreter calls at its end
    for step in steps:
        with contextlib.suppress(Exception):
            step()
    ctypes.PyDLL(None).exit(code)  # with the interpreter's lock: no other thread goes on
    os._exit(code)


def _drop_modules() -> None:
    """As an interpreter does at its end, with the modules that the nest had not: what only they hold is finalized."""
    modules = [sys.modules.pop(name) for name in list(sys.modules) if name not in _BORN_WITH]
    gc.collect()
    for module in modules:
        names = getattr(module, "__dict__", {})
        for name in sorted(names, key=lambda name: not (name.startswith("_") and not name.startswith("__"))):
            if name != "__builtins__":
                names[name] = None
    gc.collect()


def _print() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _flush() -> None:
    _print()
    for found in gc.get_objects():  # without what the nest had
        if issubclass(type(found), _FILE):
            with contextlib.suppress(Exception):
                found.flush()


def _rehearse() -> None:
    """What a first job would find out by itself: modules that are imported late, patterns that are compiled once. What
    only some jobs need is theirs to load: each library that is there costs all of them, as they are forked and end.
    """
    import importlib.util  # wall: only a nest has the time

    assert importlib.util, "imported for whoever comes next"
    source_hash(_hear)


def _spare(says: int, place: str, nest: int, keeper: int, own: dict[str, str]) -> list[str]:
    """Wait for a job and become it. `own` is what the interpreter has added to its environment."""
    try:
        while os.getppid() != keeper:
            if not os.path.exists(f"/proc/{nest}"):
                os._exit(0)
            time.sleep(0.0005)
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.chdir(place)  # a socket's path must be short
        line.connect(_KEEPER)
        hello = json.dumps({"do": "spare"}).encode()
        line.sendall(_LENGTH.pack(len(hello)) + hello)
        told, files = _hear(line)
        os.setsid()
        line.close()
        os.write(says, b"!")
        os.close(says)
        for target, fd in enumerate(files):
            os.dup2(fd, target)
        for fd in files:
            os.close(fd)
    except OSError:
        os._exit(0)  # the keeper ends, and with it this process's reason
    os.umask(told["umask"])
    try:
        os.chdir(told["cwd"])
    except OSError as error:
        sys.stderr.write(f"the directory {told['cwd']}: {error.strerror}\n")
        os._exit(127)
    given = told["env"]
    _set_environment({**given, **{name: value for name, value in own.items() if name not in given}})
    argv = told["argv"]
    flags: list[str] = argv[argv.index("-m") + 2 :]
    sys.argv[1:] = flags
    sys.path[0] = os.getcwd()  # as `python -m` has it
    return flags


def _set_environment(wanted: dict[str, str]) -> None:
    """In this order. The first of it are there: it is that of the nest, but for what names the job."""
    before, after = list(os.environ.items()), list(wanted.items())
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    for name, _ in before[same:]:
        del os.environ[name]
    for name, value in after[same:]:
        os.environ[name] = value


def _added() -> dict[str, str]:
    """What the interpreter itself has put into its environment (LC_CTYPE, where there was no locale)."""
    with open("/proc/self/environ", "rb") as file:
        given = {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}
    return {name: value for name, value in os.environ.items() if os.fsencode(name) not in given}


def _hear(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What the keeper says: the words, and the files with the first of them."""
    data, fds, _flags, _address = socket.recv_fds(line, 1 << 16, _FDS, socket.MSG_CMSG_CLOEXEC)
    if len(fds) != _FDS:
        os._exit(0)
    whole = bytearray(data)
    while len(whole) < _LENGTH.size or len(whole) < _LENGTH.size + _LENGTH.unpack_from(whole)[0]:
        more = line.recv(1 << 16)
        if not more:
            os._exit(0)
        whole += more
    return json.loads(whole[_LENGTH.size :]), list(fds)
