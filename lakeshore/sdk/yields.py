"""What a generator's invocation has yielded: each value's frame, and the one value that the invocation returns.

That value is the list of the yields, or for a key stream the concatenated manifest. Yields are kept packed: what a body
does to a value after yielding it changes nothing. A stream whose yields together exceed what a result may carry goes on
without one: its result is None, its frames are all there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any

import msgpack

from lakeshore.wire.codec import pack
from lakeshore.wire.frames import FrameKind
from lakeshore.wire.messages import MAX_PAYLOAD_BYTES

from .keys import keys_in, manifest_of, normal

log = logging.getLogger(__name__)
_VALUE = int(FrameKind.VALUE)
_HEADER = msgpack.Packer()
_ROOM = MAX_PAYLOAD_BYTES - 16


class Yields:
    """The frames of one execution, `seq` continuing from `first_seq` (K-23)."""

    def __init__(self, first_seq: int, attempt: int) -> None:
        self._next = first_seq
        self._meta = {"attempt": attempt}
        # A frame is the array [kind, seq, body, meta]: its body lies between two parts of known length.
        self._after = len(pack(self._meta))
        self._before = 2 + len(pack(first_seq))
        self._wider_at = _wider_after(first_seq)
        self._kept: list[bytes] = []  # the frames, so that nothing is copied while the body runs
        self._first = first_seq
        self._size = 0
        self._manifests: list[Any] | None = []

    def add(self, item: Any) -> tuple[int, bytes]:
        """The seq and the VALUE frame of the next yield. Raises what `wire.pack` raises; no seq is used up then."""
        seq = self._next
        frame = pack([_VALUE, seq, item, self._meta])
        self._next = seq + 1
        if seq == self._wider_at:
            self._before, self._wider_at = 2 + len(pack(seq)), _wider_after(seq)
        self._size += len(frame) - self._before - self._after
        if self._size <= _ROOM:
            self._kept.append(frame)
        else:
            self._kept.clear()
            self._manifests = None
        if self._manifests is not None:
            if keys_in(item) is None:
                self._manifests = None
            else:
                self._manifests.append(item.copy() if isinstance(item, list | dict) else item)
        return seq, frame

    def packed(self, written: Collection[str]) -> bytes:
        """The packed value of the whole stream; `written` are the keys that the body wrote."""
        if self._size > _ROOM:
            log.warning("a stream of %d bytes is too large for a result: its result is None", self._size)
            return pack(None)
        if self._manifests:
            return pack(manifest_of(self._manifests, set(map(normal, written))))
        return bytes(_HEADER.pack_array_header(len(self._kept))) + b"".join(self._bodies())

    def _bodies(self) -> Iterator[bytes]:
        after, wider_at = self._after, self._first
        for seq, frame in enumerate(self._kept, self._first):
            if seq == wider_at:
                before, wider_at = 2 + len(pack(seq)), _wider_after(seq)
            yield frame[before : len(frame) - after]


def _wider_after(seq: int) -> int:
    """The next seq that takes more bytes than this one."""
    return next(limit for limit in (1 << 7, 1 << 8, 1 << 16, 1 << 32, 1 << 64) if seq < limit)
