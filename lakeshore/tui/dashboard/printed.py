"""The end of what a body printed, as lines, and the last frames that it yielded, in a line each. Pure: bytes come in.

Rules: what is drawn cannot steer the terminal: colours and the like are left out, and of a line that was written over
and over the last writing stays. Reference: docs/guides/dashboard.md, "One row".
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lakeshore.wire.frames import Frame, FrameKind, FrameReader

from ..theme import drawable

LINES: Final = 300
FRAMES: Final = 40
_LONGEST: Final = 2000
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
Said = tuple[str, str]
"""`stdout`, `stderr` or `note`, and the line."""


class Printed:
    """`put` parts in the order in which they were printed."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Another attempt's."""
        self._lines: deque[Said] = deque(maxlen=LINES)
        self._open: dict[str, str] = {}
        self._ends: dict[str, int] = {}

    def put(self, stream: str, offset: int, data: bytes) -> None:
        """`data` was printed there, `offset` bytes after the stream's beginning."""
        missing = offset - self._ends.get(stream, 0)
        if missing > 0:
            self._lines.append(("note", f"{missing:,} bytes of {stream} were not kept"))
        self._ends[stream] = offset + len(data)
        *whole, rest = (self._open.pop(stream, "") + data.decode("utf-8", "replace")).split("\n")
        self._lines.extend((stream, line) for line in whole[-LINES:])
        if rest:
            self._open[stream] = rest[-_LONGEST:]

    def lines(self) -> list[Said]:
        """The last ones, as they may be drawn."""
        last = [*self._lines, *self._open.items()][-LINES:]
        return [(stream, _shown(line)) for stream, line in last]


class Frames:
    """`feed` bytes of the stream after frame `since`."""

    def __init__(self, since: int) -> None:
        self.seq = since
        self._reader = FrameReader()
        self._lines: deque[str] = deque(maxlen=FRAMES)

    def resume(self) -> None:
        """The bytes broke off: what comes begins after `seq`."""
        self._reader = FrameReader()

    def feed(self, data: bytes) -> bool:
        """Whether one of these was the last. FrameError."""
        ended = False
        for frame in self._reader.feed(data):
            self.seq, ended = frame.seq, frame.kind.terminal
            self._lines.append(_told(frame))
        return ended

    def lines(self) -> list[str]:
        """The last ones."""
        return list(self._lines)


def parts_of(answer: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The parts of an answer about what was printed."""
    parts = answer.get("parts")
    return parts if isinstance(parts, list) else ()


def _shown(line: str) -> str:
    last = line.rstrip("\r").rpartition("\r")[2]
    return drawable(_ESCAPES.sub("", last.expandtabs(4)))[:_LONGEST]


def _told(frame: Frame) -> str:
    body, size = frame.body, len(frame.body) if isinstance(frame.body, bytes) else 0
    if frame.kind is FrameKind.ERROR:
        said = f"{(frame.meta or {}).get('type', 'Error')}: {(frame.meta or {}).get('message', '')}"
    elif size:
        said = f"{size:,} bytes"
    else:
        said = "" if body is None and frame.kind is not FrameKind.VALUE else repr(body)[:_LONGEST]
    kind = "" if frame.kind is FrameKind.VALUE else f"{frame.kind.name.lower()} "
    return drawable(f"{frame.seq:>5}  {kind}{said}".rstrip())
