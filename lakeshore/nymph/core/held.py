"""The jobs of a daemon: what it holds, what runs, what it still has to tell (CONTRACT K-8, K-11, K-12).

The list is the truth: a pair is listed from its `run` until its ack has been answered, or until it is not this daemon's
any more. One lease, less a margin, after *sending* the last answered poll that listed or delivered a pair, its body is
stopped: the server gives nothing away while it runs here. A pair that lapses stays listed until its body has ended.
A newer claim of an invocation waits until the older body has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakeshore.wire.messages import Pair

from .machines import JOB
from .recent import Recent
from .story import Story

MARGIN: Final = 0.1
"""The part of a lease that is not counted on."""
TAIL_BYTES: Final = 8192

_LISTED: Final = frozenset({"waiting", "starting", "running", "stopping", "lapsing", "ended"})
_ALIVE: Final = frozenset({"starting", "running", "stopping", "lapsing", "lost"})
"""In these, a body may be there: it takes a slot."""
_MAY_LAPSE: Final = frozenset({"waiting", "starting", "running", "stopping"})


@dataclass(slots=True, kw_only=True)
class Job:
    """One claim. `usable_until` is on the clock of `now`."""

    id: str
    claim: int
    body: Mapping[str, Any]
    state: str
    usable_until: float
    started_at: float | None = None
    """Epoch seconds."""
    stop_why: str | None = None
    tail: bytes = b""
    printed: int = 0
    """How often `tail` has changed; `told` is what the server has been told of that."""
    told: int = 0
    ending: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pair(self) -> Pair:
        return (self.id, self.claim)

    @property
    def key(self) -> str:
        """Its name in stories."""
        return f"{self.id}.{self.claim}"

    def print(self, tail: bytes) -> None:
        """It has printed something; this is the end of it."""
        self.tail = tail[-TAIL_BYTES:]
        self.printed += 1


class Held:
    """Every job that is not over."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._jobs: dict[Pair, Job] = {}
        self._claims = Recent()
        self._taken: int | None = 0
        self._lapses_at: tuple[float | None] | None = None
        """What was counted last; None when something has changed since."""

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    # -- what is there

    def get(self, id_: str, claim: int) -> Job | None:
        return self._jobs.get((id_, claim))

    def known(self, id_: str, claim: int, event: str) -> Job:
        """A job that must be there. Raises IllegalTransition."""
        job = self._jobs.get((id_, claim))
        if job is None:
            raise self._story.nowhere(JOB, f"{id_}.{claim}", event)
        return job

    def listed(self) -> list[Job]:
        """What the next poll lists."""
        return [job for job in self._jobs.values() if job.state in _LISTED]

    def alive(self) -> list[Job]:
        """Those that may have a body."""
        return [job for job in self._jobs.values() if job.state in _ALIVE]

    def taken(self) -> int:
        """Slots that are taken, or promised to a claim that waits for its older body."""
        if self._taken is None:
            self._taken = sum(job.state in _ALIVE or job.state == "waiting" for job in self._jobs.values())
        return self._taken

    def ready(self) -> list[Job]:
        """Waiting ones whose older body has ended."""
        waiting = [job for job in self._jobs.values() if job.state == "waiting"]
        alive = {job.id for job in self.alive()} if waiting else ()
        return [job for job in waiting if job.id not in alive]

    # -- what becomes of it

    def move(self, job: Job, event: str, now: float) -> str:
        """The job's next state. Raises IllegalTransition."""
        job.state = self._story.step(JOB, job.key, job.state, event, now)
        self._taken = self._lapses_at = None
        if job.state in JOB.terminal:
            del self._jobs[job.pair]
        return job.state

    def receive(self, body: Mapping[str, Any], usable_until: float, now: float) -> Job | None:
        """A delivered claim; None when it, or a later one of its invocation, was delivered before."""
        id_, claim = str(body["invocation_id"]), int(body["claim"])
        if not self._claims.is_new(id_, claim):
            return None
        return self._add(Job(id=id_, claim=claim, body=body, state="waiting", usable_until=usable_until), now)

    def adopt(self, found: Mapping[str, Any], usable_until: float, now: float) -> Job:
        """A job of an older daemon; it is over if it has an ending."""
        id_, claim = str(found["invocation_id"]), int(found["claim"])
        self._claims.is_new(id_, claim)
        ending = found.get("ending")
        return self._add(
            Job(
                id=id_,
                claim=claim,
                body=found.get("body") or {},
                state="running" if ending is None else "ended",
                usable_until=found.get("usable_until") or usable_until,
                started_at=found.get("started_at"),
                ending=ending or {},
            ),
            now,
        )

    def _add(self, job: Job, now: float) -> Job:
        job.state = self._story.born(JOB, job.key, job.state, now)
        self._jobs[job.pair] = job
        self._taken = self._lapses_at = None
        return job

    def renew(self, pairs: tuple[Pair, ...], usable_until: float) -> None:
        """An answered poll has listed these."""
        self._lapses_at = None
        for pair in pairs:
            job = self._jobs.get(pair)
            if job is not None:
                job.usable_until = max(job.usable_until, usable_until)

    def lapses_at(self) -> float | None:
        """When the first lease that is not renewed must be given up."""
        if self._lapses_at is None:
            times = (job.usable_until for job in self._jobs.values() if job.state in _MAY_LAPSE)
            self._lapses_at = (min(times, default=None),)
        return self._lapses_at[0]

    def lapsed(self, now: float) -> list[Job]:
        """Those whose lease may be over at the server before long."""
        first = self.lapses_at()
        if first is None or now < first:
            return []
        return [job for job in self._jobs.values() if job.state in _MAY_LAPSE and now >= job.usable_until]


def usable_until(sent_at: float, lease_s: float) -> float:
    """How long a claim may be counted on that a poll sent at `sent_at` has listed or brought."""
    return sent_at + lease_s * (1 - MARGIN)


def listing(job: Job) -> list[Any]:
    """A pair as a poll's `held` has it: begun from the moment it was handed to a runner."""
    return [job.id, job.claim, job.state != "waiting"]


def status(job: Job) -> dict[str, Any]:
    """What `invocations` says of a job in flight (N-110). `stdout_tail` is null while there is nothing new in it."""
    tail = None if job.told == job.printed else job.tail.decode("utf-8", "replace")
    return {
        "invocation_id": job.id,
        "state": "running",
        "started_at": job.started_at,
        "exit_code": None,
        "stdout_tail": tail,
    }
