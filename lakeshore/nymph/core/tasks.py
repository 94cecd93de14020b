"""Commands (exec) and scripts (setup): each runs at most once here, and its result is told until it is taken (K-34).

Commands share the slots of the jobs, and wait for one in the order in which they came. Scripts need none: they run one
after the other, in the order in which they came (nymph/protocol, "setup").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .machines import TASK
from .recent import Recent
from .story import Story

EXEC: Final = "exec"
SETUP: Final = "setup"
_RUNNING: Final = frozenset({"running", "stopping"})


@dataclass(slots=True, kw_only=True)
class Task:
    """One command or script."""

    kind: str
    id: str
    body: Mapping[str, Any]
    state: str = "queued"

    @property
    def key(self) -> str:
        """Its name in stories."""
        return f"{self.kind} {self.id}"


class Tasks:
    """Those of one kind."""

    def __init__(self, kind: str, story: Story) -> None:
        self.kind = kind
        self.last_id: str | None = None
        self._story = story
        self._tasks: dict[str, Task] = {}
        self._seen = Recent()

    def __iter__(self) -> Iterator[Task]:
        return iter(list(self._tasks.values()))

    def __len__(self) -> int:
        return len(self._tasks)

    def known(self, id_: str, event: str) -> Task:
        """One that must be there. Raises IllegalTransition."""
        task = self._tasks.get(id_)
        if task is None:
            raise self._story.nowhere(TASK, f"{self.kind} {id_}", event)
        return task

    def get(self, id_: str) -> Task | None:
        return self._tasks.get(id_)

    def receive(self, id_: str, body: Mapping[str, Any], now: float) -> Task | None:
        """A delivered one; None when it was delivered before."""
        if not self._seen.is_new(id_):
            return None
        task = Task(kind=self.kind, id=id_, body=body)
        task.state = self._story.born(TASK, task.key, task.state, now)
        self._tasks[id_] = task
        self.last_id = id_
        return task

    def move(self, task: Task, event: str, now: float) -> str:
        """Its next state. Raises IllegalTransition."""
        task.state = self._story.step(TASK, task.key, task.state, event, now)
        if task.state in TASK.terminal:
            del self._tasks[task.id]
        return task.state

    def running(self) -> list[Task]:
        return [task for task in self._tasks.values() if task.state in _RUNNING]

    def queued(self) -> list[Task]:
        """Those that wait, the first first."""
        return [task for task in self._tasks.values() if task.state == "queued"]

    def open(self) -> int:
        """How many wait or run."""
        return sum(task.state != "ended" for task in self._tasks.values())
