"""What the tasks of one loop share on an HTTP plane: submits that leave together, and one watch for their results.

A task whose call is to be submitted and awaited sleeps once: the answer to its submit makes it a waiter, the answer to
its result wakes it. One of the waiters reads the watch (it leads), the others are told. Whose time is over before its
submit was answered is in no later try of it, and leaves the sending to one that still waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakeshore.net.errors import NetError

from . import http_wire, vain
from .aio import Alarm, LoopFuture, alarm, futures, sleep
from .http_client import WAITING
from .limits import GRACE_S, NEVER, OutOfTime
from .submitter import MAX_BYTES, MAX_ITEMS
from .warned import pass_on
from .watch import WatchBook
from .watcher import POLL_S, patience

if TYPE_CHECKING:
    from .http_async import AsyncHttp

FIRST_ITEMS = 64
"""So many leave beside a sender that waits for company, or for an answer; with each more sender twice as many. The
server works on the first ones while the others are still being made: the loop may take long for one turn.
"""
MAX_SENDERS = 8


class _Waiter:
    """A task that waits for an end until `deadline`. What keeps its future is the answer, or None: look again."""

    __slots__ = ("deadline", "future", "sends")

    def __init__(self, future: LoopFuture, deadline: float) -> None:
        self.future = future
        self.deadline = deadline
        self.sends = False
        """Whether it is busy with a request that carries submits."""


class _Leaving(_Waiter):
    """A submit on its way until `until`; `sent` once it is answered, `gone` once its task waits no more. What keeps its
    future is that answer, or None: send the outbox.

    One that is `awaited` becomes a waiter for `id`, until its deadline, when it is simply taken.
    """

    __slots__ = ("awaited", "gone", "id", "item", "perhaps", "sent", "until")

    def __init__(
        self, future: LoopFuture, item: dict[str, Any], until: float, *, awaited: bool, deadline: float = NEVER
    ) -> None:
        super().__init__(future, deadline)
        self.item = item
        self.until = until
        self.awaited = awaited
        self.id = ""
        self.sent = False
        self.gone = False
        self.perhaps = False
        """Whether a try of it that got no answer may have reached the server."""

    def is_waiter(self) -> bool:
        """Whether what it waits for now is the end of `id`."""
        return self.id != ""


class HttpLoop:
    """Made on the loop that it is for."""

    def __init__(self, verbs: AsyncHttp) -> None:
        self._verbs = verbs
        self._future = futures()
        self._book = WatchBook()
        self._leading = False
        self._waiters: dict[str, list[_Waiter]] = {}
        """Those whose futures are not done: whoever tells one takes it out."""
        self._heir: _Waiter | None = None
        """Who was woken to lead, and does not yet."""
        self._alarm: Alarm = alarm(self._time_is_over)
        self._outbox: deque[_Leaving] = deque()
        self._flying: list[list[_Leaving]] = []
        """The batches that are on their way, from try to try."""
        self._asked: list[list[_Leaving]] = []
        """What the requests that are under way carry."""
        self._trouble: NetError | None = None
        """Why the last try of a submit got no answer."""
        self._senders = 0
        self._waits = patience()

    # -- submits

    async def submit(self, item: dict[str, Any], until: float) -> str:
        """The id of a submit that is on the server's disk. Raises OutOfTime."""
        leaving = _Leaving(self._future(), item, until, awaited=False)
        return self._submitted(item, await self._leave(leaving))

    async def submit_alone(self, item: dict[str, Any], until: float) -> str:
        """One that is for later, without company."""
        body = {**item, "watch": self._book.session, "hold_s": 0.0}
        answer = await self._verbs.call("POST", http_wire.DELAYED, body, "submitting", until=until)
        return self._submitted(item, answer)

    async def submit_held(self, item: dict[str, Any], until: float) -> str:
        """One that its queue holds while it is full."""
        path = http_wire.DELAYED if http_wire.waits(item) else http_wire.SUBMIT
        answer = await self._verbs.submit_held(path, {**item, "watch": self._book.session}, until)
        return self._submitted(item, answer)

    async def call(self, item: dict[str, Any], deadline: float, until: float) -> tuple[str, Mapping[str, Any] | None]:
        """`submit`, then `wait`: (id, answer)."""
        leaving = _Leaving(self._future(), item, until, awaited=True, deadline=deadline)
        try:
            answer = await self._leave(leaving)
            if leaving.is_waiter():
                return leaving.id, await self._until_ended(leaving.id, leaving) if answer is None else answer
        finally:
            if leaving.is_waiter():
                self._leave_watch(leaving.id, leaving)
        sent = self._submitted(item, answer)
        return sent, await self.wait(sent, deadline)

    def _submitted(self, item: Mapping[str, Any], answer: Mapping[str, Any] | Exception) -> str:
        if isinstance(answer, Exception):
            raise answer
        status = int(answer.get("status", 200))
        if status != 200:
            http_wire.refuse(status, answer, "submitting")
        sent = str(answer["invocation_id"])
        self._book.submitted(sent, again="retry_failed" in item)
        pass_on(answer)
        return sent

    async def _leave(self, leaving: _Leaving) -> Any:
        """Each task puts its item into the outbox. One sends what is there, once a turn of the loop has brought it
        company; what is enough beside it leaves at once. Who has its own answer leaves the sending to one that still
        waits.
        """
        self._outbox.append(leaving)
        self._alarm.set_before(leaving.until)
        enough = min(FIRST_ITEMS << max(0, self._senders - 1), MAX_ITEMS)
        try:
            while not leaving.sent:
                if self._may_send(enough):
                    await self._send(leaving)
                    continue
                answer = await leaving.future
                if answer is not None or leaving.is_waiter():
                    return answer
                leaving.future = self._future()
                enough = FIRST_ITEMS  # it was asked to send
                self._alarm.set_before(leaving.until)  # it may have rung while this was not told
        except BaseException:
            leaving.gone = True
            if not leaving.sent and leaving in self._outbox:
                self._outbox.remove(leaving)
            self._ask_to_send()
            raise
        return await leaving.future if leaving.future.done() else None

    async def _send(self, mine: _Leaving) -> None:
        self._senders += 1
        mine.sends = True
        try:
            if len(self._outbox) < FIRST_ITEMS:
                await sleep(0)
            while self._outbox and not mine.sent:
                await self._send_batch(mine)
        finally:
            self._senders -= 1
            mine.sends = False
            if not mine.sent:
                self._alarm.set_before(mine.until)  # it may have rung while this was not told
            self._ask_to_send()

    def _may_send(self, enough: int = FIRST_ITEMS) -> bool:
        """Whether the outbox has something, and nobody sends, or it is enough for one more sender."""
        waiting = len(self._outbox)
        return waiting > 0 if not self._senders else waiting >= enough and self._senders < MAX_SENDERS

    def _ask_to_send(self) -> None:
        if self._may_send():
            free = next((leaving for leaving in self._outbox if not leaving.sends), None)
            if free is not None:  # else those that send find it there when they are answered
                _keep(free.future, None)

    async def _send_batch(self, mine: _Leaving) -> None:
        batch: list[_Leaving] = []
        size = 0
        while self._outbox and len(batch) < MAX_ITEMS and size < MAX_BYTES:
            batch.append(self._outbox.popleft())
            size += len(batch[-1].item.get("args_blob") or b"")
        self._flying.append(batch)
        try:
            answers = await self._verbs.until_answered(lambda: self._try(batch, mine), "submitting", until=mine.until)
        except OutOfTime as late:
            self._put_back(batch, mine)
            if mine.sent:  # it has its answer, by another one's request
                return
            late.sent = self._may_have_arrived(mine)
            raise
        except Exception as exc:  # noqa: BLE001  # each of them raises it
            for leaving in batch:
                leaving.sent = True
                _keep(leaving.future, exc)  # as a value: one that sends others may go before it looks
            return
        except BaseException:  # the sending task was cancelled: for the others that was no answer
            self._put_back(batch, mine)
            raise
        finally:
            self._flying.remove(batch)
        for leaving, answer in answers:
            leaving.sent = True
            if leaving.gone:  # it went while it sent others: nobody looks at its future
                continue
            if not (leaving.awaited and self._becomes_waiter(leaving, answer)):
                _keep(leaving.future, answer)
        if not mine.is_waiter():  # else it comes to the watch by itself
            self._hand_over()

    async def _try(self, batch: list[_Leaving], mine: _Leaving) -> Iterable[tuple[_Leaving, Any]]:
        """One request with those of a batch that still wait, and what each of them is answered."""
        there = [leaving for leaving in batch if not leaving.gone]
        if not there:
            return ()
        watch = self._book.session
        if len(there) == 1:
            body = {**there[0].item, "watch": watch, "hold_s": 0.0}
        else:
            body = {"invocations": [leaving.item for leaving in there], "watch": watch}
        self._asked.append(there)
        try:
            answer = await self._verbs.once("POST", http_wire.SUBMIT, body, "submitting", 0.0, until=mine.until)
        except NetError as exc:
            self._trouble = exc
            for leaving in there:
                leaving.perhaps = leaving.perhaps or exc.sent_anything
            raise
        finally:
            self._asked.remove(there)
        self._trouble = None
        return ((there[0], answer),) if len(there) == 1 else zip(there, answer["results"], strict=True)

    def _may_have_arrived(self, leaving: _Leaving) -> bool:
        return leaving.perhaps or any(leaving in there for there in self._asked)

    def _put_back(self, batch: list[_Leaving], mine: _Leaving) -> None:
        self._outbox.extendleft(leaving for leaving in reversed(batch) if leaving is not mine and not leaving.gone)

    def _becomes_waiter(self, leaving: _Leaving, answer: Mapping[str, Any]) -> bool:
        """Whether the submit was simply taken: then its task is not woken before its end."""
        if answer.get("status", 200) != 200 or answer.get("warnings") or leaving.future.done():
            return False
        id_ = leaving.id = str(answer["invocation_id"])
        if self._book.taken(id_, again="retry_failed" in leaving.item):
            self._enlist(id_, leaving)
        else:
            _keep(leaving.future, None)
        return True

    # -- results

    async def wait(self, id_: str, deadline: float) -> Mapping[str, Any] | None:
        """The answer for `id_`, or None when the time is over."""
        waiter = _Waiter(self._future(), deadline)
        book = self._book
        book.enter(id_)
        try:
            if self._leading and not book.is_listed(id_) and book.answer(id_) is None:
                self._tell(await self._ask(0.0, deadline + GRACE_S))
            return await self._until_ended(id_, waiter)
        finally:
            self._leave_watch(id_, waiter)

    async def _until_ended(self, id_: str, waiter: _Waiter) -> Mapping[str, Any] | None:
        """The answer for what the book knows is waited for, or None when the time is over."""
        poll_s = vain.SAID_AFTER_S
        while (answer := self._book.take(id_)) is None:
            if self._heir is waiter:
                self._heir = None
            left = waiter.deadline - time.monotonic()
            if left <= 0:
                return None
            if not self._leading:
                self._dismiss(id_, waiter)
                await self._lead(min(left, poll_s), waiter.deadline + GRACE_S)
                poll_s = POLL_S
                continue
            if waiter.future.done():
                waiter.future = self._future()
            if waiter not in self._waiters.get(id_, ()):
                self._enlist(id_, waiter)
            answer = await waiter.future
            if answer is not None:
                break
        return answer

    async def _lead(self, wait_s: float, until: float) -> None:
        self._leading = True
        try:
            self._tell(await self._ask(wait_s, until))
        finally:
            self._leading = False  # it leads again, or leaves the watch, which hands the lead over

    async def _ask(self, wait_s: float, until: float) -> Mapping[str, Any]:
        body = self._book.request(wait_s)
        try:
            answer = await self._verbs.once("POST", http_wire.AWAIT, body, WAITING, wait_s, until=until)
        except NetError as exc:
            self._verbs.tried_in_vain(exc)
            self._book.lost_set()
            await sleep(next(self._waits))
            return {}
        except BaseException:
            self._book.lost_set()  # cancelled: what the server answered is not known
            raise
        self._waits = patience()
        self._verbs.answered()
        vain.tell(answer)
        return answer

    def _tell(self, answer: Mapping[str, Any]) -> None:
        book = self._book
        for id_, item in book.arrived(answer):
            told = self._waiters.pop(id_, ())
            for waiter in told:
                _keep(waiter.future, item)
            if len(told) < book.waiting.get(id_, 1):  # the one that leads waits for it, or nobody does yet
                book.keep(id_, item)

    # -- who waits

    def _enlist(self, id_: str, waiter: _Waiter) -> None:
        self._waiters.setdefault(id_, []).append(waiter)
        self._alarm.set_before(waiter.deadline)

    def _dismiss(self, id_: str, waiter: _Waiter) -> None:
        waiting = self._waiters.get(id_)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._waiters[id_]

    def _leave_watch(self, id_: str, waiter: _Waiter) -> None:
        self._dismiss(id_, waiter)
        if self._heir is waiter:
            self._heir = None
        self._book.leave(id_)
        self._hand_over()

    def _hand_over(self) -> None:
        """When nobody leads, wake one that still waits: it leads from here."""
        if self._leading or self._heir is not None:
            return
        for id_, waiting in self._waiters.items():
            for waiter in waiting:
                if not waiter.sends:  # one that does comes to the watch by itself, once it is free
                    self._heir = waiter
                    self._dismiss(id_, waiter)
                    _keep(waiter.future, None)
                    return

    def _time_is_over(self) -> None:
        now, next_at = time.monotonic(), NEVER
        for id_, waiting in list(self._waiters.items()):
            for waiter in list(waiting):
                if waiter.deadline <= now:
                    self._dismiss(id_, waiter)
                    _keep(waiter.future, None)
                else:
                    next_at = min(next_at, waiter.deadline)
        for leaving in (leaving for batch in (self._outbox, *self._flying) for leaving in batch if not leaving.gone):
            if leaving.until > now:
                next_at = min(next_at, leaving.until)
            elif not (leaving.sends or leaving.future.done()):  # one that sends is told by what it sends with
                late = OutOfTime(self._trouble, sent=self._may_have_arrived(leaving) or self._trouble is None)
                leaving.gone = True
                leaving.future.set_exception(late)
        self._alarm.set_before(next_at)


def _keep(future: LoopFuture, value: Any) -> None:
    if not future.done():  # its task was cancelled
        future.set_result(value)
