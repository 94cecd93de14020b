"""Ends the processes that we started when we cannot do it ourselves: after a kill -9.

A small process that shares nothing but a pipe with us. Each child announces itself on the pipe before it becomes what
it is to be, so there is no moment in which it is running and unknown. When the pipe ends while children are known, the
minder sends them TERM, waits, sends TERM again (a worker then gives its job back), and at last KILL.

Why so, and not PR_SET_PDEATHSIG: that knows one signal and no deadline, is lost on some execs, and is Linux's alone;
and the worker is the user's own interpreter, which need not cooperate. On Linux a child is held by pidfd, so a number
that was given to another process meanwhile is never signalled; elsewhere it is forgotten as soon as we have reaped it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

GIVE_BACK_S = 2.0
"""What a worker gets between the second TERM and KILL."""
_NAP_S = 0.1


class Minder:
    """Starts children that do not outlive this process by more than `grace_s` seconds and a little.

    For processes of one thread: children are forked. They lead sessions of their own, so that the terminal's Ctrl-C
    reaches them only through us, and they read no terminal.
    """

    def __init__(self, *, grace_s: float) -> None:
        reader, self._pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._pipe)
                _mind(reader, grace_s)
            finally:
                os._exit(0)
        os.close(reader)

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a child. OSError when the program cannot be started."""
        pipe = self._pipe

        def announce() -> None:
            os.write(pipe, f"+{os.getpid()}\n".encode())

        return subprocess.Popen(  # noqa: S603  (the caller's program)
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=announce,  # noqa: PLW1509  (no thread of ours holds a lock at this fork)
            **options,
        )

    def forget(self, child: subprocess.Popen[bytes]) -> None:
        """The child has been reaped, or is to live on."""
        with contextlib.suppress(BrokenPipeError):  # a minder that was killed minds nobody
            os.write(self._pipe, f"-{child.pid}\n".encode())

    def close(self) -> None:
        """End the minder. Children that it still knows are ended by it."""
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _mind(reader: int, grace_s: float) -> None:
    """The minder's life. It holds no file of ours but the pipe, and no signal meant for us reaches it."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    known: dict[int, _Held] = {}
    buffered = b""
    while data := os.read(reader, 4096):
        *lines, buffered = (buffered + data).split(b"\n")
        for line in lines:
            pid = int(line[1:])
            if line.startswith(b"+"):
                known[pid] = _Held(pid)
            elif pid in known:
                known.pop(pid).close()
    for last, seconds in ((signal.SIGTERM, grace_s), (signal.SIGTERM, GIVE_BACK_S), (signal.SIGKILL, grace_s)):
        for held in known.values():
            held.send(last)
        until = time.monotonic() + seconds
        while any(held.runs() for held in known.values()) and time.monotonic() < until:
            time.sleep(_NAP_S)


class _Held:
    """A child, by pidfd where there is such a thing."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.gone = False
        self.handle = -1
        try:
            self.handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self.gone = True
        except (AttributeError, OSError):  # another system, an old kernel, a sandbox
            self.handle = -1

    def runs(self) -> bool:
        if not self.gone:
            if self.handle >= 0:
                self.gone = bool(select.select([self.handle], [], [], 0)[0])
            else:
                try:
                    os.kill(self.pid, 0)
                except OSError:
                    self.gone = True
        return not self.gone

    def send(self, number: int) -> None:
        if self.runs():
            with contextlib.suppress(OSError):  # it has ended this moment
                if self.handle >= 0:
                    signal.pidfd_send_signal(self.handle, number)
                else:
                    os.kill(self.pid, number)

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
