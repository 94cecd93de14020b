"""What a generator's invocation has yielded: each value's frame, and the one value that the invocation returns.

That value is the list of the yields, or for a key stream the concatenated manifest. Yields are kept packed: what a body
does to a value after yielding it changes nothing. A stream whose yields together exceed what a result may carry goes on
without one: its result is None, its frames are all there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import msgpack

from lakeshore import wire
from lakeshore.wire.messages import MAX_PAYLOAD_BYTES

from .keys import keys_in, manifest_of, normal

log = logging.getLogger(__name__)
_HEADER = msgpack.Packer()
_ROOM = MAX_PAYLOAD_BYTES - 16


class Yields:
    """The frames of one execution, `seq` continuing from `first_seq` (K-23)."""

    def __init__(self, first_seq: int, attempt: int) -> None:
        self._writer = wire.FrameWriter(first_seq, attempt=attempt)
        self._after = len(wire.pack({"attempt": attempt}))
        self._bodies: list[bytes] = []
        self._size = 0
        self._manifests: list[Any] | None = []

    def add(self, item: Any) -> tuple[int, bytes]:
        """The seq and the VALUE frame of the next yield. Raises what `wire.pack` raises."""
        seq = self._writer.next_seq
        frame = self._writer.value(item)
        # A frame is the array [kind, seq, body, meta]: the body lies between two parts of known length.
        self._keep(frame[2 + len(wire.pack(seq)) : len(frame) - self._after])
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
            return wire.pack(None)
        if self._manifests:
            return wire.pack(manifest_of(self._manifests, set(map(normal, written))))
        return bytes(_HEADER.pack_array_header(len(self._bodies))) + b"".join(self._bodies)

    def _keep(self, body: bytes) -> None:
        self._size += len(body)
        if self._size <= _ROOM:
            self._bodies.append(body)
        else:
            self._bodies.clear()
            self._manifests = None
