"""Processes that wait to become a job: past their imports, children of the keeper, each for one job.

A nest is a job like any other (`Order.nest`), but nobody's work: it is not told of, it ends with its daemon, and
nothing of it is remembered. It runs an interpreter that has imported what a job needs, and forks spares; a spare loses
its parent and so becomes the keeper's child, connects to the keeper's socket and says `spare`. The kernel tells who it
is. What is spawned `via` a nest becomes one of its spares instead of a new process: it is handed files and words, and
from then on it is in every way the process that would have been started. The other side: `sdk/entry/warm`.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct

from . import processes
from .job import NotBegun

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .job import Job
    from .peers import Peer

MAX_WORDS = 96 << 10
"""Of what a spare is told, in bytes: what a socket takes at once."""
_LENGTH = struct.Struct(">I")


class Spare:
    """One that waits. `nest` is the job that forked it."""

    __slots__ = ("nest", "peer", "pid")

    def __init__(self, peer: Peer, pid: int, nest: str) -> None:
        self.peer, self.pid, self.nest = peer, pid, nest

    def become(self, order: dict[str, Any], files: list[int]) -> int:
        """Hand over: stdin, stdout, stderr. The pid. OSError when it has gone."""
        said = {name: order[name] for name in ("argv", "env")}
        said |= {"cwd": order.get("cwd") or "/", "umask": int(order.get("umask", 0o022))}
        body = json.dumps(said).encode("ascii")
        data = _LENGTH.pack(len(body)) + body
        if len(data) > MAX_WORDS or socket.send_fds(self.peer.line, [data], files) != len(data):
            raise OSError(errno.EMSGSIZE, "a spare process cannot be told so much")
        return self.pid


class Nests:
    """All that wait, by nest; the first that came goes first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, list[Spare]] = {}

    def add(self, peer: Peer, jobs: Iterable[Job]) -> Spare | None:
        """Who has said `spare`; None when no nest of these jobs has forked it."""
        told = peer.line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid = struct.unpack("3i", told)[0]
        found = processes.look(pid)
        nests = {job.pid: job.id for job in jobs if _is_nest(job)}
        if found is None or found.parent != os.getpid() or found.session not in nests:
            return None
        spare = Spare(peer, pid, nests[found.session])
        self._waiting.setdefault(spare.nest, []).append(spare)
        return spare

    def take(self, nest: str, job: Job | None) -> Spare:
        """The next of this nest, whose job is this; it waits no more. NotBegun when there is none."""
        waiting = [spare for spare in self._waiting.pop(nest, ()) if not spare.peer.gone]
        if job is None or not _is_nest(job) or not waiting:
            raise NotBegun(f"nobody waits in {nest}")
        if waiting[1:]:
            self._waiting[nest] = waiting[1:]
        return waiting[0]


def _is_nest(job: Job) -> bool:
    return job.nest and job.phase == "running" and job.status is None
