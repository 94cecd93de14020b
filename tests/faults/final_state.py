"""What there is in the end, read for the checker: from a state directory that no server has open, or from a server."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lakeshore import wire
from lakeshore.plane.journal import FrameDamaged, Journal, Location
from lakeshore.sdk.http_dispatch import HttpDispatch


class Damaged(Exception):
    """What is stored is not what was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. What a source does not tell is None; `seq` is its own affair."""

    id: str
    ns: str
    queue: str
    state: str
    claim: int
    attempt: int
    error: dict[str, Any] | None
    settled_claim: int | None = None
    settled_as: str | None = None
    last_frame: int | None = None
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One frame as it is stored. A server does not tell whose claim wrote it."""

    seq: int
    data: bytes
    claim: int | None = None


class FinalState(Protocol):
    """Where the checker looks."""

    def rows(self) -> list[Row]: ...
    def counts(self) -> dict[tuple[str, str, str], int]:
        """The kept counts by (namespace, queue, state), without zeros."""

    def result(self, row: Row) -> bytes:
        """Raises Damaged, and LookupError when there is none."""

    def frames(self, row: Row) -> list[Stored]:
        """Raises Damaged."""

    def damage(self) -> list[str]:
        """What the storage itself says is broken."""


class StateDirectory:
    """A state directory (`lakeshore.db`, `journal/`, `blobs/`), read without a server; nothing of ours reads the rows.

    A local plane keeps `plane.sqlite` beside `plane.sqlite.d/`: name the database too.
    """

    def __init__(self, directory: Path, database: Path | None = None) -> None:
        self._blobs = directory / "blobs"
        self._conn = sqlite3.connect(database or directory / "lakeshore.db")
        self._journal = Journal(directory / "journal", sync=False)

    def close(self) -> None:
        self._journal.close()
        self._conn.close()

    def __enter__(self) -> StateDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def damage(self) -> list[str]:
        return [f"integrity_check: {said}" for (said,) in self._all("PRAGMA integrity_check") if said != "ok"]

    def rows(self) -> list[Row]:
        columns = "seq, id, ns, queue, state, claim, attempt, error, settled_claim, settled_as, last_frame"
        names = columns.split(", ")
        found = [dict(zip(names, row, strict=True)) for row in self._all(f"SELECT {columns} FROM invocation")]
        return [Row(**{**row, "error": row["error"] and wire.unpack(row["error"])}) for row in found]

    def counts(self) -> dict[tuple[str, str, str], int]:
        return {(ns, queue, state): n for ns, queue, state, n in self._all("SELECT * FROM tally WHERE n != 0")}

    def result(self, row: Row) -> bytes:
        found = self._all("SELECT data, blob, size, sha256 FROM result WHERE seq = ?", row.seq)
        if not found:
            raise LookupError("no result is stored")
        data, blob, size, sha256 = found[0]
        if blob is not None:
            try:
                data = (self._blobs / blob).read_bytes()
            except OSError as exc:
                raise Damaged(f"its file cannot be read: {exc}") from exc
            if hashlib.sha256(data).hexdigest() != sha256:
                raise Damaged(f"blobs/{blob} has another sha256 than its row says")
        if len(data) != size:
            raise Damaged(f"{len(data)} bytes are stored, the row says {size}")
        return bytes(data)

    def frames(self, row: Row) -> list[Stored]:
        query = "SELECT seq, claim, segment, offset, length FROM frame WHERE channel = ? ORDER BY seq"
        try:
            return [
                Stored(seq=seq, claim=claim, data=self._journal.read(row.seq, claim, seq, Location(**where)))
                for seq, claim, *place in self._all(query, row.seq)
                for where in [dict(zip(("segment", "offset", "length"), place, strict=True))]
            ]
        except FrameDamaged as exc:
            raise Damaged(str(exc)) from exc

    def _all(self, query: str, *values: object) -> list[Any]:
        return self._conn.execute(query, values).fetchall()


class Served:
    """One namespace of a running server, as an operator and a producer see it."""

    def __init__(self, url: str, *, token: str | None = None, namespace: str = "default") -> None:
        self._url, self._namespace = url, namespace
        self._headers = {"Accept": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._plane = HttpDispatch(url, token=token, namespace=namespace)

    def close(self) -> None:
        self._plane.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def damage(self) -> list[str]:
        return []

    def rows(self) -> list[Row]:
        return [
            Row(
                id=told["id"],
                ns=told["namespace"],
                queue=told["queue"],
                state=told["state"],
                claim=told["claim"],
                attempt=told["attempt"],
                error=told["error"],
            )
            for told in self._listed()
        ]

    def counts(self) -> dict[tuple[str, str, str], int]:
        queues = {told["queue"] for told in self._listed()}
        states = ("queued", "running", "succeeded", "failed", "killed", "timeout")
        counted = {(self._namespace, q, s): self._plane.count(q, s) for q in queues for s in states}
        return {key: n for key, n in counted.items() if n}

    def result(self, row: Row) -> bytes:
        return self._plane.result(row.id, timeout=30.0)

    def frames(self, row: Row) -> list[Stored]:
        return [Stored(seq=seq, data=data) for seq, data in self._plane.journal_read(row.id, timeout=30.0)]

    def _listed(self) -> Iterator[dict[str, Any]]:
        before: int | None = 0
        while before is not None:
            cursor = f"&before={before}" if before else ""
            path = f"/v1/namespaces/{self._namespace}/invocations?limit=200{cursor}"
            request = urllib.request.Request(self._url + path, headers=self._headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                page = json.load(answer)
            yield from page["invocations"]
            before = page.get("next")
