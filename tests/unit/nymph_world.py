"""A daemon's core and a hand-wound clock: what a test says happens, and it sees what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.core.core import Core
from lakeshore.nymph.core.settings import Settings

I = TypeVar("I")  # noqa: E741 - an instruction
EPOCH = 1_750_000_000.0


def settings(**given: Any) -> Settings:
    return Settings(**{"worker_id": "box-01J", "session": "01SESSION", "version": "0.2.0", "keep_alive_s": -1, **given})


def run(id_: str, claim: int = 1, **more: Any) -> dict[str, Any]:
    body = {"invocation_id": id_, "claim": claim, "attempt": 1, "first_seq": 0, "args_blob": b"secret", **more}
    return {"id": f"{id_}.{claim}", "kind": "run", "body": body}


def command(kind: str, id_: str = "c1", **body: Any) -> dict[str, Any]:
    return {"id": id_, "kind": kind, "body": body}


def exec_(id_: str, **more: Any) -> dict[str, Any]:
    return command("exec", f"cmd-{id_}", exec_id=id_, command="true", env={}, stdin=b"", **more)


class World:
    """`now` is the daemon's clock, in seconds; its wall's clock is `EPOCH` later."""

    def __init__(self, **given: Any) -> None:
        self.core = Core(settings(**given))
        self.now = 100.0
        self.did: list[Any] = []
        """What followed from the last event."""
        self.all: list[Any] = []
        self.timer: float | None = None
        self.n = 0

    # -- what happens

    def tell(self, event: Any, after: float = 0.0) -> list[Any]:
        self.now += after
        self.did = list(self.core.handle(event, self.now))
        self.all += self.did
        for one in self.did:
            if isinstance(one, instructions.SetTimer):
                self.timer = one.at
            elif isinstance(one, instructions.Poll):
                self.n = one.n
        return self.did

    def boot(self, adopted: Sequence[Mapping[str, Any]] = ()) -> World:
        self.tell(events.Booted(adopted=adopted))
        return self

    def up(self, *commands: dict[str, Any]) -> World:
        """Booted, greeted, and polling; with commands the first poll is answered with them."""
        self.boot()
        self.tell(events.HelloAnswered(answer={"worker_id": "w1", "reject": None}))
        if commands:
            self.answer(*commands)
        return self

    def answer(self, *commands: dict[str, Any], after: float = 0.0, n: int | None = None, **more: Any) -> list[Any]:
        """The poll in flight is answered."""
        body = {"commands": list(commands), "acks": [], "lost": [], "lease_s": 60.0, **more}
        epoch = EPOCH + self.now + after
        return self.tell(events.PollAnswered(n=n or self.n, answer=body, epoch=epoch), after)

    def fail(self, *, rand: float = 0.0, after: float = 0.0, **more: Any) -> list[Any]:
        """The poll in flight fails."""
        return self.tell(events.PollFailed(n=self.n, rand=rand, reason="no answer", **more), after)

    def started(self, id_: str, claim: int = 1) -> list[Any]:
        return self.tell(events.JobStarted(invocation_id=id_, claim=claim, epoch=EPOCH + self.now))

    def ended(self, id_: str, claim: int = 1, state: str = "succeeded", after: float = 0.0, **more: Any) -> list[Any]:
        ending = {"state": state, **({"result_blob": b"r"} if state == "succeeded" else {}), **more}
        return self.tell(events.JobEnded(invocation_id=id_, claim=claim, ending=ending), after)

    def exec_ended(self, id_: str, code: int = 0) -> list[Any]:
        return self.tell(events.ExecEnded(exec_id=id_, result={"exit_code": code, "stdout": b"", "stderr": b""}))

    def signal(self, after: float = 0.0) -> list[Any]:
        return self.tell(events.Signalled(name="SIGTERM"), after)

    def acked(self, result: str = "ok", **more: Any) -> list[Any]:
        """The last batch of acks is answered, all alike."""
        batch = self.last(instructions.SendAcks)
        answers = [
            {"invocation_id": a["invocation_id"], "claim": a["claim"], "result": result, **more} for a in batch.items
        ]
        return self.tell(events.AcksAnswered(batch=batch.batch, answers=answers))

    def wait(self, seconds: float | None = None) -> list[Any]:
        """Let the timer fire, or `seconds` go by with every timer in them; all that followed."""
        if seconds is None:
            assert self.timer is not None, "no timer is set"
            self.now = max(self.now, self.timer)
            self.timer = None
            return self.tell(events.TimerFired())
        until, did = self.now + seconds, list[Any]()
        while self.timer is not None and self.timer <= until:
            did += self.wait()
        self.now = until
        self.did = did
        return did

    # -- what followed

    def these(self, kind: type[I]) -> list[I]:
        return [one for one in self.did if isinstance(one, kind)]

    def one(self, kind: type[I]) -> I:
        found = self.these(kind)
        assert len(found) == 1, f"{len(found)} of {kind.__name__} in {self.did}"
        return found[0]

    def last(self, kind: type[I]) -> I:
        return [one for one in self.all if isinstance(one, kind)][-1]

    @property
    def poll(self) -> dict[str, Any]:
        """The body of the poll that followed."""
        return dict(self.one(instructions.Poll).body)

    @property
    def said(self) -> str:
        return "\n".join(f"{one.level}: {one.message}" for one in self.these(instructions.Say))
