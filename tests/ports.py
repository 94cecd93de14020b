"""Ports for those who are told one before they listen on it, or come back to theirs: nobody else gets it meanwhile.

The kernel gives ports of its own range to whoever asks for any and to every outgoing connection, also to one that tries
a port where nobody listens yet, which then talks to itself. A port that was looked up there and let go is somebody
else's before it is used, now and then. These are below that range, and all processes of a user count them in turn.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 20_000, 29_999
"""No kernel's range begins below 32,768 unless somebody has said so."""


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody has, and that nobody else is given for some ten thousand calls."""
    while True:
        with socket.socket() as probe:
            port = _next()
            try:
                probe.bind((address, port))
            except OSError:
                continue  # a program has it, or a connection of it has just ended
            return port


def _next() -> int:
    counted = Path(tempfile.gettempdir(), f"lakeshore-test-ports-{os.getuid()}")
    with open(os.open(counted, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        count = int(file.read() or 0) + 1
        file.seek(0)
        file.write(str(count))
    return FIRST + count % (LAST - FIRST + 1)
