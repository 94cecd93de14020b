"""A chunked body's bytes taken apart: sizes, pieces, trailers. No I/O. What readers could see differently is refused.

Stricter than h11, which it is held against in the tests: every line ends in CR LF, extensions and trailers hold no
control characters, trailers are not folded and frame nothing. They are read past and mean nothing here.
"""

from __future__ import annotations

import re

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[\t -~\x80-\xff]*)?[ \t]*")
_TRAILER = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+:[\t -~\x80-\xff]*")
_FRAMING = re.compile(rb"(?:content-length|transfer-encoding|host):", re.IGNORECASE)
_LINE_LIMIT = 4096
_TRAILERS_LIMIT = 16 * 1024


class MalformedChunks(ValueError):
    """These bytes are no chunked body."""


class ChunkReader:
    """Feed it bytes, ask it for pieces. After the end, `rest` is what came behind the body."""

    __slots__ = ("_at", "_data", "_in_trailers", "_left", "_trailers", "ended")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._left = -2  # bytes of the chunk to come, its line end included; -2: a size line is next
        self._in_trailers = False
        self._trailers = 0
        self.ended = False

    @property
    def announced(self) -> int:
        """Bytes of the body that are announced and were not given out yet."""
        return max(self._left, 0)

    @property
    def rest(self) -> bytes:
        """What was not used."""
        return self._data[self._at :]

    def feed(self, data: bytes) -> None:
        """Some more bytes."""
        self._data = self._data[self._at :] + data
        self._at = 0

    def next_piece(self) -> bytes | None:
        """The next bytes of the body; None when more must be fed first, or it has `ended`. Raises MalformedChunks."""
        while not self.ended:
            if self._left > 0:
                piece = self._data[self._at : self._at + self._left]
                self._at += len(piece)
                self._left -= len(piece)
                return piece or None
            if self._left == 0:  # the line end of a chunk
                if not b"\r\n".startswith(self._data[self._at : self._at + 2]):
                    raise MalformedChunks("a chunk is longer than it says")
                if len(self._data) - self._at < 2:
                    return None
                self._at += 2
                self._left = -2
            line = self._line()
            if line is None:
                return None
            if self._in_trailers:
                self._read_trailer(line)
            else:
                self._read_size(line)
        return None

    def _line(self) -> bytes | None:
        end = self._data.find(b"\n", self._at, self._at + _LINE_LIMIT)
        if end < 0:
            if len(self._data) - self._at >= _LINE_LIMIT:
                raise MalformedChunks("a line is too long")
            return None
        if self._data[end - 1 : end] != b"\r" or end == self._at:
            raise MalformedChunks("bare line feed")
        line = self._data[self._at : end - 1]
        self._at = end + 1
        return line

    def _read_size(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            raise MalformedChunks("not a chunk size")
        size = int(match.group(1), 16)
        self._in_trailers = size == 0
        self._left = size or -2

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.ended = True
            return
        self._trailers += len(line)
        if self._trailers > _TRAILERS_LIMIT or not _TRAILER.fullmatch(line) or _FRAMING.match(line):
            raise MalformedChunks("malformed trailer")
