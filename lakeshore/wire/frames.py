"""Frames: what a streaming invocation writes, one msgpack array `[kind, seq, body, meta]` each (api/function-protocol).

    0 VALUE   body is one value                        3 END    the producer finished; a body is the last value
    1 CHUNK   body is bytes, a slice of one value      4 ERROR  the producer raised; meta is {type, message}
    2 BEGIN   opens a run of CHUNKs; meta may hold {total, content_type}

`seq` rises by one from 0 within an invocation, over retries too; `meta.attempt` tells executions apart (K-23). END and
ERROR are terminal: a stream that stops without one was cut, it did not finish. Frames need no delimiter: they may be
concatenated and split anywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgpack

from lakeshore.wire.codec import ext_hook, pack, reading_error, unpack
from lakeshore.wire.errors import FrameError, RemoteFailure, WireError
from lakeshore.wire.messages import MAX_PAYLOAD_BYTES

CHUNK_BYTES: Final = 256 * 1024
# One frame holds at most one payload, with a little around it.
MAX_FRAME_BYTES: Final = MAX_PAYLOAD_BYTES + 64 * 1024
_FEED: Final = 64 * 1024  # what is handed to the unpacker at once, so that many small frames never look like a big one


class FrameKind(IntEnum):
    """What a frame is."""

    VALUE = 0
    CHUNK = 1
    BEGIN = 2
    END = 3
    ERROR = 4

    @property
    def terminal(self) -> bool:
        """Whether nothing follows."""
        return self >= FrameKind.END


_KINDS: Final = tuple(FrameKind)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `meta` is a map or None, kept as it came."""

    kind: FrameKind
    seq: int
    body: Any = None
    meta: dict[str, Any] | None = None

    def to_bytes(self) -> bytes:
        """The frame on the wire. Raises what `pack` raises for a body that does not travel."""
        return pack([int(self.kind), self.seq, self.body, self.meta])

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Frame:
        """Exactly one frame. Raises FrameError."""
        try:
            return cls._from_array(unpack(data))
        except FrameError:
            raise
        except WireError as exc:
            raise FrameError(f"not a frame: {exc}") from exc

    @classmethod
    def _from_array(cls, raw: Any) -> Frame:
        if type(raw) is not list or len(raw) != 4:
            raise FrameError("not a frame: a frame is an array [kind, seq, body, meta]")
        kind, seq, body, meta = raw
        if type(kind) is not int or not 0 <= kind < len(_KINDS):
            raise FrameError(
                f"a frame of the unknown kind {kind!r:.40}: its writer is newer, upgrade dreamlake-lakeshore here"
            )
        if type(seq) is not int or seq < 0:
            raise FrameError(f"a frame's seq is an int from 0 on (got {seq!r:.40})")
        if meta is not None and type(meta) is not dict:
            raise FrameError(f"a frame's meta is a map or null (got {type(meta).__name__})")
        if kind == FrameKind.CHUNK and type(body) is not bytes:
            raise FrameError(f"a CHUNK's body is bytes (got {type(body).__name__})")
        return cls(_KINDS[kind], seq, body, meta)


def peek(data: bytes) -> tuple[FrameKind, int]:
    """(kind, seq) of a frame without decoding its body: for whoever stores frames. Raises FrameError."""
    # The limits are for a hostile header: whatever it claims, nothing of that size is allocated.
    unpacker = msgpack.Unpacker(max_buffer_size=64, read_size=64, max_array_len=4, max_map_len=4)
    unpacker.feed(data[:16])
    try:
        size, kind, seq = unpacker.read_array_header(), unpacker.unpack(), unpacker.unpack()
    except (ValueError, TypeError, msgpack.OutOfData) as exc:
        raise FrameError("not a frame: a frame is an array [kind, seq, body, meta]") from exc
    return (head := Frame._from_array([kind, seq, b"", None] if size == 4 else [])).kind, head.seq


def end_frame(seq: int, body: Any = None, meta: dict[str, Any] | None = None) -> bytes:
    """The frame of a producer that finished."""
    return pack([3, seq, body, meta])


def error_frame(seq: int, type: str, message: str, meta: dict[str, Any] | None = None) -> bytes:
    """The frame of a producer that raised."""
    return pack([4, seq, None, {**(meta or {}), "type": type, "message": message}])


class FrameWriter:
    """Makes frames and counts their `seq`, from `start` on. `attempt` goes into each frame's meta (K-23).

    Not for several threads: a seq is taken when the bytes are made.
    """

    def __init__(self, start: int = 0, *, attempt: int | None = None) -> None:
        self.next_seq = start
        self._meta = None if attempt is None else {"attempt": attempt}

    def value(self, value: Any) -> bytes:
        """One VALUE. Raises what `pack` raises; no seq is used up then."""
        return self._frame(FrameKind.VALUE, value, self._meta)

    def chunks(
        self, data: bytes | bytearray | memoryview, size: int = CHUNK_BYTES, *, content_type: str | None = None
    ) -> Iterator[bytes]:
        """BEGIN and the CHUNKs of one large value, `size` bytes each. Write all of them before any other frame."""
        if size < 1:
            raise ValueError(f"chunks are of at least one byte (got size={size})")
        view = memoryview(data).cast("B")
        meta: dict[str, Any] = {**(self._meta or {}), "total": len(view)}
        if content_type is not None:
            meta["content_type"] = content_type
        yield self._frame(FrameKind.BEGIN, None, meta)
        for at in range(0, len(view), size):
            yield self._frame(FrameKind.CHUNK, view[at : at + size], self._meta)

    def end(self, body: Any = None) -> bytes:
        """The END; a body is delivered as the last value."""
        return self._frame(FrameKind.END, body, self._meta)

    def error(self, type: str, message: str) -> bytes:
        """The ERROR."""
        return self._frame(FrameKind.ERROR, None, {**(self._meta or {}), "type": type, "message": message})

    def _frame(self, kind: FrameKind, body: Any, meta: dict[str, Any] | None) -> bytes:
        data = pack([int(kind), self.next_seq, body, meta])
        self.next_seq += 1
        return data


class FrameReader:
    """Frames out of bytes that were split anywhere.

    `reader.feed(data)` takes the bytes and returns an iterator of the frames that are complete; what it has not yielded
    is not lost, the next feed goes on with it. `for frame in FrameReader(chunks)` reads a whole source. FrameError for
    what is no frame, and for one above `max_buffer` bytes; the reader is of no use afterwards and says so again.
    """

    def __init__(self, source: Iterable[bytes] = (), *, max_buffer: int = MAX_FRAME_BYTES) -> None:
        self._source = source
        self._max_buffer = max_buffer
        self._step = min(_FEED, max_buffer)
        self._unpacker = msgpack.Unpacker(
            ext_hook=ext_hook,
            strict_map_key=False,
            max_buffer_size=max_buffer + self._step,
            read_size=min(16 * 1024, max_buffer),
        )
        self._waiting: deque[memoryview] = deque()
        self._fed = 0
        self._read = 0
        self._broken: FrameError | None = None

    @property
    def pending(self) -> bool:
        """Whether bytes of an unfinished frame are held: at the end of a source this means that it was cut."""
        return bool(self._waiting) or self._fed > self._read

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Take bytes; iterate over the frames they complete."""
        return map(self.frame, self.arrays(data))

    def arrays(self, data: bytes | bytearray | memoryview) -> Iterator[Any]:
        """As `feed`, each as it was decoded and before it is checked: hand it to `frame`."""
        if data:
            self._waiting.append(memoryview(bytes(data)))
        return self._arrays()

    def frame(self, raw: Any) -> Frame:
        """One of `arrays` as a frame."""
        try:
            return Frame._from_array(raw)
        except FrameError as exc:
            self._broken = exc
            raise

    def __iter__(self) -> Iterator[Frame]:
        for data in self._source:
            yield from self.feed(data)

    def _arrays(self) -> Iterator[Any]:
        unpack, tell = self._unpacker.unpack, self._unpacker.tell
        while True:
            if self._broken is not None:
                raise self._broken
            try:
                raw = unpack()
            except msgpack.OutOfData:
                if self._fed - self._read > self._max_buffer:
                    self._broken = FrameError(f"a frame of more than {self._max_buffer} bytes")
                    continue
                if not self._waiting:
                    return
                self._refill()
                continue
            except (ValueError, TypeError, RecursionError, MemoryError) as exc:
                self._broken = FrameError(f"not a frame: {reading_error(exc)}")
                raise self._broken from exc
            self._read = tell()
            yield raw

    def _refill(self) -> None:
        step = self._step
        chunk = self._waiting[0]
        self._unpacker.feed(chunk[:step])
        self._fed += min(step, len(chunk))
        if len(chunk) > step:
            self._waiting[0] = chunk[step:]
        else:
            self._waiting.popleft()


class _Run:
    """The CHUNKs of one large value, as far as they have come."""

    __slots__ = ("attempt", "parts", "size", "total")

    def __init__(self, meta: dict[str, Any]) -> None:
        total = meta.get("total")
        if total is not None and (type(total) is not int or total < 0):
            raise FrameError(f"a BEGIN's total is a number of bytes (got {total!r:.40})")
        self.total: int | None = total
        self.attempt = meta.get("attempt")
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)
        if self.total is not None and self.size > self.total:
            raise FrameError(f"a run of CHUNKs is longer than the {self.total} bytes that its BEGIN names")

    @property
    def complete(self) -> bool:
        return self.size == self.total

    def value(self) -> bytes:
        return b"".join(self.parts)


class Joiner:
    """Values out of frames that are given one by one: `reassemble` says what becomes of which. `end` is the END."""

    __slots__ = ("end", "run")

    def __init__(self) -> None:
        self.end: Frame | None = None
        self.run: _Run | None = None
        """The CHUNKs that have come of a value. While there are none, a VALUE frame is its body and nothing else."""

    def take(self, frame: Frame) -> Iterator[Any]:
        """The values that this frame completes. Raises RemoteFailure and FrameError."""
        kind, meta, run = frame.kind, frame.meta or {}, self.run
        if kind is FrameKind.CHUNK:
            if run is None:
                raise FrameError(f"the CHUNK with seq {frame.seq} has no BEGIN: read the stream from before its run")
            run.add(frame.body)
        else:
            self.run = None
            if run is not None and kind is not FrameKind.ERROR:
                attempt = meta.get("attempt")
                replaced = attempt != run.attempt and (attempt is not None or run.total is not None)
                if run.total is None and not replaced:
                    yield run.value()  # without a total the next frame is what ends a run
                elif not replaced:
                    raise FrameError(f"a run of CHUNKs ends after {run.size} of {run.total} bytes (seq {frame.seq})")
            if kind is FrameKind.VALUE:
                yield frame.body
            elif kind is FrameKind.BEGIN:
                self.run = _Run(meta)
            elif kind is FrameKind.ERROR:
                raise RemoteFailure(str(meta.get("type", "Error")), str(meta.get("message", "")), dict(meta))
            else:
                self.end = frame
                if frame.body is not None:
                    yield frame.body
        run = self.run
        if run is not None and run.complete:
            self.run = None
            yield run.value()


def reassemble(frames: Iterable[Frame]) -> Generator[Any, None, Frame | None]:
    """The values of a stream; a run of CHUNKs comes as one `bytes`.

    The generator's return value is the END frame, or None if `frames` ended without one (the stream was cut: resume
    with the seq of the last frame that was read; a value whose run is incomplete was not yielded). ERROR raises
    RemoteFailure. FrameError for runs that do not fit. An incomplete run that a newer attempt replaces is dropped.
    """
    joiner = Joiner()
    for frame in frames:
        yield from joiner.take(frame)
        if joiner.end is not None:
            return joiner.end
    return None


class ValueReader:
    """The values of a stream out of bytes that were split anywhere, by the rules of `reassemble`.

    `seq` is the last frame's that was read, `ended` whether that was the END. Where the bytes break off, `resume()`
    and feed what comes after `seq`.
    """

    def __init__(self, since: int = -1) -> None:
        self.seq = since
        self._joiner = Joiner()
        self._reader = FrameReader()

    @property
    def ended(self) -> bool:
        """Nothing follows."""
        return self._joiner.end is not None

    def resume(self) -> None:
        """Forget the part of a frame that has come."""
        self._reader = FrameReader()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take bytes; iterate over the values they complete. Raises RemoteFailure at an ERROR, and FrameError."""
        joiner, reader = self._joiner, self._reader
        for raw in reader.arrays(data):
            if joiner.run is None and type(raw) is list and len(raw) == 4:
                # Nearly every frame of nearly every stream is this one: it costs no object of its own.
                kind, seq, body, meta = raw
                if kind == 0 and type(kind) is type(seq) is int and seq >= 0 and (meta is None or type(meta) is dict):
                    self.seq = seq
                    yield body
                    continue
            frame = reader.frame(raw)
            self.seq = frame.seq
            yield from joiner.take(frame)
            if joiner.end is not None:
                return
