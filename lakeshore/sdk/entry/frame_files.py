"""The yields of a body that has no way to a server: frames in files, which whoever started it posts.

    <DREAMLAKE_FRAMES>/<seq of the first, 20 digits>    frames, one after the other, verbatim

The directory appears when a body that yields begins, and says by that alone that the invocation is a stream. A frame is
in one file; a file is closed when it is longer than `FILE_BYTES`. The other side removes what it has posted. What waits
for it is bounded: with `MOST_BYTES` there the body goes on only when some of them have gone.
Reference: api/function-protocol.md; CONTRACT K-23, K-24.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..errors import DispatchError

FILE_BYTES = 4 << 20
MOST_BYTES = 64 << 20
_SHORTEST_S, _LONGEST_S = 0.005, 0.2


class FrameFiles:
    """A frame is written, and survives this process, when `put` returns."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = -1
        self._size = 0
        self._name = ""
        directory.mkdir(mode=0o755, exist_ok=True)

    def put(self, seq: int, frame: bytes) -> None:
        """Append a frame. Raises DispatchError when the disk does not take it."""
        try:
            if self._fd < 0 or self._size >= FILE_BYTES:
                self._begin(seq)
            self._write(frame)
        except OSError as error:
            raise DispatchError(f"a yield could not be kept in {self._directory}: {error.strerror or error}") from error
        self._size += len(frame)

    def flush(self) -> None:
        """Every frame was written when its `put` returned."""

    def _begin(self, seq: int) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        wait_s = _SHORTEST_S
        while self._waiting() >= MOST_BYTES:
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_S)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._name = f"{seq:020}"
        self._fd = os.open(self._directory / self._name, flags, 0o644)
        self._size = 0

    def _waiting(self) -> int:
        """How many bytes nobody has taken, without the last file's."""
        total = 0
        with os.scandir(self._directory) as found:
            for entry in found:
                try:
                    total += 0 if entry.name == self._name else entry.stat().st_size
                except FileNotFoundError:
                    continue  # taken meanwhile
        return total

    def _write(self, frame: bytes) -> None:
        written = 0
        rest = memoryview(frame)
        try:
            while written < len(frame):
                written += os.write(self._fd, rest[written:])
        except OSError:
            if written:
                os.ftruncate(self._fd, self._size)  # half a frame would be the end of the stream
            raise
