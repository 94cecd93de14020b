"""What processes were told, written down by themselves: an append-only file for each, a line for each acknowledgement.

A line is written after what it says was acknowledged, by one write, so that a killed process has said all that it knew
but perhaps the last thing. Lines about an intention (a cancel, a retry by hand) are written before it is sent.
Times are the machine's monotonic clock, the same one in every process.

    log = Log(directory, "producer-1")
    log.submitted(id, result=wire.pack(42))              # after `submit` returned
    log.told(id, "succeeded", plane.result(id))
    ...
    history = History.read(directory)          # every said-* file of the directory
    history.forget(backup_began_at)            # what was acknowledged after it is not demanded
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakeshore.wire.frames import peek

FOREVER = float("inf")


def digest(data: bytes) -> str:
    """What stands for bytes in a history."""
    return hashlib.sha256(data).hexdigest()[:32]


def _maybe(data: bytes | None) -> str | None:
    return None if data is None else digest(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An acknowledged submit, and what may become of it.

    `result` and `yields` are digests of packed values, None when it is not known beforehand. `may` maps each state in
    which the row may end to the types of error that explain it (empty: no error is asked for); a cancel that somebody
    intended allows `killed` besides. `executions` is how often the body runs when nobody dies.
    """

    id: str
    t: float
    result: str | None = None
    yields: tuple[str, ...] | None = None
    may: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"succeeded": ()})
    executions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Somebody waited for the end and was told it."""

    id: str
    t: float
    state: str
    result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A frame that a consumer was given."""

    id: str
    t: float
    seq: int
    frame: str
    terminal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The value that a consumer was given as its `index`-th, from the beginning of the stream."""

    id: str
    t: float
    index: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A body began. Who cannot tell the claim says None."""

    id: str
    t: float
    claim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """A frame that was acknowledged to the worker that wrote it."""

    id: str
    t: float
    claim: int
    seq: int
    frame: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An ending that was acknowledged to the worker: sent (the first time) at `sent_at`. `final`: no retry asked."""

    id: str
    t: float
    claim: int
    outcome: str
    sent_at: float
    final: bool = True
    result: str | None = None


class Log:
    """Where one process writes; bytes are written as their digests. Started again under its name, it goes on there."""

    def __init__(self, directory: Path | str, name: str) -> None:
        self._fd = os.open(Path(directory, f"said-{name}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        if os.fstat(self._fd).st_size:
            os.write(self._fd, b"\n")  # the life before may have been cut within a line

    def submitted(
        self,
        id: str,
        *,
        result: bytes | None = None,
        yields: Iterable[bytes] | None = None,
        may: Mapping[str, Sequence[str]] | None = None,
        executions: int = 1,
    ) -> None:
        """What is known of the call beforehand is as in `Call`; values are packed."""
        more: dict[str, Any] = {"result": _maybe(result), "executions": executions}
        if yields is not None:
            more["yields"] = [digest(value) for value in yields]
        if may is not None:
            more["may"] = may
        self._say("submitted", id, **more)

    def told(self, id: str, state: str, result: bytes | None = None) -> None:
        """A wait ended so."""
        self._say("told", id, state=state, result=_maybe(result))

    def read(self, id: str, seq: int, frame: bytes) -> None:
        """A stream gave this frame."""
        self._say("read", id, seq=seq, frame=digest(frame), terminal=peek(frame)[0].terminal)

    def value(self, id: str, index: int, value: bytes) -> None:
        """A stream that was read from its beginning gave this (packed) value."""
        self._say("value", id, index=index, value=digest(value))

    def cancelling(self, id: str) -> None:
        """Before a cancel is sent."""
        self._say("cancelling", id)

    def cancelled(self, id: str) -> None:
        """The cancel killed it at once."""
        self._say("cancelled", id)

    def retrying(self, id: str) -> None:
        """Before a retry by hand is sent."""
        self._say("retrying", id)

    def began(self, id: str, claim: int | None = None) -> None:
        """The first thing that a body does."""
        self._say("began", id, claim=claim)

    def appended(self, id: str, claim: int, seq: int, frame: bytes) -> None:
        """The append returned."""
        self._say("appended", id, claim=claim, seq=seq, frame=digest(frame))

    def settled(
        self, id: str, claim: int, outcome: str, *, sent_at: float, final: bool = True, result: bytes | None = None
    ) -> None:
        """The ack or nack returned without an error."""
        more = {"sent_at": sent_at, "final": final, "result": _maybe(result)}
        self._say("settled", id, claim=claim, outcome=outcome, **more)

    def refused(self, id: str, why: object) -> None:
        """An answer that was no success: nothing follows from it, it is counted."""
        self._say("refused", id, why=str(why))

    def _say(self, what: str, id: str, **more: Any) -> None:
        line = json.dumps({"what": what, "id": id, "t": time.monotonic(), **more}, separators=(",", ":"))
        os.write(self._fd, f"{line}\n".encode())


@dataclass(slots=True, kw_only=True)
class History:
    """Every file of a directory together."""

    calls: dict[str, Call] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    began: dict[str, list[Began]] = field(default_factory=lambda: defaultdict(list))
    appended: list[Appended] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    cancelled: list[Told] = field(default_factory=list)
    cancelling: set[str] = field(default_factory=set)
    retrying: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    forgotten: tuple[float, float] = (FOREVER, FOREVER)
    torn: int = 0

    @classmethod
    def read(cls, directory: Path) -> History:
        """Raises FileNotFoundError when nobody said anything there."""
        history = cls()
        found = sorted(directory.glob("said-*"))
        if not found:
            raise FileNotFoundError(f"no said-* in {directory}: nobody wrote a history")
        for path in found:
            for line in path.read_bytes().split(b"\n"):
                if line:
                    history._take(line)
        return history

    def forget(self, after: float, before: float = FOREVER) -> None:
        """What was acknowledged in between is not demanded: it came after the copy that is checked was begun."""
        self.forgotten = (after, before)

    def demands(self, t: float) -> bool:
        """Whether what was acknowledged at this time must be found."""
        after, before = self.forgotten
        return not after < t < before

    def summary(self) -> str:
        """How much there is to find."""
        parts = {
            "submits": self.calls,
            "endings told": self.told,
            "frames read": self.reads,
            "values read": self.values,
            "frames appended": self.appended,
            "endings acknowledged to a worker": self.settled,
            "cancels": self.cancelling,
            "retries by hand": self.retrying,
        }
        counted = ", ".join(f"{len(what)} {name}" for name, what in parts.items() if what)
        return f"{counted}; {sum(self.refused.values())} refusals; {self.torn} torn lines"

    def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            what, id_, t = said.pop("what"), said.pop("id"), said.pop("t")
        except (ValueError, KeyError):
            self.torn += 1
            return
        if what == "submitted":
            if (yields := said.get("yields")) is not None:
                said["yields"] = tuple(yields)
            self.calls[id_] = Call(id=id_, t=t, **said)
        elif what == "told":
            self.told.append(Told(id=id_, t=t, **said))
        elif what == "read":
            self.reads.append(Read(id=id_, t=t, **said))
        elif what == "value":
            self.values.append(Value(id=id_, t=t, **said))
        elif what == "began":
            self.began[id_].append(Began(id=id_, t=t, **said))
        elif what == "appended":
            self.appended.append(Appended(id=id_, t=t, **said))
        elif what == "settled":
            self.settled.append(Settled(id=id_, t=t, **said))
        elif what == "cancelled":
            self.cancelled.append(Told(id=id_, t=t, state="killed"))
        elif what == "cancelling":
            self.cancelling.add(id_)
        elif what == "retrying":
            self.retrying[id_] += 1
        elif what == "refused":
            self.refused[re.sub(r"\d+", "#", said["why"].replace(id_, "…"))[:200]] += 1
        else:
            raise ValueError(f"a history does not know {what!r}")
