"""The output of one command, sent while it runs (nymph/protocol, "exec": `log`).

The command prints into a file of its keeper, stdout and stderr as they come. The sink sends what is new in it to
`stdout_url`, as raw bytes, when `flush_bytes` have gathered or the oldest of them has waited for `flush_ms`. What could
not be sent stays in the file for the next time; while sending fails, no more than `BUFFER_MAX` is kept for it, the
latest, and a line says how much is missing. No failure of the sink is the command's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import trio

from .follow import read_on
from .transport import TransportError

BUFFER_MAX: Final = 1 << 20
READ: Final = 8 << 10
FLUSH_MS: Final = 200
FLUSH_BYTES: Final = 64 << 10
MOST_FLUSH_BYTES: Final = 256 << 10
PAUSE_MAX_S: Final = 5.0
LAST_S: Final = 30.0
"""How long the last of it is tried when the command has ended."""
_REFUSED: Final = range(400, 500)
_NOT_NOW: Final = (401, 408, 425, 429)


class Posts(Protocol):
    """What a sink needs of the transport."""

    async def post_bytes(self, path: str, data: bytes, *, query: Mapping[str, Any]) -> Any:
        """POST raw bytes. TransportError when they were not taken."""


class Sink:
    """One stream of a command. `log` is {stdout_url, flush_ms, flush_bytes}; `file` is what it prints into; `url` is
    where that goes when it is not stdout.
    """

    def __init__(self, posts: Posts, log: Mapping[str, Any], file: str, *, url: str | None = None) -> None:
        place = urlsplit(str(log.get("stdout_url") or "") if url is None else url)
        # of our server: it gets our credential
        self._path = f"{place.path}?{place.query}" if place.query else place.path
        self._posts, self._file = posts, file
        self._flush_s = _number(log.get("flush_ms"), FLUSH_MS) / 1000
        self._flush_bytes = min(int(_number(log.get("flush_bytes"), FLUSH_BYTES)), MOST_FLUSH_BYTES)
        self._offset = 0
        """In the file, of what is not sent yet."""
        self._sent = 0
        """In what was sent, which has the lines about what is missing as well."""
        self._missing = 0
        self._failures = 0
        self._given_up = not self._path

    async def follow(self, ended: trio.Event) -> None:
        """Until everything that was printed before `ended` is sent, or cannot be."""
        look_s = min(max(self._flush_s / 4, 0.01), 0.1)
        since: float | None = None
        deadline: float | None = None
        while not self._given_up:
            over = ended.is_set()
            now = trio.current_time()
            if over and deadline is None:
                deadline = now + LAST_S
            waiting = self._size() - self._offset
            if waiting <= 0:
                if over:
                    return
                since = None
            else:
                since = now if since is None else since
                if over or waiting >= self._flush_bytes or now >= since + self._flush_s:
                    if await self._flush():
                        since, deadline = None, None
                    elif deadline is not None and now >= deadline:
                        return
                    else:
                        await trio.sleep(min(max(self._flush_s, 0.05) * 2 ** min(self._failures, 10), PAUSE_MAX_S))
                    continue
            with trio.move_on_after(look_s if since is None else min(look_s, since + self._flush_s - now)):
                await ended.wait()

    def _size(self) -> int:
        try:
            return os.lstat(self._file).st_size
        except OSError:
            return 0

    async def _flush(self) -> bool:
        """Send a piece. False when it was not taken."""
        if self._failures:
            beyond = self._size() - self._offset - BUFFER_MAX
            if beyond > 0:
                self._offset += beyond
                self._missing += beyond
        chunk = read_on(self._file, self._offset, most=self._flush_bytes + READ)
        missing = self._missing + chunk.skipped
        data = chunk.data
        if missing:
            data = b"\n[log truncated: %d bytes are missing here]\n" % missing + data
        if not data:
            self._offset = chunk.next  # nothing but a hole
            return True
        try:
            await self._posts.post_bytes(self._path, data, query={"offset": self._sent})
        except TransportError as error:
            self._failures += 1
            if error.status in _REFUSED and error.status not in _NOT_NOW:
                self._given_up = True  # the command is over for the server, or was never known
            return False
        self._offset, self._missing, self._failures = chunk.next, 0, 0
        self._sent += len(data)
        return True


def _number(value: Any, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return otherwise
    return min(value, 3_600_000.0)
