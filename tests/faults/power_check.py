"""What is in a state directory that a power cut left, read with the plane's own code, against what was promised."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from power_load import Promise

from lakeshore.plane import frames, rows
from lakeshore.plane.contract import TERMINAL, BlobRef, Payload
from lakeshore.plane.directories import make_directories
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL
from lakeshore.plane.transaction import payload_of
from lakeshore.server.records import Records
from lakeshore.server.state import open_state

NS = "default"
_known: dict[tuple[int, int], str] = {}
"""Digests of files that the cuts share: they never change."""


@functools.cache
def digest_of(promise: Promise) -> str:
    """Of what was promised."""
    return hashlib.sha256(promise.data).hexdigest()


class Broken(AssertionError):
    """A promise that the state does not keep, or a state that contradicts itself."""


class Reopened:
    """A state directory, opened as a server opens it, or with `database` a local plane."""

    def __init__(self, root: Path, *, database: str | None = None) -> None:
        self._stack = contextlib.ExitStack()
        self._frames: dict[int, dict[int, bytes]] = {}
        self._arguments: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.admin_token = ""
        try:
            if database is None:
                state = open_state(root, {})
                self._stack.callback(state.close)
                self.admin_token = state.admin_token
                records = Records(state.records)
                self._stack.callback(records.close)
                self.tokens = {token.name for token in records.tokens(NS)}
                self.plane = Plane(str(state.database), files=root)
            else:
                files = root / f"{database}.d"
                make_directories(files)
                self.plane = Plane(str(root / database), files=files, shared=True)
            self._stack.callback(self.plane.close)
        except BaseException:
            self._stack.close()
            raise
        self.rows = {row["id"]: row for row in rows.page(self.plane.rows, NS, limit=1_000_000)}

    def close(self) -> None:
        self._stack.close()

    # -- by itself

    def check(self) -> None:
        """The state is whole: pages, counts, files, frames."""
        (said,) = self.plane.conn.execute("PRAGMA quick_check").fetchone()
        if said != "ok":
            raise Broken(f"the database is damaged: {said}")
        counted: dict[tuple[str, str], int] = {}
        for row in self.rows.values():
            counted[row["queue"], row["state"]] = counted.get((row["queue"], row["state"]), 0) + 1
        told = {(queue, state): n for ns, queue, state, n in self.plane.rows(SQL.tallies, {}) if ns == NS}
        if counted != told:
            raise Broken(f"counts {told} are not those of the rows, {counted}")
        for row in self.rows.values():
            self._args(row)
            if row["state"] == "succeeded":
                ended = rows.ended(self.plane.rows, NS, row["id"])
                self._digest(ended.result, f"result of {row['id']}")
            indexed = self.plane.rows(SQL.frames_since, {"channel": row["seq"], "since": -1, "limit": 10_000})
            if len(self.frames(row["seq"])) != len(indexed):
                raise Broken(f"a frame of {row['id']} is indexed and damaged")

    def frames(self, channel: int) -> dict[int, bytes]:
        """The frames of a channel that are whole."""
        if channel not in self._frames:
            found, _ = frames.read(self.plane.rows, self.plane.journal, channel, -1, limit=10_000)
            self._frames[channel] = {seq: data for seq, data, _final in found}
        return self._frames[channel]

    def _args(self, row: dict[str, Any]) -> str:
        if row["id"] not in self._arguments:
            found = self.plane.rows(SQL.args, {"seq": row["seq"]})
            if not found:
                raise Broken(f"{row['id']} has no arguments")
            self._arguments[row["id"]] = self._digest(payload_of(found[0]), f"arguments of {row['id']}")
        return self._arguments[row["id"]]

    def _digest(self, payload: Payload, what: str) -> str:
        if isinstance(payload, bytes):
            return hashlib.sha256(payload).hexdigest()
        return self._digest_of(payload, what)

    def _digest_of(self, blob: BlobRef, what: str) -> str:
        try:
            stat = self.plane.blobs.path(blob.key).stat()
            key = (stat.st_dev, stat.st_ino)
            if stat.st_nlink > 1 and key in _known:
                digest = _known[key]
            else:
                digest = hashlib.sha256(self.plane.blobs.path(blob.key).read_bytes()).hexdigest()
                if stat.st_nlink > 1:
                    _known[key] = digest
        except OSError as error:
            raise Broken(f"the {what}: {error}") from error
        if blob.sha256 is not None and digest != blob.sha256:
            raise Broken(f"the {what} are other bytes than were stored: {blob.key}")
        return digest

    # -- what was promised

    def keeps(self, promises: Iterable[tuple[str, Promise]]) -> None:
        """Raise Broken for the first one that is not kept."""
        for what, promise in promises:
            why = getattr(self, f"_{promise.kind}")(promise)
            if why is not None:
                raise Broken(f"a success of {what!r} was sent, but {promise.kind} {promise.id}: {why}")

    def _row(self, promise: Promise) -> dict[str, Any]:
        if promise.id not in self.rows:
            raise Broken(f"{promise.kind} {promise.id} was acknowledged, and there is no such row")
        return self.rows[promise.id]

    def _submitted(self, promise: Promise) -> str | None:
        same = self._args(self._row(promise)) == digest_of(promise)
        return None if same else "its arguments are not what was sent"

    def _claimed(self, promise: Promise) -> str | None:
        row = self._row(promise)
        return None if row["claim"] >= promise.claim else f"claim {promise.claim} is not there: {row['claim']}"

    def _returned(self, promise: Promise) -> str | None:
        row = self._row(promise)
        back = row["claim"] > promise.claim or (row["claim"] == promise.claim and row["state"] != "running")
        return None if back else f"the row is {row['state']} under claim {row['claim']}"

    def _succeeded(self, promise: Promise) -> str | None:
        row = self._row(promise)
        if (row["state"], row["claim"]) != ("succeeded", promise.claim):
            return f"the row is {row['state']} under claim {row['claim']}"
        result = rows.ended(self.plane.rows, NS, promise.id).result
        same = self._digest(result, f"result of {promise.id}") == digest_of(promise)
        return None if same else "its result is not what was sent"

    def _ended(self, promise: Promise) -> str | None:
        row = self._row(promise)
        over = row["state"] in TERMINAL or row["claim"] > promise.claim > 0
        return None if over else f"the row is {row['state']}"

    def _cancelling(self, promise: Promise) -> str | None:
        row = self._row(promise)
        return None if row["cancel_requested"] or row["state"] in TERMINAL else "nobody asked it to stop"

    def _frame(self, promise: Promise) -> str | None:
        found = self.frames(self._row(promise)["seq"]).get(promise.seq)
        return None if found == promise.data else f"frame {promise.seq} is {'gone' if found is None else 'other bytes'}"

    def _posted(self, promise: Promise) -> str | None:
        channel = rows.topic_channel(self.plane.rows, NS, promise.id, "t")
        found = None if channel is None else self.frames(channel).get(promise.seq)
        if found is None:
            return f"post {promise.seq} is gone"
        return None if found == frames.value_frame(promise.seq, promise.data) else "it is other bytes"

    def _session(self, promise: Promise) -> str | None:
        found = self.plane.rows(SQL.worker_of, {"ns": NS, "id": promise.id})
        return None if found and found[0][0] == "s" else "the session is not registered"

    def _token(self, promise: Promise) -> str | None:
        return None if promise.id in self.tokens else "the token is gone"

    def _minted(self, promise: Promise) -> str | None:
        return None if self.admin_token == promise.data.decode() else "the token is another one"

    def _stored(self, promise: Promise) -> str | None:
        ref = BlobRef(key=promise.id, size=len(promise.data), sha256=digest_of(promise))
        self._digest_of(ref, f"upload {promise.id}")
        return None
