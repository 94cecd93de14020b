"""The checker of a history: what was acknowledged, held against what there is in the end.

    with StateDirectory(state) as final:                     # or Served(url); both in final_state.py
        verdict = check(History.read(said), final)
    print(verdict.report())
    verdict.must_hold()                                      # AssertionError that names every fault

What it demands, and what a fault is called:

    lost row             an acknowledged submit has no row
    two rows             an id has more than one
    not ended            a row has not ended (left out with `ended=False`)
    never started        it succeeded, and no worker wrote down that it began
    unexplained          it did not succeed, and neither its error nor a cancel that somebody asked for says why
    another ending       somebody was told (or a worker's report was acknowledged) an ending that the row does not have
    late settlement      a claim settled after a later claim began, or a claim began above the one that settled
    unknown claim        a body began under a claim that the row never gave
    missing result, altered result, missing frame, altered frame, late frame, damaged
    counts               the kept counts are not the rows

What was not demanded may be there: a submit whose answer was lost is a row like any other. Executions beyond what a
call needs are no fault (at-least-once); they are counted, and `report` shows them.

To check a copy that was made while producers went on, `history.forget(began_at)` first: what was acknowledged after the
copy was begun is not demanded of it; and `ended=False` when nobody has run the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from final_state import Damaged, FinalState, Row, Stored
from history import Call, History, digest

from lakeshore import wire
from lakeshore.sdk.errors import LakeshoreError

TERMINAL = ("succeeded", "failed", "killed", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that does not hold: what it is called, of which invocation, and what was seen."""

    what: str
    id: str
    seen: str

    def __str__(self) -> str:
        return f"{self.what}: {self.id}: {self.seen}"


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What the checker found."""

    faults: list[Fault] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    executions: int = 0
    again: dict[str, int] = field(default_factory=dict)
    """Executions beyond what the call needed, by invocation."""
    said: str = ""
    refused: Counter[str] = field(default_factory=Counter)

    def named(self) -> set[str]:
        """The names of what was found."""
        return {fault.what for fault in self.faults}

    def report(self) -> str:
        """For people."""
        again = f"{sum(self.again.values())} of them again, of {len(self.again)} calls"
        most = ", ".join(f"{id_} +{n}" for id_, n in sorted(self.again.items(), key=lambda item: -item[1])[:5])
        lines = [
            f"acknowledged: {self.said}",
            f"rows: {dict(sorted(self.states.items()))}",
            f"executions: {self.executions}, {again}{f' ({most})' if most else ''}",
            *(f"refused {n} times: {why}" for why, n in self.refused.most_common(8)),
            f"faults: {len(self.faults)}",
        ]
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults[:40])])

    def must_hold(self) -> None:
        """Raises AssertionError with everything that was found."""
        if self.faults:
            raise AssertionError(self.report())


def check(history: History, final: FinalState, *, ended: bool = True, only: Collection[str] | None = None) -> Verdict:
    """Hold them against each other. `only`: payloads of these ids alone are read (a server is asked one by one)."""
    verdict = Verdict(said=history.summary(), refused=history.refused)
    found = final.rows()
    _Check(history, final, found, verdict, ended=ended, only=only).run()
    return verdict


class _Check:
    def __init__(
        self,
        history: History,
        final: FinalState,
        found: list[Row],
        verdict: Verdict,
        *,
        ended: bool,
        only: Collection[str] | None,
    ) -> None:
        self.history, self.final, self.verdict = history, final, verdict
        self.found, self.ended, self.only = found, ended, only
        self.rows = {row.id: row for row in found}
        self._frames: dict[str, dict[int, Stored] | None] = {}
        self._results: dict[str, str | None] = {}

    def run(self) -> None:
        for said in self.final.damage():
            self._fault("damaged", "-", said)
        self._rows()
        self._counts()
        for call in self.history.calls.values():
            self._call(call)
        self._endings()
        self._claims()
        self._told_frames()
        self._told_values()
        for call in self.history.calls.values():
            if call.yields is not None and self._reads(call.id):
                self._stream(call, call.yields)

    def _fault(self, what: str, id_: str, seen: str) -> None:
        self.verdict.faults.append(Fault(what=what, id=id_, seen=seen))

    def _reads(self, id_: str) -> bool:
        return id_ in self.rows and (self.only is None or id_ in self.only)

    # -- rows

    def _rows(self) -> None:
        for id_, n in Counter(row.id for row in self.found).items():
            if n > 1:
                self._fault("two rows", id_, f"{n} rows")
        for row in self.found:
            self.verdict.states[row.state] += 1
            if self.ended and row.state not in TERMINAL:
                self._fault("not ended", row.id, f"it is {row.state} under claim {row.claim}")
            if row.attempt > row.claim:
                self._fault("unknown claim", row.id, f"attempt {row.attempt} of only {row.claim} claims")

    def _counts(self) -> None:
        kept, counted = self.final.counts(), Counter((row.ns, row.queue, row.state) for row in self.found)
        for key in sorted(kept.keys() | counted.keys()):
            if kept.get(key, 0) != counted[key]:
                self._fault("counts", "/".join(key), f"{kept.get(key, 0)} are kept, {counted[key]} rows are there")

    def _call(self, call: Call) -> None:
        row = self.rows.get(call.id)
        if row is None:
            if self.history.demands(call.t):
                self._fault("lost row", call.id, "its submit was acknowledged")
            return
        times = len(self.history.began.get(call.id, ()))
        self.verdict.executions += times
        needed = call.executions * (1 + self.history.retrying[call.id])
        if times > needed:
            self.verdict.again[call.id] = times - needed
        if row.state not in TERMINAL:
            return
        if row.state == "succeeded":
            if not times:
                self._fault("never started", call.id, "it succeeded, and no worker wrote down that it began")
            if call.result is not None and self._reads(call.id) and self._result(row) not in (None, call.result):
                self._fault("altered result", call.id, "the result is not what the call gives")
        self._explained(call, row)

    def _explained(self, call: Call, row: Row) -> None:
        why = (row.error or {}).get("type")
        if row.state == "killed" and call.id in self.history.cancelling:
            allowed: tuple[str, ...] = ()  # the cancel is the reason; a body that failed on its way out says its own
        elif row.state in call.may:
            allowed = tuple(call.may[row.state])
        else:
            self._fault("unexplained", call.id, f"it ended {row.state} ({row.error}), and nobody asked for that")
            return
        if row.state != "succeeded" and (why is None or (allowed and why not in allowed)):
            self._fault("unexplained", call.id, f"it ended {row.state} with the error {row.error}")

    # -- endings

    def _endings(self) -> None:
        for told in (*self.history.told, *self.history.cancelled):
            row = self.rows.get(told.id)
            if row is None or not self.history.demands(told.t):
                continue
            if told.state != row.state and not (told.state != "succeeded" and told.id in self.history.retrying):
                self._fault("another ending", told.id, f"somebody was told {told.state}, it is {row.state}")
            elif told.result is not None and self._reads(told.id) and self._result(row) not in (None, told.result):
                self._fault("altered result", told.id, "it is not the result that somebody was given")

    def _result(self, row: Row) -> str | None:
        """Its digest; None when it cannot be had, which is told once."""
        if row.id not in self._results:
            self._results[row.id] = None
            try:
                self._results[row.id] = digest(self.final.result(row))
            except (LookupError, LakeshoreError) as exc:
                self._fault("missing result", row.id, str(exc))
            except Damaged as exc:
                self._fault("damaged", row.id, f"result: {exc}")
        return self._results[row.id]

    def _claims(self) -> None:
        """The fence: what a claim was acknowledged holds, and no later claim had begun by then."""
        for began in self.history.began.values():
            for start in began:
                row = self.rows.get(start.id)
                if row is None or start.claim is None or not self.history.demands(start.t):
                    continue
                if start.claim > row.claim:
                    self._fault(
                        "unknown claim", row.id, f"a body began as claim {start.claim}, the row is at {row.claim}"
                    )
                elif row.state == "succeeded" and row.settled_claim is not None and start.claim > row.settled_claim:
                    seen = f"claim {row.settled_claim} settled it, claim {start.claim} began"
                    self._fault("late settlement", row.id, seen)
        for row in self.found:
            if row.state == "succeeded" and row.settled_claim is not None and row.settled_claim != row.claim:
                self._fault(
                    "late settlement", row.id, f"claim {row.settled_claim} settled it, the row is at {row.claim}"
                )
        for ending in self.history.settled:
            row = self.rows.get(ending.id)
            if row is None or not self.history.demands(ending.t):
                continue
            for start in self.history.began.get(ending.id, ()):
                if not self.history.demands(start.t) or start.claim is None:
                    continue
                if start.claim > ending.claim and start.t < ending.sent_at:
                    seen = (
                        f"claim {ending.claim} settled {ending.sent_at - start.t:.3f} s after claim {start.claim} began"
                    )
                    self._fault("late settlement", row.id, seen)
            self._acknowledged(ending.id, ending.claim, ending.outcome, ending.final, ending.result, row)

    def _acknowledged(self, id_: str, claim: int, outcome: str, final: bool, result: str | None, row: Row) -> None:
        if outcome == "succeeded":
            other = row.settled_claim is not None and row.settled_claim != claim
            if row.state != "succeeded" or other:
                seen = f"claim {claim} was told that it succeeded; it is {row.state} by claim {row.settled_claim}"
                self._fault("another ending", id_, seen)
            elif result is not None and self._reads(id_) and self._result(row) not in (None, result):
                self._fault("altered result", id_, f"it is not the result that claim {claim} was acknowledged")
        elif final and id_ not in self.history.retrying:
            allowed = (outcome, "killed") if id_ in self.history.cancelling else (outcome,)
            if row.state not in allowed:
                self._fault("another ending", id_, f"claim {claim} was told that it {outcome}; it is {row.state}")

    # -- frames

    def _stored(self, row: Row) -> dict[int, Stored] | None:
        """Its frames by seq; None when they cannot be had, which is told once."""
        if row.id not in self._frames:
            self._frames[row.id] = None
            try:
                frames = self.final.frames(row)
            except Damaged as exc:
                self._fault("damaged", row.id, str(exc))
                return None
            except LakeshoreError as exc:
                self._fault("missing frame", row.id, str(exc))
                return None
            self._frames[row.id] = {frame.seq: frame for frame in frames}
            self._dense(row, frames)
        return self._frames[row.id]

    def _dense(self, row: Row, frames: list[Stored]) -> None:
        last = max((frame.seq for frame in frames), default=-1) if row.last_frame is None else row.last_frame
        missing = sorted(set(range(last + 1)) - {frame.seq for frame in frames})
        if len(missing) > self.history.retrying[row.id]:  # a retry by hand takes the end away; its number stays empty
            self._fault("missing frame", row.id, f"frames {missing[:10]} of 0..{last} are not there")
        claims = [frame.claim for frame in frames if frame.claim is not None]
        if claims != sorted(claims):
            self._fault("late frame", row.id, f"frames were written by the claims {claims} in this order")

    def _told_frames(self) -> None:
        demanded: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for read in self.history.reads:
            # A retry by hand takes the end away, and goes on under its number.
            gone = read.terminal and read.id in self.history.retrying
            if self.history.demands(read.t) and self._reads(read.id) and not gone:
                demanded[read.id][read.seq].add(read.frame)
        for said in self.history.appended:
            if self.history.demands(said.t) and self._reads(said.id):
                demanded[said.id][said.seq].add(said.frame)
        for id_, by_seq in demanded.items():
            stored = self._stored(self.rows[id_])
            if stored is None:
                continue
            for seq, digests in sorted(by_seq.items()):
                if seq not in stored:
                    self._fault("missing frame", id_, f"frame {seq} was acknowledged")
                elif digests != {digest(stored[seq].data)}:
                    self._fault("altered frame", id_, f"frame {seq} is not what was acknowledged")
        for said in self.history.appended:
            stored = self._stored(self.rows[said.id]) if self._reads(said.id) else None
            kept = None if stored is None or not self.history.demands(said.t) else stored.get(said.seq)
            if kept is not None and kept.claim not in (None, said.claim):
                seen = f"frame {said.seq} was acknowledged to claim {said.claim}, it is of claim {kept.claim}"
                self._fault("altered frame", said.id, seen)

    def _told_values(self) -> None:
        told: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for said in self.history.values:
            if self.history.demands(said.t) and self._reads(said.id):
                told[said.id][said.index].add(said.value)
        for id_, by_index in told.items():
            if (stored := self._stored(self.rows[id_])) is None:
                continue
            frames = [wire.Frame.from_bytes(stored[seq].data) for seq in sorted(stored)]
            values = [digest(wire.pack(frame.body)) for frame in frames if not frame.kind.terminal]
            for index, digests in sorted(by_index.items()):
                if index >= len(values):
                    self._fault("missing frame", id_, f"value {index} was read, {len(values)} are there")
                elif digests != {values[index]}:
                    self._fault("altered frame", id_, f"value {index} is not what was read")

    def _stream(self, call: Call, yields: tuple[str, ...]) -> None:
        """Executions one after another, each a prefix of the yields; of a success the last one whole, and one END."""
        row = self.rows[call.id]
        if row.state not in TERMINAL or (row.state != "succeeded" and row.last_frame in (None, -1)):
            return
        stored = self._stored(row)
        if stored is None:
            return
        frames = [(stored[seq], wire.Frame.from_bytes(stored[seq].data)) for seq in sorted(stored)]
        terminal = [frame.kind.name for _, frame in frames if frame.kind.terminal]
        wanted = "END" if row.state == "succeeded" else "ERROR"
        if terminal != [wanted] or not frames[-1][1].kind.terminal:
            self._fault("missing frame", call.id, f"a stream that {row.state} ends in one {wanted}, not in {terminal}")
            return
        at, claim = 0, frames[0][0].claim
        for kept, frame in frames[:-1]:
            value = digest(wire.pack(frame.body))
            if kept.claim != claim or (at < len(yields) and value != yields[at]) or at == len(yields):
                at, claim = 0, kept.claim  # another execution began
            if not yields or value != yields[at]:
                self._fault("altered frame", call.id, f"frame {kept.seq} holds what the call does not yield there")
                return
            at += 1
        if row.state == "succeeded" and at != len(yields):
            self._fault("missing frame", call.id, f"its last execution has {at} of {len(yields)} yields")
