"""A payload on its way up or down, and the digest of what has passed.

Hashing a megabyte takes as long as sending it. So what has left is hashed while the other side is busy with it, and
what has arrived while the rest is under way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_BEHIND = 2 * 1024 * 1024


class HashedBody:
    """Bytes as a file to send. What was read is hashed at the latest two megabytes later, the rest once all of it was
    read: then it has been sent, and the answer is not there yet.
    """

    __slots__ = ("_data", "_digest", "_hashed", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0
        self._hashed = 0
        self._digest = hashlib.sha256()

    def __len__(self) -> int:
        return len(self._data)

    def read(self, size: int, /) -> memoryview:
        """The next piece, of up to `size` bytes; empty at the end."""
        piece = self._data[self._position : self._position + size]
        if not piece or self._position - self._hashed >= _BEHIND:
            self._hash()
        self._position += len(piece)
        return piece

    def seekable(self) -> bool:
        """It may be sent again."""
        return True

    def tell(self) -> int:
        """How many bytes were read."""
        return self._position

    def seek(self, position: int) -> None:
        """Back to `position`; what was hashed stays so, for it is the same again."""
        self._position = position

    def sha256(self) -> str:
        """The digest of all of it, in hex."""
        self._position = len(self._data)
        self._hash()
        return self._digest.hexdigest()

    def _hash(self) -> None:
        if self._position > self._hashed:
            self._digest.update(self._data[self._hashed : self._position])
            self._hashed = self._position


def joined(pieces: Iterable[bytes], size: int) -> tuple[bytes, str]:
    """All of `pieces`, and their sha256 in hex. Stops once there is more than `size` bytes."""
    digest = hashlib.sha256()
    parts: list[bytes] = []
    for piece in pieces:
        digest.update(piece)
        parts.append(piece)
        size -= len(piece)
        if size < 0:
            break
    return b"".join(parts), digest.hexdigest()
