"""The plane beside a small model of the contract, under polls that come late or twice, crashes, cancels and retries.

The reference is written from the rules, not from the plane: a row is a dict, a transition a few lines. After every step
the rows, the answers, the counts and the frames must be the same.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakeshore.plane import claims, frames, polls, reports, retention, retries, rows, submits
from lakeshore.plane.contract import (
    FREE_LOSSES,
    Gap,
    Held,
    IllegalTransition,
    NotHeld,
    PlaneError,
    Poll,
    Purged,
    Report,
    Submission,
    Superseded,
    UnknownInvocation,
    Wish,
)
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL

NS = "default"
OVER = ("succeeded", "failed", "killed", "timeout")
IDS = [f"i{n}" for n in range(5)]
WORKERS = ["v", "w"]
OUTCOMES = st.sampled_from(["succeeded", "failed", "failed", "timeout", "killed"])
EXAMPLES, STEPS = int(os.environ.get("MODEL_EXAMPLES", "200")), 60
# The committed run is the same everywhere; MODEL_RANDOM=1 goes where no run has been.
SEARCHING = bool(os.environ.get("MODEL_RANDOM"))


class Reference:
    """Rows as the contract has them (K-1…K-8, K-15…K-17, K-24, K-27)."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.graves: set[str] = set()
        self.sessions: dict[str, tuple[str, int]] = {}
        self.begun: Counter[str] = Counter()
        self.births = 0

    # -- transitions

    def submit(self, id_: str, priority: int, limit: int) -> str:
        if id_ in self.rows:
            return "again"
        if id_ in self.graves:
            return "purged"
        self.births += 1
        self.rows[id_] = {"seq": self.births, "priority": priority, "limit": limit, "claim": 0, "frames": [], "next": 0}
        self.clean(self.rows[id_])
        return "new"

    def clean(self, row: dict[str, Any]) -> None:
        row.update(state="queued", attempt=0, free=0, started=False, cancel=False, owner=None, n=0, said=None)

    def begin(self, id_: str) -> None:
        row = self.rows[id_]
        if not row["started"]:
            row["started"] = True
            row["attempt"] += 1
            self.begun[id_] += 1

    def end(self, row: dict[str, Any], state: str, *, streamed: bool = False) -> None:
        row.update(state=state, owner=None)
        has = bool(row["next"])
        if (has and state in ("succeeded", "killed")) or streamed or state in ("failed", "timeout"):
            row["frames"].append((row["next"], row["claim"], True))
            row["next"] += 1

    def requeue(self, row: dict[str, Any]) -> None:
        row.update(state="queued", started=False, owner=None)

    def current(self, id_: str, claim: int) -> bool:
        row = self.rows.get(id_)
        return row is not None and row["state"] == "running" and row["claim"] == claim

    def lose(self, id_: str, claim: int) -> None:
        if not self.current(id_, claim):
            return
        row = self.rows[id_]
        if not row["started"]:
            row["free"] += 1
            row["attempt"] += row["free"] > FREE_LOSSES
        if row["cancel"]:
            self.end(row, "killed")
        elif row["attempt"] < row["limit"]:
            self.requeue(row)
        else:
            self.end(row, "failed")

    def settle(self, id_: str, claim: int, outcome: str, retry: bool, last: int | None) -> str:
        row = self.rows.get(id_)
        if not self.current(id_, claim):
            return "duplicate" if row is not None and row["said"] == (claim, outcome) else "stale"
        assert row is not None
        if last is not None and last >= row["next"]:
            return "gap"
        self.begin(id_)
        row["said"] = (claim, outcome)
        if outcome == "succeeded":
            self.end(row, "succeeded", streamed=last is not None)
        elif row["cancel"] or outcome == "killed":
            self.end(row, "killed")
        elif retry and row["attempt"] < row["limit"]:
            self.requeue(row)
        else:
            self.end(row, outcome)
        return "ok"

    def cancel(self, id_: str) -> str:
        row = self.rows[id_]
        if row["state"] in OVER:
            return "no"
        if row["state"] == "queued" or not row["started"]:
            self.end(row, "killed")
            return "cancelled"
        row["cancel"] = True
        return "cancelling"

    def retry(self, id_: str, claim: int) -> bool:
        row = self.rows[id_]
        if row["state"] not in ("failed", "killed", "timeout") or row["claim"] != claim:
            return False
        self.clean(row)
        row["claim"] += 1
        self.begun[id_] = 0
        row["frames"] = [frame for frame in row["frames"] if not frame[2]]
        return True

    def append(self, id_: str, claim: int, seq: int) -> str:
        row = self.rows.get(id_)
        if row is None:
            return "unknown"
        if (seq, claim) in [frame[:2] for frame in row["frames"]]:
            return "duplicate"
        if not self.current(id_, claim):
            return "stale"
        if seq < row["next"] and seq not in [frame[0] for frame in row["frames"]]:
            return "duplicate"  # forgotten since, by a trim or a retry
        if seq != row["next"]:
            return "gap"
        self.begin(id_)
        row["frames"].append((seq, claim, False))
        row["next"] += 1
        return "ok"

    def poll(self, request: Poll) -> dict[str, Any] | None:
        worker, session = request.worker, request.session
        newest, n = self.sessions.get(worker, ("", 0))
        if session > newest:
            newest, n = session, 0
        fenced = session != newest
        if not fenced:
            if request.n <= n:
                return None
            self.sessions[worker] = (session, request.n)
        for pair in request.held:
            if pair.started and self.current(pair.id, pair.claim):
                self.begin(pair.id)
        said = [self.settle(r.id, r.claim or 0, r.outcome, r.retry, r.last_seq) for r in request.reports]
        runs = []
        if not fenced:
            listed = {(p.id, p.claim) for p in request.held} | {(r.id, r.claim) for r in request.reports}
            for id_, row in self.rows.items():
                mine = row["state"] == "running" and row["owner"] == (worker, session)
                if mine and (id_, row["claim"]) not in listed:
                    self.give_back(id_, row)
            waiting = sorted((-r["priority"], r["seq"], i) for i, r in self.rows.items() if r["state"] == "queued")
            for _p, _s, id_ in waiting[: request.wish.capacity if request.wish else 0]:
                row = self.rows[id_]
                row["claim"] += 1
                row.update(state="running", owner=(worker, session))
                runs.append((id_, row["claim"], row["attempt"] + 1, row["next"]))
        lost = [(p.id, p.claim) for p in request.held if not self.current(p.id, p.claim)]
        stop = [(p.id, p.claim) for p in request.held if self.current(p.id, p.claim) and self.rows[p.id]["cancel"]]
        return {"said": said, "runs": runs, "lost": lost, "cancel": stop, "fenced": fenced}

    def give_back(self, id_: str, row: dict[str, Any]) -> None:
        if row["started"]:
            self.lose(id_, row["claim"])
        elif row["cancel"]:
            self.end(row, "killed")
        else:
            self.requeue(row)


class Machine(RuleBasedStateMachine):
    """Workers that crash, polls that are lost, late and doubled, and people who cancel, retry and purge."""

    def __init__(self) -> None:
        super().__init__()
        self.plane = Plane(":memory:", durability="none")
        self.model = Reference()
        self.clock = 1000.0
        self.sent: list[Poll] = []
        self.holding: dict[str, dict[tuple[str, int], bool]] = {}
        self.session: dict[str, tuple[str, int]] = {}
        self.births = 0
        self.settled_at: dict[str, int] = {}
        self.last_seen: dict[str, tuple[str, int]] = {}

    @initialize()
    def start(self) -> None:
        for worker in WORKERS:
            self._restart(worker)

    def teardown(self) -> None:
        self.plane.close()
        STEPPED[0] += self.clock - 1000.0

    # -- producers and people

    @rule(id_=st.sampled_from(IDS), priority=st.integers(0, 2), limit=st.integers(1, 3))
    def submit(self, id_: str, priority: int, limit: int) -> None:
        known = self.model.rows.get(id_)
        if known is not None:
            priority, limit = known["priority"], known["limit"]
        wanted = self.model.submit(id_, priority, limit)
        item = Submission(
            ns=NS, queue="q", id=id_, args=b"", hash=id_.encode(), priority=float(priority), max_attempts=limit
        )
        try:
            self._write(lambda tx: submits.submit(tx, item, self.clock))
        except Purged:
            assert wanted == "purged"
        else:
            assert wanted in ("new", "again")

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.model.rows)))
        wanted = self.model.cancel(id_)
        done = self._write(lambda tx: reports.cancel(tx, NS, id_, self.clock, grace_s=1.0))
        assert (done.cancelled, done.cancelling) == (wanted == "cancelled", wanted == "cancelling")

    @precondition(lambda self: any(row["cancel"] for row in self.model.rows.values()))
    @rule(data=st.data(), back=st.integers(0, 1))
    def deadline_passes(self, data: st.DataObject, back: int) -> None:
        id_ = data.draw(st.sampled_from(sorted(i for i, r in self.model.rows.items() if r["cancel"])))
        claim = self.model.rows[id_]["claim"] - back
        due = self.model.current(id_, claim)
        assert self._write(lambda tx: reports.kill(tx, NS, id_, claim, self.clock)) == due
        if due:
            self.model.end(self.model.rows[id_], "killed")

    @precondition(lambda self: any(row["state"] in OVER for row in self.model.rows.values()))
    @rule(data=st.data(), back=st.sampled_from([0, 0, 0, 1]))
    def retry(self, data: st.DataObject, back: int) -> None:
        id_ = data.draw(st.sampled_from(sorted(i for i, r in self.model.rows.items() if r["state"] in OVER)))
        claim = self.model.rows[id_]["claim"] - back
        wanted = self.model.retry(id_, claim)
        try:
            self._write(lambda tx: retries.retry(tx, NS, id_, self.clock, claim=claim))
        except IllegalTransition:
            assert not wanted
        else:
            assert wanted
            self.last_seen.pop(id_, None)
            self.settled_at.pop(id_, None)

    @precondition(lambda self: any(row["state"] in OVER for row in self.model.rows.values()))
    @rule()
    def purge(self) -> None:
        gone = [i for i, r in self.model.rows.items() if r["state"] in OVER]
        done = self._write(lambda tx: retention.purge(tx, before=self.clock + 1, now=self.clock))
        assert done.rows == len(gone)
        for id_ in gone:
            del self.model.rows[id_]
            self.model.graves.add(id_)
            self.last_seen.pop(id_, None)
        if len(self.model.graves) == len(IDS):  # a week later
            self._write(lambda tx: retention.purge(tx, before=0.0, now=self.clock + 8 * 24 * 3600))
            self.model.graves.clear()
            self.settled_at.clear()
            self.model.begun.clear()

    # -- workers

    @rule(
        worker=st.sampled_from(WORKERS),
        capacity=st.integers(0, 2),
        fate=st.sampled_from(["read", "read", "read", "read", "dropped", "never sent"]),
        data=st.data(),
    )
    def poll(self, worker: str, capacity: int, fate: str, data: st.DataObject) -> None:
        session, n = self.session[worker]
        self.session[worker] = (session, n + 1)
        held, reported = self.holding[worker], []
        for (id_, claim), begun in list(held.items()):
            what = data.draw(st.sampled_from(["keep", "keep", "begin", "end", "give back"]))
            if what == "begin" or (what == "end" and not begun):
                held[id_, claim] = True
            elif what == "end":
                reported.append(self._report(worker, id_, claim, data))
        listed = [
            Held(id=id_, claim=claim, started=begun)
            for (id_, claim), begun in held.items()
            if not any((r.id, r.claim) == (id_, claim) for r in reported)
        ]
        if listed and data.draw(st.integers(0, 9)) == 0:
            gone = listed.pop()
            del held[gone.id, gone.claim]
        wish = Wish(ns=NS, queues=("q",), worker=worker, session=session, n=n + 1, capacity=capacity)
        request = Poll(ns=NS, worker=worker, session=session, n=n + 1, held=listed, reports=reported, wish=wish)
        self.sent.append(request)
        del self.sent[:-12]
        if fate == "never sent":
            return
        answer = self._handle(request)
        if fate == "read" and answer is not None:
            for report, said in zip(reported, answer["said"], strict=True):
                if said != "gap":
                    held.pop((report.id, report.claim or 0), None)
            for pair in answer["lost"]:
                held.pop(pair, None)
            for id_, claim, _attempt, _first in answer["runs"]:
                held[id_, claim] = False

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def a_poll_comes_late_or_twice(self, data: st.DataObject) -> None:
        self._handle(data.draw(st.sampled_from(self.sent)))

    @rule(worker=st.sampled_from(WORKERS))
    def a_worker_dies_and_starts_again(self, worker: str) -> None:
        self._restart(worker)
        self._write(lambda tx: polls.register(tx, NS, worker, self.session[worker][0], self.clock))
        self.model.sessions[worker] = self.session[worker]

    @precondition(lambda self: any(row["claim"] for row in self.model.rows.values()))
    @rule(data=st.data(), back=st.sampled_from([0, 0, 0, 1]))
    def a_lease_expires(self, data: st.DataObject, back: int) -> None:
        id_ = data.draw(st.sampled_from(sorted(i for i, r in self.model.rows.items() if r["claim"])))
        claim = self.model.rows[id_]["claim"] - back
        self.model.lose(id_, claim)
        self._write(lambda tx: reports.lose(tx, NS, id_, claim, self.clock))

    @precondition(lambda self: any(row["claim"] for row in self.model.rows.values()))
    @rule(data=st.data(), back=st.sampled_from([0, 0, 1]), ahead=st.sampled_from([0, 0, 0, -1, 1]))
    def frame(self, data: st.DataObject, back: int, ahead: int) -> None:
        id_ = data.draw(st.sampled_from(sorted(i for i, r in self.model.rows.items() if r["claim"])))
        row = self.model.rows[id_]
        claim, seq = row["claim"] - back, max(0, row["next"] + ahead)
        wanted = self.model.append(id_, claim, seq)
        body = frames.value_frame(seq, b"\xc0")
        try:
            done = self._write(lambda tx: frames.append(tx, NS, id_, body, self.clock, claim=claim, seq=seq))
        except NotHeld:
            assert wanted == "stale"
        except Gap as gap:
            assert wanted == "gap"
            assert gap.expected == row["next"]
        except UnknownInvocation:
            assert wanted == "unknown"
        else:
            assert wanted == ("duplicate" if done.duplicate else "ok")

    @precondition(lambda self: any(row["claim"] for row in self.model.rows.values()))
    @rule(data=st.data(), back=st.sampled_from([0, 0, 1]))
    def a_report_on_its_own(self, data: st.DataObject, back: int) -> None:
        id_ = data.draw(st.sampled_from(sorted(i for i, r in self.model.rows.items() if r["claim"])))
        report = self._report("w", id_, self.model.rows[id_]["claim"] - back, data)
        wanted = self.model.settle(id_, report.claim or 0, report.outcome, report.retry, report.last_seq)
        assert self._write(lambda tx: reports.settle(tx, report, self.clock)).result == wanted

    @rule(worker=st.sampled_from(WORKERS))
    def claim_by_the_documented_verb(self, worker: str) -> None:
        """It counts as begun at once, and belongs to a session that polls nothing."""
        wish = Wish(ns=NS, queues=("q",), worker=worker, session="", start=True)
        got = self._write(lambda tx: claims.claim(tx, wish, self.clock))
        waiting = sorted((-r["priority"], r["seq"], i) for i, r in self.model.rows.items() if r["state"] == "queued")
        assert [c.id for c in got] == [i for _p, _s, i in waiting[:1]]
        for claimed in got:
            row = self.model.rows[claimed.id]
            row["claim"] += 1
            row.update(state="running", owner=(worker, ""))
            self.model.begin(claimed.id)
            assert (claimed.claim, claimed.attempt, claimed.first_seq) == (row["claim"], row["attempt"], row["next"])

    # -- what must always hold

    @invariant()
    def the_rows_are_the_model(self) -> None:
        for id_ in IDS:
            row, wanted = rows.get(self.plane.rows, NS, id_), self.model.rows.get(id_)
            if wanted is None:
                assert row is None
                continue
            assert row is not None
            names = ("state", "claim", "attempt")
            assert [row[n] for n in names] == [wanted[n] for n in names], id_
            assert bool(row["cancel_requested"]) == wanted["cancel"]
            assert row["last_frame"] == wanted["next"] - 1
            assert (row["finished_at"] is not None) == (row["state"] in OVER)

    @invariant()
    def terminal_absorbs_and_claims_never_fall(self) -> None:
        for id_ in self.model.rows:
            row = rows.get(self.plane.rows, NS, id_)
            assert row is not None
            before = self.last_seen.get(id_)
            if before is not None:
                if before[0] in OVER:
                    assert (row["state"], row["claim"]) == before
                assert row["claim"] >= before[1]
            self.last_seen[id_] = (row["state"], row["claim"])

    @invariant()
    def no_claim_settles_after_a_later_one_began(self) -> None:
        for id_, settled in self.plane.rows("SELECT id, settled_claim FROM invocation", {}):
            if settled is not None:
                assert settled >= self.settled_at.get(id_, 0), id_
                self.settled_at[id_] = settled

    @invariant()
    def attempts_are_begun_bodies(self) -> None:
        """But for the losses of unstarted claims beyond the free ones, which count (K-6)."""
        for id_, attempt, free, limit in self.plane.rows(
            "SELECT id, attempt, free_losses, max_attempts FROM invocation", {}
        ):
            assert attempt == self.model.begun[id_] + max(0, free - FREE_LOSSES), id_
            assert attempt <= limit

    @invariant()
    def counts_are_rows(self) -> None:
        counted = {(q, s): n for _ns, q, s, n in self.plane.rows(SQL.tallies, {})}
        stored = self.plane.rows("SELECT queue, state, COUNT(*) FROM invocation GROUP BY queue, state", {})
        assert counted == {(q, s): n for q, s, n in stored}
        assert Counter(s for _q, s, _n in stored for _ in range(_n)) == Counter(
            r["state"] for r in self.model.rows.values()
        )

    @invariant()
    def frames_are_dense_and_readable(self) -> None:
        """Every seq is there; only the frame that ended a run which was retried is missing."""
        for id_, wanted in self.model.rows.items():
            channel = rows.channel_of(self.plane.rows, NS, id_)
            assert channel is not None
            page, _ = frames.read(self.plane.rows, self.plane.journal, channel[0], -1)
            assert [(seq, final) for seq, _data, final in page] == [(seq, end) for seq, _c, end in wanted["frames"]]
            ends = [seq for seq, _data, final in page if final]
            assert ends in ([], [wanted["next"] - 1])

    # -- inside

    def _write(self, verb: Any) -> Any:
        self.clock += 1.0
        return self.plane.write(verb)

    def _restart(self, worker: str) -> None:
        self.births += 1
        self.session[worker] = (f"s{self.births:05}", 0)
        self.holding[worker] = {}

    def _report(self, worker: str, id_: str, claim: int, data: st.DataObject) -> Report:
        outcome, retry = data.draw(OUTCOMES), data.draw(st.booleans())
        row = self.model.rows.get(id_)
        stored = -1 if row is None else row["next"] - 1
        last = data.draw(st.sampled_from([None, None, stored, stored + 1]))
        error = None if outcome == "succeeded" else b"\x80"
        return Report(
            ns=NS, id=id_, outcome=outcome, claim=claim, worker=worker, error=error, retry=retry, last_seq=last
        )

    def _handle(self, request: Poll) -> dict[str, Any] | None:
        wanted = self.model.poll(request)
        try:
            got = self._write(lambda tx: polls.poll(tx, request, self.clock))
        except Superseded:
            assert wanted is None
            return None
        except PlaneError as exc:
            raise AssertionError(f"a poll is answered, whatever it brings: {exc!r}") from exc
        assert wanted is not None, "a poll that was overtaken is refused"
        assert [settled.result for settled in got.settled] == wanted["said"]
        assert [(run.id, run.claim, run.attempt, run.first_seq) for run in got.runs] == wanted["runs"]
        assert list(got.lost) == wanted["lost"]
        assert list(got.cancel) == wanted["cancel"]
        assert got.fenced == wanted["fenced"]
        return wanted


STEPPED = [0.0]


@pytest.mark.inventory("K-2", "K-8", "K-28")
def test_the_plane_is_the_model() -> None:
    STEPPED[0] = 0
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not SEARCHING,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    seed = "random" if SEARCHING else "derandomized: this file"
    print(f"{STEPPED[0]:.0f} verbs in {EXAMPLES} examples of up to {STEPS} steps; seed {seed}")
    assert STEPPED[0] >= 40 * EXAMPLES, "the machine takes too few steps to show anything"
