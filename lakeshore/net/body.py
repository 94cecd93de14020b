"""What may be sent as a request's body, and how it is cut into pieces.

bytes go out with the head; a file (anything with `read`) or an iterable of bytes goes out piece by piece, with
`content_length` when it is known and chunked when it is not. A body can be sent a second time if it is bytes, or a
file that can seek.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

PIECE = 256 * 1024


@runtime_checkable
class Readable(Protocol):
    """A binary file, open for reading."""

    def read(self, size: int, /) -> bytes | memoryview: ...


Body = bytes | bytearray | memoryview | Readable | Iterable[bytes] | None


class Upload:
    """A body that is sent in pieces. `replayable` says whether `pieces()` may be called again from the start."""

    __slots__ = ("_source", "_start", "chunked", "content_length", "replayable")

    def __init__(self, source: Readable | Iterable[bytes] | memoryview, content_length: int | None) -> None:
        self._source = source
        self._start: int | None = None
        if isinstance(source, memoryview):
            content_length = source.nbytes
            self.replayable = True
        else:
            self._start = _position(source)
            self.replayable = self._start is not None or isinstance(source, (list, tuple))
        self.content_length = content_length
        self.chunked = content_length is None

    def rewind(self) -> None:
        """Back to where the body began."""
        if self._start is not None:
            self._source.seek(self._start)  # type: ignore[union-attr]  # _position saw seek and tell

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The body, framed; ValueError when it is shorter or longer than `content_length`."""
        framer = Framer(self.content_length)
        for piece in _raw_pieces(self._source):
            if len(piece):
                yield framer.frame(piece)
        if end := framer.finish():
            yield end


class Framer:
    """Frames pieces: as they are and counted when the length is known, else as chunks."""

    __slots__ = ("_left", "content_length")

    def __init__(self, content_length: int | None) -> None:
        self.content_length = content_length
        self._left = content_length

    def frame(self, piece: bytes | memoryview) -> bytes | memoryview:
        """One piece, not empty. ValueError when there is more than `content_length`."""
        if self._left is None:
            return b"%x\r\n%b\r\n" % (len(piece), bytes(piece))
        self._left -= len(piece)
        if self._left < 0:
            raise ValueError("the body is longer than the content_length given; correct one of them")
        return piece

    def finish(self) -> bytes:
        """What follows the last piece. ValueError when there was less than `content_length`."""
        if self._left is None:
            return b"0\r\n\r\n"
        if self._left:
            raise ValueError(f"the body ended {self._left} bytes before the content_length given; correct one of them")
        return b""


def split_body(body: Body, content_length: int | None) -> tuple[bytes, Upload | None]:
    """(what leaves in one write with the head, what leaves in pieces after it)."""
    if body is None:
        return b"", None
    if isinstance(body, bytes) and len(body) <= PIECE:
        return body, None
    if isinstance(body, (bytes, bytearray, memoryview)):
        return b"", Upload(memoryview(body).cast("B"), None)
    return b"", Upload(body, content_length)


def _raw_pieces(source: Readable | Iterable[bytes] | memoryview) -> Iterator[bytes | memoryview]:
    if isinstance(source, memoryview):
        for start in range(0, source.nbytes, PIECE):
            yield source[start : start + PIECE]
    elif isinstance(source, Readable):
        while piece := source.read(PIECE):
            yield piece
    else:
        yield from source


def _position(source: object) -> int | None:
    tell = getattr(source, "tell", None)
    seekable = getattr(source, "seekable", None)
    if tell is None or seekable is None or not seekable():
        return None
    position = tell()
    return position if isinstance(position, int) else None
