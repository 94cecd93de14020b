"""What a running command prints, as its daemon sends it: kept beside the plane, in the files that `plane/logs` keeps.

`exec-logs/` holds the first 256 KiB and at least the last 8 MiB of each command; what is missing between shows in the
positions. Two streams, each numbered in bytes from 0; a position counts both together. Without chunks, a command's
output is what its result brought (at most `CAPTURED_BYTES` of each stream).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import trio

from ...plane.logs import PAGE_BYTES, STREAMS, Log, Logs, Part
from ..printed import Printed
from .job import ExecRow

CAPTURED_BYTES: Final = 1024 * 1024
"""Of each stream in a result."""
_LAST_FILES: Final = 33
_SLICE: Final = 64 * 1024
_LOG: Final = Log(attempt=1, claim=1)


class Output:
    """The output of all commands of one server, below `root`."""

    def __init__(self, root: Path) -> None:
        self._logs = Logs(root, last_files=_LAST_FILES)
        self._bells = Printed()
        self._broken = False

    def append(self, seq: int, stream: str, offset: int | None, data: bytes, now: float) -> int:
        """Store what follows, from `offset` of the stream on (None: its end); where the stream ends then. OSError."""
        begin = self._logs.ends(seq, _LOG)[stream] if offset is None else offset
        for place in range(0, len(data), _SLICE):  # a file is cut between two of them
            self._logs.append(seq, _LOG, ((stream, begin + place, data[place : place + _SLICE]),), now)
        self.ring(seq)
        return self._logs.ends(seq, _LOG)[stream]

    def page(self, row: ExecRow, position: int) -> tuple[list[Part], bool]:
        """What follows `position`, a page at most; and whether that is all that there is now."""
        if self.has_chunks(row.seq):
            return self._logs.read(row.seq, _LOG, position, most=PAGE_BYTES)
        return list(_captured(row, position)), True

    def has_chunks(self, seq: int) -> bool:
        """Whether anything was sent while it ran."""
        return bool(self._logs.of(seq))

    def whole(self, row: ExecRow) -> tuple[bytes, bytes, int, int]:
        """stdout and stderr from their beginnings, up to `CAPTURED_BYTES` each; how long each was."""
        if not row.log or not self.has_chunks(row.seq):
            out, err = row.stdout or b"", row.stderr or b""
            return out, err, len(out), len(err)
        found = {stream: bytearray() for stream in STREAMS}
        position = 0
        while True:
            parts, is_all = self._logs.read(row.seq, _LOG, position, most=PAGE_BYTES)
            for part in parts:
                data = found[part.stream]
                if part.offset == len(data):  # from the first hole on, nothing
                    data += part.data[: CAPTURED_BYTES - len(data)]
                position = part.position + len(part.data)
            if is_all or not parts or all(len(data) >= CAPTURED_BYTES for data in found.values()):
                break
        ends = self._logs.ends(row.seq, _LOG)
        return bytes(found["stdout"]), bytes(found["stderr"]), ends["stdout"], ends["stderr"]

    # -- who waits for it

    @contextlib.contextmanager
    def bell(self, seq: int) -> Iterator[trio.Event]:
        """Set by the next chunk of this command, by its end, and when the server goes down."""
        with self._bells.bell(seq) as bell:
            if self._broken:
                bell.set()
            yield bell

    def ring(self, seq: int) -> None:
        """Something has happened to it."""
        self._bells.ring(seq)

    @property
    def broken(self) -> bool:
        """Whether the server goes down: streams end without an end, and are come back for."""
        return self._broken

    def break_off(self) -> None:
        """The server goes down."""
        self._broken = True
        self._bells.ring_all()

    # -- keeping house

    def forget(self, seqs: Sequence[int]) -> None:
        """Delete what these printed."""
        self._logs.forget(seqs)

    def shards(self) -> dict[int, set[int]]:
        """The numbers of those that printed something, in lots."""
        return self._logs.shards()

    def bytes(self) -> int:
        """What all of them take on the disk."""
        return self._logs.bytes()


def _captured(row: ExecRow, position: int) -> Iterator[Part]:
    begin = 0
    for stream, data in zip(STREAMS, (row.stdout or b"", row.stderr or b""), strict=True):
        skip = max(0, position - begin)
        if skip < len(data):
            at = row.finished_at or 0.0
            yield Part(stream=stream, offset=skip, position=begin + skip, at=at, data=data[skip:])
        begin += len(data)
