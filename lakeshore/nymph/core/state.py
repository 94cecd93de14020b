"""What the core keeps between two events, and what every part of it does with that.

The parts (`greeting`, `work`, `answers`, `leaving`, `clock`) are functions of this state, an event and the time.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from lakeshore.wire.messages import Pair
from lakeshore.wire.states import IllegalTransition

from .backoff import Backoff
from .capacity import Capacity
from .drain import Drain
from .held import Held
from .idle import Idle
from .instructions import GiveUpPoll, Instruction, Say
from .machines import LOOP
from .outbox import Outbox
from .polls import Polls
from .settings import Settings
from .story import Story
from .tasks import EXEC, SETUP, Tasks

TaskKey: TypeAlias = tuple[str, str]
"""Kind and id."""
HURRY_S: Final = 1.0
"""While the daemon leaves, no wait before telling again starts from more than this."""


class State:
    """One daemon's. Times are on the clock of `now` unless they are called epoch."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.loop = "starting"
        self.story = Story()
        self.story.born(LOOP, settings.worker_id, self.loop, 0.0)
        self.now: float | None = None
        self.out: list[Instruction] = []
        self.timer: float | None = None
        """What the last SetTimer said."""

        self.held = Held(self.story)
        self.execs = Tasks(EXEC, self.story)
        self.setups = Tasks(SETUP, self.story)
        self.capacity = Capacity(settings.max_invocations)

        self.greeted = False
        self.dismissed = False
        """The server has no such worker any more: it is asked nothing."""
        self.hello_out = False
        self.hello_at: float | None = None
        self.reenrolling = False

        self.polls = Polls(settings)
        self.backoff = Backoff(settings.retry_min_s, settings.retry_max_s)
        self.last_poll_ok_epoch: float | None = None
        self.idle = Idle(settings.keep_alive_s)
        self.hibernate_until_epoch: float | None = None
        self.wake_at: float | None = None
        self.thaw_until = 0.0

        self.acks: Outbox[Pair] = Outbox()
        self.ack_backoff = Backoff(settings.retry_min_s, settings.retry_max_s)
        self.batch = 0
        self.batch_out: tuple[Pair, ...] | None = None
        self.results: Outbox[TaskKey] = Outbox()
        self.result_backoff = Backoff(settings.retry_min_s, settings.retry_max_s)

        self.rotating = False
        self.updating: str | None = None
        self.looked_for_update_at: float | None = None
        self.pending_version: str | None = None
        """A new program that is in place and does not run yet."""
        self.drain: Drain | None = None

    # -- questions

    def running(self) -> int:
        """Slots that are taken."""
        return len(self.held.alive()) + len(self.execs.running())

    def taken(self) -> int:
        """Slots that are taken or promised."""
        return self.held.taken() + self.execs.open()

    def wish(self) -> int:
        """How many runs the next poll may bring."""
        if self.drain is not None or self.wake_at is not None:
            return 0
        return self.capacity.wish(self.taken())

    def busy(self) -> bool:
        """Whether anything is in flight."""
        return bool(len(self.held) or len(self.execs) or len(self.setups) or self.updating is not None)

    def retry_ceiling(self) -> float | None:
        """What bounds the wait before telling again."""
        return None if self.drain is None else HURRY_S

    # -- verbs

    def say(self, level: str, message: str) -> None:
        self.out.append(Say(level=level, message=message))

    def move(self, event: str, now: float) -> None:
        """The loop's next state. Raises IllegalTransition."""
        self.loop = self.story.step(LOOP, self.settings.worker_id, self.loop, event, now)

    def illegal(self, to: str, event: str) -> IllegalTransition:
        """The error about an event that cannot be now."""
        name = self.settings.worker_id
        return IllegalTransition(LOOP.name, name, self.loop, to, event=event, history=self.story.of(name))

    def give_up_poll(self, now: float) -> None:
        """Read the answer of the poll in flight never."""
        flight = self.polls.give_up()
        if flight is not None:
            self.acks.unanswered(flight.acks, now)
            self.out.append(GiveUpPoll(n=flight.n))

    def hurry(self, now: float) -> None:
        """Whatever waits before it is said again is said now."""
        self.polls.not_before = now
        self.polls.last_sent_at = None
        self.acks.hurry()
        self.results.hurry()
