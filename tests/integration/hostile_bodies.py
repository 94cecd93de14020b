"""What jobs do that wish their daemon ill, or that nobody foresaw."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import dreamlake.lakeshore as dls


def _here() -> Path:
    return Path(os.environ["DREAMLAKE_WORKDIR"])


@dls.udf
def leaves(kind: str) -> None:
    """It ends with status 0; its result is something else than a file."""
    path = _here() / "result.msgpack"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "endless":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    os._exit(0)


@dls.udf
def fails_with(error: str) -> None:
    """It says in its own words how it failed."""
    (_here() / "error.json").write_text(error)
    os._exit(1)


@dls.udf
def raises_no_text() -> None:
    raise ValueError("\ud800")


@dls.udf
def frames_as(kind: str) -> str:
    """Something lies where its yields would be."""
    place = _here() / "frames"
    place.mkdir()
    first = place / f"{0:020}"
    if kind == "link":
        first.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(first)
    elif kind == "junk":
        first.write_bytes(b"\xc1")
    elif kind == "later":
        (place / f"{5:020}").touch()
    elif kind == "many":
        for number in range(1001):
            (place / f"{number:020}").touch()
    return kind


@dls.udf
def nests() -> None:
    """Directories in each other, deeper than a path or a stack goes."""
    os.chdir(_here())
    for _ in range(1200):
        os.mkdir("d")
        os.chdir("d")


@dls.udf
def tells_the_keeper(messages: list[bytes]) -> list[bytes]:
    """What it answers to each."""
    os.chdir(Path(os.environ["DREAMLAKE_JOB"]).parents[1])  # a socket's name has room for 107 bytes
    answers = []
    for message in messages:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect("keeper.sock")
            try:
                line.sendall(struct.pack(">I", len(message)) + message)
                answers.append(line.recv(1 << 16)[4:])
            except (BrokenPipeError, ConnectionResetError):
                answers.append(b"")  # it hung up while it was told
    return answers
