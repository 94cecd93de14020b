"""A world that may do to a daemon whatever is possible, in any order, and what must hold whatever it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nymph_world import EPOCH, command, exec_, run, settings

from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.recording import Recorder

Choose = Callable[[list[Any]], Any]
LEASE_S = 60.0


class Chaos:
    """Every step is one event that is possible now. `choose` picks one of a list."""

    def __init__(self, choose: Choose, **given: Any) -> None:
        self.choose = choose
        self.settings = settings(**given)
        self.log: list[str] = []
        self.recorder = Recorder(self.settings, self.log.append)
        self.now = 100.0
        self.timer: float | None = None
        self.over = False
        self.signals = 0
        self.was_kind = False
        """Whether the world was kind from the first token on."""
        self.claims: dict[str, int] = {}
        """What the server has given out, by invocation: the newest claim."""
        # What is out there, because of what was instructed.
        self.hello_out = False
        self.poll: instructions.Poll | None = None
        self.poll_sent_at = 0.0
        self.given_up: list[int] = []
        self.batch: instructions.SendAcks | None = None
        self.results: list[tuple[str, str]] = []
        self.jobs: dict[tuple[str, int], str] = {}
        self.execs: dict[str, str] = {}
        self.setups: list[str] = []
        self.detecting = self.rotating = 0
        self.updating: str | None = None
        # What must hold.
        self.begun: set[Any] = set()
        self.owed: dict[tuple[str, int], str] = {}
        """Endings that were not answered yet."""
        self.lost: set[tuple[str, int]] = set()
        self.vouched: dict[tuple[str, int], float] = {}
        """Until when the server surely keeps a claim for us."""
        self.thaw_until = 0.0
        self.tell(events.Booted())

    # -- one event, and what follows

    def tell(self, event: Any) -> None:
        drained = self.signals > 0
        did = self.recorder.handle(event, self.now)
        for one in did:
            self._perform(one, drained)
        self._hold()

    def _perform(self, one: Any, drained: bool) -> None:
        match one:
            case instructions.SendHello():
                assert not self.hello_out
                self.hello_out = True
            case instructions.Poll():
                assert self.poll is None, "one poll at a time"
                self.poll, self.poll_sent_at = one, self.now
                self._check_poll(one.body, drained)
            case instructions.GiveUpPoll():
                assert self.poll is not None and self.poll.n == one.n
                self.given_up.append(one.n)
                self.poll = None
            case instructions.SendAcks():
                assert self.batch is None
                self.batch = one
            case instructions.SendResult():
                assert (one.kind, one.id) not in self.results, "once at a time"
                self.results.append((one.kind, one.id))
            case instructions.StartJob():
                pair = (one.invocation_id, one.claim)
                assert pair not in self.begun, "a claim begins once"
                assert not drained, "nothing starts after the first token"
                assert not any(id_ == pair[0] for id_, _ in self.jobs), "its older body has ended"
                self.begun.add(pair)
                self.jobs[pair] = "starting"
            case instructions.StopJob():
                pair = (one.invocation_id, one.claim)
                assert self.jobs[pair] in ("starting", "running"), "told to stop once"
                self.jobs[pair] = one.why
            case instructions.ReleaseJob():
                assert (one.invocation_id, one.claim) not in self.owed
            case instructions.RunExec():
                assert one.exec_id not in self.begun and not drained
                self.begun.add(one.exec_id)
                self.execs[one.exec_id] = "running"
            case instructions.StopExec():
                assert self.execs[one.exec_id] == "running"
                self.execs[one.exec_id] = "stopping"
            case instructions.RunSetup():
                assert not self.setups, "one script at a time"
                assert one.setup_id not in self.begun and not drained
                self.begun.add(one.setup_id)
                self.setups.append(one.setup_id)
            case instructions.DetectHost():
                self.detecting += 1
            case instructions.RotateKey():
                assert not self.rotating
                self.rotating += 1
            case instructions.InstallUpdate():
                assert self.updating is None
                self.updating = one.version
            case instructions.SetTimer():
                assert one.at is None or one.at > self.now, "a timer that is due would be a tight loop"
                self.timer = one.at
            case instructions.Exit() | instructions.Restart():
                assert self.poll is None, "nothing is left out"
                self.over = True

    def _check_poll(self, body: Any, drained: bool) -> None:
        listed = {(id_, claim) for id_, claim, _ in body["held"]}
        assert not listed & self.lost, "what is lost is not listed"
        assert not drained or body["capacity"] == 0
        assert set(self.owed) - self.lost <= listed, "listed until its ack is answered"
        mine = {pair for pair, why in self.jobs.items() if why != "lost"} - self.lost
        assert mine <= listed, "what runs is renewed"
        assert all(begun for id_, claim, begun in body["held"] if (id_, claim) in self.jobs)

    def _hold(self) -> None:
        bound = self.settings.max_invocations or 10**9
        taken = len(self.jobs) + len(self.execs)
        assert taken <= bound, "never more than the slots"
        if self.poll is not None:
            assert not self.signals or self.poll.body["capacity"] == 0, "nobody who leaves waits for work"
            assert taken + self.poll.body["capacity"] <= bound, "nor more than is free asked for"
        for pair, why in self.jobs.items():
            if why in ("starting", "running") and self.now >= self.thaw_until:
                assert self.now < self.vouched[pair], "stopped before the server gives it away"

    # -- what may happen

    def step(self) -> None:
        name, happen = self.choose(self._possible())
        if name == "a signal" and not self.choose([False] * 14 + [True]):
            happen = self.pass_time  # it would be over too soon
        happen()

    def _possible(self) -> list[tuple[str, Callable[[], None]]]:
        can: list[tuple[str, Callable[[], None]]] = [
            ("time goes by", self.pass_time),
            ("the timer", self.fire),
            ("a sleep", self.sleep),
        ]
        if self.hello_out:
            can += [("hello", self.greet), ("no hello", self.fail_hello)]
        if self.poll is not None:
            can += [("an answer", self.answer)] * 3 + [("a failure", self.fail_poll)]
        if self.given_up:
            can.append(("a late answer", self.answer_late))
        if self.batch is not None:
            can += [("acks", self.ack), ("no acks", self.fail_acks)]
        if self.results:
            can += [("a result", self.take_result), ("no result", self.fail_result)]
        if self.jobs:
            can += [("a job starts", self.start_job), ("a job prints", self.print), ("a job ends", self.end_job)]
        if self.execs:
            can.append(("a command ends", self.end_exec))
        if self.setups:
            can.append(("a script ends", self.end_setup))
        if self.detecting:
            can.append(("a host is found", self.detect))
        if self.rotating:
            can.append(("a key", self.rotate))
        if self.updating:
            can.append(("an update", self.update))
        can.append(("a signal", self.signal))
        return can

    def pass_time(self) -> None:
        until = self.now + self.choose([0.001, 0.5, 3.0, 14.0])
        while not self.over and self.timer is not None and self.timer <= until:
            self.now, self.timer = max(self.now, self.timer), None
            self.tell(events.TimerFired())
        self.now = until

    def fire(self) -> None:
        if self.timer is not None:
            self.now = max(self.now, self.timer)
        self.timer = None
        self.tell(events.TimerFired())

    def sleep(self) -> None:
        self.now += 500.0
        self.timer = None
        self.thaw_until = self.now + 10.0
        self.tell(events.ClockJumped(slept_s=500.0, epoch=EPOCH + self.now))
        if self.timer is None and not self.over:
            self.fire()

    def greet(self) -> None:
        self.hello_out = False
        self.tell(events.HelloAnswered(answer={"worker_id": "w1", "reject": None, "lost": []}))

    def fail_hello(self) -> None:
        self.hello_out = False
        self.tell(events.HelloFailed(rand=0.5, reason="no", status=self.choose([None, 503])))

    def answer(self) -> None:
        assert self.poll is not None
        poll, self.poll = self.poll, None
        listed = [(id_, claim) for id_, claim, _ in poll.body["held"]]
        answers = [self._ack_answer(item) for item in poll.body["acks"]]
        lost = [pair for pair in listed if pair not in self.owed and self.choose([False, False, False, True])]
        commands = [self._command(listed) for _ in range(self.choose([0, 1, 1, 2, 4]))]
        given = {(one["body"]["invocation_id"], one["body"]["claim"]) for one in commands if one["kind"] == "run"}
        lost += [pair for pair in listed if any(id_ == pair[0] and claim > pair[1] for id_, claim in given)]
        body = {"commands": commands, "acks": answers, "lost": [list(pair) for pair in lost], "lease_s": LEASE_S}
        if self.choose([False] * 30 + [True]):
            body["target_nymph_version"] = "9.9"
        if self.now - self.poll_sent_at < LEASE_S * 0.9:
            self.lost |= set(lost)
            for item, said in zip(poll.body["acks"], answers, strict=True):
                self._acked(item, said)
            until = self.poll_sent_at + LEASE_S * 0.9
            for pair in listed:
                self.vouched[pair] = max(self.vouched.get(pair, 0.0), until)
            for pair in given:
                self.vouched[pair] = max(self.vouched.get(pair, 0.0), until)
        self.thaw_until = 0.0 if self.now - self.poll_sent_at < LEASE_S * 0.9 else self.thaw_until
        self.tell(events.PollAnswered(n=poll.n, answer=body, epoch=EPOCH + self.now))

    def _command(self, listed: list[tuple[str, int]]) -> dict[str, Any]:
        kind = self.choose(["run", "run", "run", "again", "exec", "setup", "cancel", "rare"])
        if kind == "run":
            id_ = self.choose([f"i{k}" for k in range(6)])
            self.claims[id_] = self.claims.get(id_, 0) + 1
            return run(id_, self.claims[id_])
        if kind == "again" and self.claims:
            id_ = self.choose(sorted(self.claims))
            return run(id_, self.claims[id_])
        if kind == "exec":
            return exec_(self.choose([f"e{k}" for k in range(8)]))
        if kind == "setup":
            id_ = self.choose([f"s{k}" for k in range(4)])
            return command("setup", id_, script="true", refresh_capabilities=self.choose([True, False]))
        if kind == "cancel" and listed:
            id_, claim = self.choose(listed)
            return command("cancel", invocation_id=id_, claim=claim)
        return self.choose(
            [
                command("hibernate", until_epoch_s=EPOCH + self.now + 40.0),
                {"id": "k", "kind": "rotate_key"},
                {"id": "b", "kind": "reset_backoff"},
                command("ota_update", version="9", url="u", sha256="a" * 64),
                {"id": "?", "kind": "unheard-of"},
            ]
        )

    def fail_poll(self) -> None:
        assert self.poll is not None
        poll, self.poll = self.poll, None
        status = self.choose([None, None, None, 503, 409, 401])
        self.tell(events.PollFailed(n=poll.n, rand=0.5, reason="no", status=status))

    def answer_late(self) -> None:
        n = self.given_up.pop()
        self.tell(events.PollAnswered(n=n, answer={"commands": [run("late", n)]}, epoch=EPOCH + self.now))

    def _ack_answer(self, item: Any) -> dict[str, Any]:
        result = self.choose(["ok", "ok", "ok", "duplicate", "stale", "refused", "gap"])
        return {"invocation_id": item["invocation_id"], "claim": item["claim"], "result": result, "expected": 1}

    def _acked(self, item: Any, said: dict[str, Any]) -> None:
        if said["result"] in ("ok", "duplicate", "stale"):
            self.owed.pop((item["invocation_id"], item["claim"]), None)

    def ack(self) -> None:
        assert self.batch is not None
        batch, self.batch = self.batch, None
        answers = [self._ack_answer(item) for item in batch.items]
        for item, said in zip(batch.items, answers, strict=True):
            self._acked(item, said)
        self.tell(events.AcksAnswered(batch=batch.batch, answers=answers))

    def fail_acks(self) -> None:
        assert self.batch is not None
        batch, self.batch = self.batch, None
        self.tell(events.AcksFailed(batch=batch.batch, rand=0.5, reason="no"))

    def take_result(self) -> None:
        kind, id_ = self.results.pop(0)
        self.tell(events.ResultAnswered(kind=kind, id=id_))

    def fail_result(self) -> None:
        kind, id_ = self.results.pop(0)
        self.tell(events.ResultFailed(kind=kind, id=id_, rand=0.5, reason="no", status=self.choose([None, 404])))

    def start_job(self) -> None:
        waiting = [pair for pair in self.jobs if ("started", pair) not in self.begun]
        if waiting:
            pair = self.choose(waiting)
            self.begun.add(("started", pair))
            if self.jobs[pair] == "starting":
                self.jobs[pair] = "running"
            self.tell(events.JobStarted(invocation_id=pair[0], claim=pair[1], epoch=EPOCH + self.now))

    def print(self) -> None:
        pair = self.choose(sorted(self.jobs))
        self.tell(events.JobOutput(invocation_id=pair[0], claim=pair[1], tail=self.choose([b"", b"x", b"yy"])))

    def end_job(self) -> None:
        pair = self.choose(sorted(self.jobs))
        why = self.jobs.pop(pair)
        state = self.choose(["succeeded", "failed"])
        if why != "lost" and not (why == "lease" and state == "failed") and pair not in self.lost:
            self.owed[pair] = state
        self.tell(events.JobEnded(invocation_id=pair[0], claim=pair[1], ending={"state": state, "result_blob": b"r"}))

    def end_exec(self) -> None:
        id_ = self.choose(sorted(self.execs))
        del self.execs[id_]
        self.tell(events.ExecEnded(exec_id=id_, result={"exit_code": 0, "stdout": b"out"}))

    def end_setup(self) -> None:
        id_ = self.setups.pop()
        self.tell(events.SetupEnded(setup_id=id_, result={"exit_code": self.choose([0, 1])}))

    def detect(self) -> None:
        self.detecting -= 1
        self.tell(events.HostDetected(capabilities={"runners": ["process"], "found": self.now}))

    def rotate(self) -> None:
        self.rotating -= 1
        happened = [events.KeyRotated(key_id="k"), events.RotationFailed(reason="no")]
        self.tell(self.choose(happened))

    def update(self) -> None:
        version, self.updating = self.updating, None
        assert version is not None
        if self.choose([True, True, False]):
            self.tell(events.UpdateFailed(version=version, reason="no"))
        else:
            self.signals += 1  # nothing starts from now on either
            self.tell(events.UpdateInstalled(version=version))

    def signal(self) -> None:
        self.signals += 1
        self.tell(events.Signalled(name="SIGTERM"))

    # -- the end

    def leave(self) -> None:
        """A signal; from then on the world is kind. The daemon must come to its end."""
        self.was_kind = not self.over and not self.signals
        if not self.over:
            self.signal()
        kind: Choose = lambda options: options[0]  # noqa: E731 - it replaces one
        self.choose = kind
        for _ in range(2000):
            if self.over:
                return
            if self.batch is not None:
                self.ack()
            elif self.results:
                self.take_result()
            elif self.poll is not None:
                self.answer()
            elif self.jobs:
                self.end_job()
            elif self.execs:
                self.end_exec()
            elif self.setups:
                self.end_setup()
            else:
                self.fire()
        raise AssertionError(f"it does not leave: {json.loads(self.log[-1])}")
