"""What a daemon and its keeper say to each other, and where they meet.

One message: four bytes of length (big-endian), then JSON. A request carries `n` and `do`; its answer carries `re` (the
same number) and either what was asked for or `error`. Without `re` the keeper tells by itself that a job has ended.
Daemon and keeper may be of different versions and on different Pythons: an unknown key is ignored on both sides.

The meeting place is a directory of the daemon's own, 0700:

    keeper.lock    held by the keeper that lives
    keeper.sock    0600; only the same user (or root) is heard, and one daemon at a time
    begun.log      the jobs that began and are not forgotten
    keeper.log     what went wrong in the keeper itself
    spare/         while it lives: emptied directories for the next jobs
    jobs/<id>/     0700, one for each job that is not forgotten: job.json, stdout, stderr, exit.json
"""

from __future__ import annotations

import json
import os
import re
import struct

TYPE_CHECKING = False  # `typing` costs the keeper a tenth of its start
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

VERSION = 2
FORGETS_MANY = 2
"""The first version that forgets several jobs at a word."""
LOCK, SOCKET, LOG, LEDGER, JOBS, SHELF = "keeper.lock", "keeper.sock", "keeper.log", "begun.log", "jobs", "spare"
JOB, EXIT, STDOUT, STDERR = "job.json", "exit.json", "stdout", "stderr"
MAX_MESSAGE = 16 << 20
MARK = "DREAMLAKE_JOB"
"""The variable that names the job, by its directory: what leaves the job's session is known by it."""
_LENGTH = struct.Struct(">I")
_plain = json.JSONEncoder(separators=(",", ":"))
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class BadMessage(Exception):
    """Not of this protocol: too long, or no JSON object."""


def encode(message: dict[str, Any]) -> bytes:
    """The bytes of one message. BadMessage when it is longer than `MAX_MESSAGE`."""
    body = _plain.encode(message).encode("ascii")  # a lone surrogate of a file name is escaped
    if len(body) > MAX_MESSAGE:
        raise BadMessage(f"a message to or from the keeper may have {MAX_MESSAGE} bytes; this one has {len(body)}")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Bytes in, messages out."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete with `data`. BadMessage when it cannot be one."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_MESSAGE:
                raise BadMessage(f"a message of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            try:
                message = json.loads(self._buffer[_LENGTH.size : end])
            except (ValueError, RecursionError) as error:
                raise BadMessage(f"no JSON: {error}") from None
            del self._buffer[:end]
            if not isinstance(message, dict):
                raise BadMessage("no object")
            yield message


def is_id(text: object) -> bool:
    """Whether it can name a job, and so a directory: a ULID, or what is as plain."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def private_directory(path: str) -> None:
    """Make it (0700) with what is missing above; one that is there must be ours and nobody else's. Raises OSError."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to uid {found.st_uid}: give the daemon a directory of its own")
    if found.st_mode & 0o170000 != 0o040000:
        raise NotADirectoryError(f"{path} must be a directory, not a link")
    if found.st_mode & 0o077:
        os.chmod(path, 0o700)
