"""The commands on disk: one small SQLite file, `execs.db`, in the state directory.

A file of its own, because commands carry their input and output, come and go by the thousand and are forgotten in a
week, while the records are read into memory whole: what is wrong with one file costs the other nothing. A submit, a
hand-out, a cancel and an end are on disk before anybody is told (K-29), each in a batch with whatever came meanwhile.
"""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgpack

from ...plane.contract import BlobRef
from ..committed import Committed
from ..records.file import File
from ..records.statements import load
from ..writer import Writer
from .job import Delivery, ExecRow, NewExec, Open, Result, state_of

SQL: Final = load(__package__)
SCHEMA_VERSION: Final = 1


class Store:
    """The open file. Raises RecordsError."""

    def __init__(self, path: Path) -> None:
        self.file = File(path, package=__package__, schema=SQL.schema, version=SCHEMA_VERSION, shrinks=True)
        self.writer = Writer(self.file)
        self._committed = Committed(str(path), self.file.conn, self.writer)

    def close(self) -> None:
        """Close it. What was committed stays."""
        self._committed.close()
        self.file.close()

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Read what is committed."""
        return self._committed.rows(statement, values or {})

    def unended(self) -> list[Open]:
        """Those that have not ended, the oldest first."""
        found = []
        for seq, id_, ns, worker, state, session, n, cancelled_at, created_at, size in self.rows(SQL.open):
            found.append(
                Open(
                    seq=seq,
                    id=id_,
                    ns=ns,
                    worker=worker,
                    state=state,
                    created_at=created_at,
                    size=size,
                    session=session,
                    delivery=Delivery() if session is None else Delivery({n or 0}),
                    cancelled_at=cancelled_at,
                )
            )
        return found

    def show(self, ns: str, id_: str) -> ExecRow | None:
        """One row, with its output."""
        found = self.rows(SQL.show, {"ns": ns, "id": id_})
        return _row(found[0]) if found else None

    def listing(
        self, ns: str, *, worker: str | None, queue: str | None, states: Sequence[str], limit: int, offset: int
    ) -> list[ExecRow]:
        """Rows without their output, the newest first."""
        values = {
            "ns": ns,
            "worker": worker,
            "queue": queue,
            "states": f",{','.join(states)}," if states else "",
            "limit": limit,
            "offset": offset,
        }
        return [_row(found) for found in self.rows(SQL.list, values)]


# --- verbs: what a batch runs


def add(conn: sqlite3.Connection, new: NewExec, id_: str, now: float, session: str | None = None) -> int:
    """Insert one, handed out already to `session`; its number."""
    values = {
        "id": id_,
        "ns": new.ns,
        "worker": new.worker,
        "queue": new.queue,
        "command": new.command,
        "env": msgpack.packb(new.env) if new.env else None,
        "stdin_b64": base64.b64encode(new.stdin).decode() if new.stdin else None,
        "workdir": new.workdir,
        "timeout_s": new.timeout_s,
        "log": new.log,
        "payload_inline": new.payload_inline,
        "payload_ref": _packed(new.payload_ref),
        "session": session,
        "now": now,
    }
    ((seq,),) = conn.execute(SQL.add, values).fetchall()
    return int(seq)


def hand_out(
    conn: sqlite3.Connection, seqs: Sequence[int], session: str, n: int | None, now: float
) -> list[dict[str, Any]]:
    """Note that these are handed out; the bodies of those that were pending."""
    bodies = []
    for seq in seqs:
        if conn.execute(SQL.hand_out, {"seq": seq, "session": session, "n": n, "now": now}).rowcount:
            bodies += bodies_of(conn, (seq,))
    return bodies


def bodies_of(conn: sqlite3.Connection, seqs: Sequence[int]) -> list[dict[str, Any]]:
    """`body_of` each of these."""
    bodies = []
    for seq in seqs:
        for id_, command, env, stdin_b64, workdir, timeout_s, log, inline, ref in conn.execute(SQL.body, {"seq": seq}):
            new = NewExec(
                ns="",
                worker="",
                command=command,
                env=msgpack.unpackb(env) if env else {},
                stdin=base64.b64decode(stdin_b64) if stdin_b64 else b"",
                workdir=workdir,
                timeout_s=timeout_s,
                log=bool(log),
                payload_inline=inline,
                payload_ref=None if ref is None else BlobRef(**msgpack.unpackb(ref)),
            )
            bodies.append(body_of(id_, new))
    return bodies


def body_of(id_: str, new: NewExec) -> dict[str, Any]:
    """What the daemon is told to run; `payload_ref` as its columns, for whoever signs it."""
    body: dict[str, Any] = {"exec_id": id_, "command": new.command, "env": new.env, "stdin": new.stdin}
    if new.workdir is not None:
        body["workdir"] = new.workdir
    if new.timeout_s is not None:
        body["timeout_s"] = new.timeout_s
    if new.log:
        body["log"] = True
    if new.payload_inline is not None:
        body["payload_inline"] = new.payload_inline
    if new.payload_ref is not None:
        body["payload_ref"] = new.payload_ref
    return body


def put_back(conn: sqlite3.Connection, seqs: Sequence[int]) -> None:
    """These were not handed out after all."""
    conn.executemany(SQL.put_back, [{"seq": seq} for seq in seqs])


def cancel(conn: sqlite3.Connection, seq: int, now: float) -> bool:
    """Note that a running one is to be stopped. False when that is known, or it does not run."""
    return conn.execute(SQL.cancel, {"seq": seq, "now": now}).rowcount > 0


def finish(conn: sqlite3.Connection, seq: int, result: Result, now: float) -> bool:
    """End one, unless it has ended."""
    values = {
        "seq": seq,
        "state": state_of(result.exit_code),
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "duration_ms": result.duration_ms,
        "error": result.error,
        "result_inline": result.result_inline,
        "result_ref": _packed(result.result_ref),
        "now": now,
    }
    return conn.execute(SQL.finish, values).rowcount > 0


def publish(conn: sqlite3.Connection, seq: int, result: Result) -> bool:
    """What one gave back, unless that is known."""
    values = {"seq": seq, "result_inline": result.result_inline, "result_ref": _packed(result.result_ref)}
    return conn.execute(SQL.publish, values).rowcount > 0


def forget(conn: sqlite3.Connection, seqs: Sequence[int]) -> int:
    """Delete ended ones; how many."""
    return sum(conn.execute(SQL.forget, {"seq": seq}).rowcount for seq in seqs)


def _packed(ref: BlobRef | None) -> bytes | None:
    if ref is None:
        return None
    packed: bytes = msgpack.packb({"key": ref.key, "size": ref.size, "sha256": ref.sha256})
    return packed


def _row(found: Sequence[Any]) -> ExecRow:
    values = dict(zip(ExecRow.__dataclass_fields__, found, strict=True))
    values["log"] = bool(values["log"])
    if values["result_ref"] is not None:
        values["result_ref"] = msgpack.unpackb(values["result_ref"])
    return ExecRow(**values)
