"""How a stored payload leaves: inside the answer up to the wire's threshold, else as a signed reference (K-20)."""

from __future__ import annotations

from typing import Any, Final

import trio

from ..plane.blobs import BlobDamaged
from ..plane.contract import BlobRef, Ended, Payload
from .app import App, unpacked
from .blobs import BUCKET

INLINE_TOTAL: Final = 4 * 1024 * 1024


class Outgoing:
    """The payloads of one answer: what of them goes inline is bounded together."""

    __slots__ = ("_app", "_left")

    def __init__(self, app: App) -> None:
        self._app = app
        self._left = INLINE_TOTAL

    async def put(self, into: dict[str, Any], payload: Payload, *, inline: str, reference: str) -> None:
        """Add a payload under one of two names."""
        if type(payload) is bytes:
            self._left -= len(payload)
            into[inline] = payload
            return
        assert isinstance(payload, BlobRef)
        if payload.size <= self._app.blobs.sizes.inline_bytes and payload.size <= self._left:
            data = await self._read(payload)
            if data is not None:
                into[inline] = data
                self._left -= payload.size
                return
        into[reference] = self.reference(payload)

    async def _read(self, blob: BlobRef) -> bytes | None:
        fresh = self._app.blobs.take_fresh(blob.key)
        if fresh is not None:
            return fresh
        try:
            return await trio.to_thread.run_sync(self._app.blobs.blobs.get, blob)
        except (FileNotFoundError, BlobDamaged):
            return None  # whoever fetches the reference finds that out

    def reference(self, blob: BlobRef) -> dict[str, Any]:
        """Where a blob can be fetched for a while."""
        url, expires = self._app.blobs.sign("GET", blob.key, size=blob.size, sha256=blob.sha256)
        return {
            "url": url,
            "bucket": BUCKET,
            "key": blob.key,
            "size": blob.size,
            "sha256": blob.sha256,
            "expires_at": expires,
        }

    async def ended(self, ended: Ended) -> dict[str, Any]:
        """What a waiter is told (K-22)."""
        if not ended.terminal:
            told: dict[str, Any] = {"state": ended.state}
            if ended.row_state is not None:
                told["row_state"] = ended.row_state
            return told
        told = {"state": ended.state, "error": unpacked(ended.error), "attempt": ended.attempt}
        if ended.state == "succeeded":
            await self.put(told, ended.result, inline="result_blob", reference="result_ref")
        else:
            told["result_blob"] = None
        return told
