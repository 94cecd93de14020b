"""Hello, polls, acks, results and rotation: what the core says to the server, and what came of it.

The answer of a poll that was given up is never read: its connection is closed, and the next poll goes on another.
Reference: nymph/protocol; CONTRACT K-8.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import trio

from ...net.backoff import full_jitter
from ...wire.messages import LEASE_S
from ..core import answers, events, instructions
from ..core.events import Event
from ..core.tasks import EXEC
from ..identity import Identity, IdentityError
from ..told import count, maps, positive
from ..transport import Transport, TransportError

Map = Mapping[str, Any]
log = logging.getLogger("nymph.contact")
HELLO_S: Final = 30.0
RESULTS: Final = "/v1/daemon/exec/results"
_LANES: Final = 3
"""Requests with results that are on their way at the same time."""
_MOST_RESULTS: Final = 64
_MOST_BYTES: Final = 4 << 20
_LARGE: Final = ("stdout", "stderr", "result_inline")
_ABOUT_US: Final = (401, 403)
"""A refusal of a new key that is about clock, nonce or old key: the successor may still be taken later."""


class Contact:
    """`hello_body` gives what hello says but for session and adopted pairs; `named` hears what the server calls this
    daemon, `vouched` of each answered poll its lease, and how long it took, in seconds.
    """

    def __init__(
        self,
        tell: Callable[[Event], None],
        nursery: trio.Nursery,
        transport: Transport,
        *,
        hello_body: Callable[[], Map],
        session: str,
        worker_id: str,
        identity: Identity | None,
        named: Callable[[str], object],
        vouched: Callable[[float, float], None],
    ) -> None:
        self._tell, self._nursery, self._transport = tell, nursery, transport
        self._hello_body, self._session, self._identity = hello_body, session, identity
        self._polls: dict[int, trio.CancelScope] = {}
        self._named, self._vouched = named, vouched
        self._waiting: deque[instructions.SendResult] = deque()
        """How commands ended that is not on its way."""
        self._telling = 0
        self._one_by_one = False
        """The server takes no several at once."""
        self.greeted = trio.Event()
        """Set when a hello was taken."""
        self.worker_id = worker_id
        """What the server calls this daemon, once it has said so."""

    def hello(self, one: instructions.SendHello) -> None:
        self._nursery.start_soon(self._hello, one)

    def poll(self, one: instructions.Poll) -> None:
        self._nursery.start_soon(self._poll, one)

    def give_up(self, one: instructions.GiveUpPoll) -> None:
        scope = self._polls.pop(one.n, None)
        if scope is not None:
            scope.cancel()

    def acks(self, one: instructions.SendAcks) -> None:
        self._nursery.start_soon(self._acks, one)

    def result(self, one: instructions.SendResult) -> None:
        """Those that come while others are on their way go together."""
        if one.kind != EXEC or self._one_by_one:
            self._nursery.start_soon(self._result, one)
            return
        self._waiting.append(one)
        if self._telling < _LANES:
            self._telling += 1
            self._nursery.start_soon(self._results)

    def rotate(self, _one: instructions.RotateKey) -> None:
        self._nursery.start_soon(self._rotate)

    # ----

    async def _hello(self, one: instructions.SendHello) -> None:
        body = {**self._hello_body(), "session": self._session, "adopted": [list(pair) for pair in one.adopted]}
        try:
            answer = await self._transport.hello(body, timeout_s=HELLO_S)
        except IdentityError as error:
            self._tell(events.HelloAnswered(answer={"reject": {"code": "identity", "message": str(error)}}))
        except TransportError as error:
            self._tell(events.HelloFailed(rand=_chance(), reason=error.reason, status=error.status))
        else:
            if isinstance(answer.get("worker_id"), str) and answer["worker_id"]:
                self.worker_id = answer["worker_id"]
                self._named(self.worker_id)
            if isinstance(answer.get("namespace"), str):
                self._transport.namespace = answer["namespace"]
            self._tell(events.HelloAnswered(answer=answer))
            if answer.get("reject") is None:
                self.greeted.set()
            if self._identity is not None and self._identity.rotating and answer.get("reject") is None:
                await self._finish_rotation()

    async def _poll(self, one: instructions.Poll) -> None:
        with trio.CancelScope() as scope:
            self._polls[one.n] = scope
            event: Event
            sent_at = trio.current_time()
            try:
                answer = await self._transport.post("/v1/daemon/poll", one.body, timeout_s=one.patience_s, lane="poll")
                event = events.PollAnswered(n=one.n, answer=answer, epoch=time.time())
            except TransportError as error:
                event = events.PollFailed(
                    n=one.n,
                    rand=_chance(),
                    reason=error.reason,
                    status=error.status,
                    revoked=error.revoked,
                )
            if self._polls.pop(one.n, None) is None:
                return  # it was given up while the answer was being read
            self._tell(event)
            if isinstance(event, events.PollAnswered):
                lease_s = positive(event.answer.get("lease_s")) or LEASE_S
                self._vouched(lease_s, trio.current_time() - sent_at)

    async def _acks(self, one: instructions.SendAcks) -> None:
        try:
            answer = await self._transport.post("/v1/daemon/ack", {"acks": list(one.items)})
        except TransportError as error:
            self._tell(events.AcksFailed(batch=one.batch, rand=_chance(), reason=error.reason, status=error.status))
        else:
            self._tell(events.AcksAnswered(batch=one.batch, answers=answer.get("acks") or ()))

    async def tell_until_taken(self, kind: str, id_: str, result: Map) -> bool:
        """A result that the core does not know of, once hello was answered; whether anybody wants it."""
        await self.greeted.wait()
        waits = full_jitter(_chance, base=1.0, cap=60.0)
        while True:
            try:
                await self._tell_result(kind, id_, result)
            except TransportError as error:
                if error.status in answers.UNWANTED:
                    return True
                if error.revoked:
                    return False
                await trio.sleep(next(waits))
            else:
                return True

    async def _tell_result(self, kind: str, id_: str, result: Map) -> None:
        if kind == EXEC:
            await self._transport.post(f"/v1/daemon/exec/{quote(id_, safe='')}/result", result)
        else:
            await self._transport.post("/v1/daemon/event", self._setup_event(id_, result))

    async def _results(self) -> None:
        try:
            while self._waiting:
                some = self._some()
                if len(some) > 1 and not self._one_by_one:
                    await self._together(some)
                else:
                    for one in some:
                        await self._result(one)
        finally:
            self._telling -= 1

    def _some(self) -> list[instructions.SendResult]:
        some: list[instructions.SendResult] = []
        room = _MOST_BYTES
        while self._waiting and len(some) < _MOST_RESULTS:
            room -= sum(len(self._waiting[0].body.get(name) or b"") for name in _LARGE)
            if some and room < 0:
                break
            some.append(self._waiting.popleft())
        return some

    async def _together(self, some: Sequence[instructions.SendResult]) -> None:
        try:
            answer = await self._transport.post(RESULTS, {"results": [{"exec_id": o.id, **o.body} for o in some]})
        except TransportError as error:
            if error.status in answers.UNWANTED:  # of a server that does not know it: each has an answer of its own
                self._one_by_one = error.status in (404, 405)
                for one in some:
                    await self._result(one)
                return
            for one in some:
                self._not_taken(one, error.reason, error.status)
            return
        told = {a["exec_id"]: a for a in maps(answer.get("results")) if isinstance(a.get("exec_id"), str)}
        taken: list[str] = []
        for one in some:
            said = told.get(one.id)
            refused: Any = "it was not answered" if said is None else said.get("refused")
            if refused is None:
                taken.append(one.id)
            elif isinstance(refused, Mapping):
                self._not_taken(one, str(refused.get("error")), count(refused.get("status")) or None)
            else:
                self._not_taken(one, str(refused), None)
        if taken:
            self._tell(events.ResultsAnswered(kind=EXEC, ids=taken))

    def _not_taken(self, one: instructions.SendResult, reason: str, status: int | None) -> None:
        self._tell(events.ResultFailed(kind=one.kind, id=one.id, rand=_chance(), reason=reason, status=status))

    async def _result(self, one: instructions.SendResult) -> None:
        try:
            await self._tell_result(one.kind, one.id, one.body)
        except TransportError as error:
            self._not_taken(one, error.reason, error.status)
        else:
            self._tell(events.ResultAnswered(kind=one.kind, id=one.id))

    def _setup_event(self, id_: str, result: Map) -> Map:
        """How a script ended, as an event (N-417)."""
        return {
            "worker_id": self.worker_id,
            "ts": time.time(),
            "kind": "invocation.event",
            "payload": {"type": "setup", "setup_id": id_, **result},
        }

    async def _rotate(self) -> None:
        self._tell(await self._rotated())

    async def _finish_rotation(self) -> None:
        """One that an earlier daemon began: the server may know the successor already."""
        done = await self._rotated()
        if isinstance(done, events.KeyRotated):
            log.info("the key is now %s", done.key_id)
        else:
            log.warning("the key was not rotated, the old one stays: %s", done.reason)

    async def _rotated(self) -> events.KeyRotated | events.RotationFailed:
        identity = self._identity
        if identity is None:
            return events.RotationFailed(reason="this daemon has no identity")
        try:
            public_key = await trio.to_thread.run_sync(identity.begin_rotation)
            answer = await self._transport.post(
                "/v1/daemon/keys", {"worker_id": self.worker_id, "public_key": public_key}
            )
            await trio.to_thread.run_sync(identity.confirm_rotation, answer.get("key_id"))
        except TransportError as error:
            if error.status is not None and 400 <= error.status < 500 and error.status not in _ABOUT_US:
                await trio.to_thread.run_sync(identity.abandon_rotation)
            return events.RotationFailed(reason=error.reason)
        except IdentityError as error:
            return events.RotationFailed(reason=str(error))
        return events.KeyRotated(key_id=identity.key_id)


def _chance() -> float:
    return random.random()  # noqa: S311 - it spreads the retries, nothing is guarded by it
