"""Daemons that are to go: they get no more work, end what they have in hand, and then their rows are deleted.

Rules: one of which nobody hears is not waited for. A daemon whose process is a new one is told again. Who ceases to
wait, by Ctrl-C or at the deadline, leaves them drained: they are in the list, and the next `down` goes on, or `up`
lets them work again.
Reference: get-started/compose.md; admin/happy-paths/12-compose-cluster.md; C-343, C-344, C-1408.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.workers import Workers
from lakeshore.net.errors import NetError, ProtocolViolation

from ..output import say
from .parallel import Refusal, each
from .plan import SILENT, Member, Row, members, order
from .words import listed

POLL_S = 0.5
_SLOWEST_S = 2.0


@dataclass(slots=True)
class Ended:
    """What came of it: who is deleted (and whether a machine went with it), who could not be, who still works."""

    deleted: list[tuple[Member, bool]] = field(default_factory=list)
    refused: list[tuple[Member, Refusal]] = field(default_factory=list)
    working: list[Member] = field(default_factory=list)

    @property
    def machines(self) -> int:
        """How many went."""
        return sum(machine for _one, machine in self.deleted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """`client` makes one for a thread. `keep_instance`: no machine goes. `wait`: they are drained first, for `limit_s`
    at most (None: as long as it takes).
    """

    server: ApiClient
    client: Callable[[], ApiClient]
    project: str
    keep_instance: bool
    wait: bool
    limit_s: float | None = None

    def end(self, found: Sequence[Member], ended: Ended) -> None:
        """End these, and note in `ended` what came of it, also when it is interrupted."""
        ended.working = list(found)
        if not self.wait:
            self._delete(found, ended)
            return
        self._delete([one for one in found if one.state in SILENT], ended)
        each(
            list(ended.working),
            _drain,
            client=self.client,
            done=lambda _one, _none: None,
            refused=lambda one, why: _note(ended, one, why),
        )
        began, told, nap, away = time.monotonic(), "", 0.0, False
        while ended.working:
            try:
                self._look(ended)
                away = False
            except ProtocolViolation:
                raise
            except NetError as error:
                if not away:
                    say(f"the server is away, asking again: {error}")
                away = True
            if not ended.working or (self.limit_s is not None and time.monotonic() - began >= self.limit_s):
                return
            words = listed(f"{one.label} ({one.held})" for one in ended.working)
            if words != told:
                say(f"waiting for the jobs of {words}; they get no more")
                told = words
            nap = min(nap + POLL_S, _SLOWEST_S)
            time.sleep(nap)

    def _look(self, ended: Ended) -> None:
        """Delete those that are idle by now, and tell new processes of the others."""
        now = {one.id: one for one in members(Workers(self.server).all(project=self.project))}
        ended.working = [now.get(one.id, one) for one in ended.working]
        self._delete([one for one in ended.working if one.id not in now or _is_idle(one)], ended)
        for one in ended.working:
            if one.state != "draining":
                _drain(self.server, one)

    def _delete(self, found: Sequence[Member], ended: Ended) -> None:
        def delete(server: ApiClient, one: Member) -> Row:
            try:
                return Workers(server).kill(one.id, keep_instance=self.keep_instance)
            except ApiError as error:
                if error.status != 404:
                    raise
                return {}  # somebody else did

        def gone(one: Member, answer: Row) -> None:
            if answer.get("trouble"):
                say(f"note: {one.label}: {answer['trouble']}")
            ended.deleted.append((one, bool(answer.get("terminated"))))
            ended.deleted.sort(key=lambda pair: order(pair[0]))
            ended.working = [other for other in ended.working if other.id != one.id]

        each(found, delete, client=self.client, done=gone, refused=lambda one, why: _note(ended, one, why))


def _drain(server: ApiClient, one: Member) -> None:
    try:
        Workers(server).drain(one.id)
    except ApiError as error:
        if error.status != 404:  # it went meanwhile: the next look says so
            raise


def _note(ended: Ended, one: Member, why: Refusal) -> None:
    ended.refused.append((one, why))
    ended.working = [other for other in ended.working if other.id != one.id]


def _is_idle(one: Member) -> bool:
    return one.state in SILENT or (one.state == "draining" and not one.held)
