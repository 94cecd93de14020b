"""The keeper's side of the meeting place: one keeper a directory, and who may speak to it."""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from .protocol import SOCKET


def hold(path: str) -> int:
    """The lock of the directory. BlockingIOError when a keeper lives."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def listen(listener: socket.socket) -> None:
    """Here: in the working directory, so that no path is too long for an address."""
    unlink(SOCKET)
    listener.bind(SOCKET)
    os.chmod(SOCKET, 0o600)
    listener.listen(8)
    listener.setblocking(False)


def is_ours(line: socket.socket) -> bool:
    """Whether the peer is of our user, or root. Where the system does not tell, the directory's mode decides."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", told)
    return uid in (0, os.geteuid())


def unlink(path: str) -> None:
    """Remove a file that may be gone already."""
    try:  # noqa: SIM105  (contextlib costs a tenth of this process's start)
        os.unlink(path)
    except FileNotFoundError:
        pass
