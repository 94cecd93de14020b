"""The producer verbs of an HTTP plane on the running loop: no thread per verb, wait or stream.

As on the blocking side, submits that come together leave together, and one task of those that wait reads the process's
one watch; the others are told. Works on asyncio and on trio; every loop has a watch of its own.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from lakeshore import wire
from lakeshore.net.current import async_pool_for
from lakeshore.net.errors import ConnectionLost, NetError
from lakeshore.net.errors import Timeout as NetTimeout

from . import http_wire, outcomes
from .aio import Promise, in_thread, loop_key, promise, sleep
from .errors import DispatchError
from .http_client import SLACK_S, WAITING, HttpClient
from .http_wire import Refusal
from .ids import check_id
from .submitter import MAX_BYTES, MAX_ITEMS
from .warned import pass_on
from .watch import WatchBook
from .watcher import POLL_S, patience

T = TypeVar("T")

MAX_SENDERS = 8
"""So many full batches may be on their way at once."""


class AsyncHttp:
    """Async verbs of one control plane, for whatever loop awaits them."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._loops: dict[object, _Loop] = {}

    async def run(self, call: Callable[[], T]) -> T:
        """A blocking verb that has no async form (claim, ack, nack of hand-written workers)."""
        return await in_thread(call)

    async def submit(
        self,
        queue: str,
        envelope: bytes,
        *,
        id: str,
        key: str | None = None,
        priority: float = 0.0,
        parent: str | None = None,
        run_config: Mapping[str, Any] | None = None,
        retry_failed: str | None = None,
        delay: float | None = None,
        due: float | None = None,
        name: str | None = None,
    ) -> str:
        """As `HttpDispatch.submit`."""
        refused = outcomes.too_large(len(envelope), "the call's arguments")
        if refused is not None:
            raise refused
        if http_wire.travels_beside(len(envelope)):
            args = await in_thread(lambda: self._client.payload("args", envelope, id, "the call's arguments"))
        else:
            args = {"args_blob": envelope}
        item = http_wire.submit_item(
            queue,
            args,
            id=id,
            key=key,
            priority=priority,
            parent=parent,
            run_config=run_config,
            retry_failed=retry_failed,
            delay=delay,
            due=due,
            name=name,
        )
        waits = http_wire.waits(item)
        try:
            return await (self._loop().submit_alone(item) if waits else self._loop().submit(item))
        except DispatchError as exc:
            if http_wire.holds(exc):
                return await self._loop().submit_held(item)
            if waits:
                raise http_wire.too_old(exc) from exc
            raise

    async def result(self, inv_id: str, *, timeout: float | None) -> bytes:  # noqa: ASYNC109  # documented
        """As `HttpDispatch.result`."""
        check_id(inv_id)
        answer = await self._loop().wait(inv_id, timeout)
        if answer is None:
            asked = {"invocation_id": inv_id, "timeout_s": 0}
            answer = await self.call("POST", http_wire.AWAIT, asked, f"awaiting {inv_id}")
            if answer["state"] == "pending":
                raise outcomes.still(inv_id, str(answer.get("row_state")), timeout)
        answer = http_wire.value_or_raise(inv_id, answer)
        reference = answer.get("result_ref")
        if reference:
            return await in_thread(lambda: self._client.fetch(reference, "the result"))
        return answer.get("result_blob") or b""

    async def get(self, inv_id: str) -> dict[str, Any] | None:
        """As `HttpDispatch.get`."""
        check_id(inv_id)
        body = {"invocation_id": inv_id, "timeout_s": 0, "get": True}
        answer = await self.call("POST", http_wire.AWAIT, body, f"asking for {inv_id}")
        row: dict[str, Any] | None = answer.get("invocation")
        return row

    async def cancel(self, inv_id: str) -> bool:
        """As `HttpDispatch.cancel`."""
        check_id(inv_id)
        path = http_wire.path("v1", "producer", "invocations", inv_id, "cancel")
        return http_wire.was_cancelled(*await self._call_again(path, {}, f"cancelling {inv_id}"))

    async def count(self, queue: str, state: str) -> int:
        """As `HttpDispatch.count`."""
        wanted = "killed" if state == "cancelled" else state
        path = http_wire.path("v1", "producer", "queues", queue, "count", state=wanted)
        return int((await self.call("GET", path, None, f"counting {queue}"))["count"])

    def journal_read(
        self, inv_id: str, *, since: int = -1, timeout: float | None = 30.0
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """As `HttpDispatch.journal_read`, on one connection and no thread."""
        return self._read_frames(inv_id, http_wire.Pieces(since), timeout)

    def journal_values(
        self, inv_id: str, reader: wire.ValueReader, *, timeout: float | None
    ) -> AsyncGenerator[Any, None]:
        """As `HttpDispatch.journal_values`, in the same way."""
        return self._read_frames(inv_id, reader, timeout)

    async def _read_frames(
        self,
        inv_id: str,
        reader: Any,
        timeout: float | None,  # noqa: ASYNC109  # documented
    ) -> AsyncGenerator[Any, None]:
        check_id(inv_id)
        what = f"invocation {inv_id}"
        deadline = _after(timeout)
        waits = patience()
        while True:
            left = None if timeout is None else max(0.05, deadline - time.monotonic())
            path = http_wire.path("v1", "producer", "invocations", inv_id, "result", "stream", since=reader.seq)
            try:
                stream = await async_pool_for(self._client.target).stream(
                    "GET", path, headers=self._client.headers, timeout=left
                )
                async with stream:
                    if stream.status != 200:
                        http_wire.unpack(stream.status, await stream.read(), f"reading {what}")
                    async for data in stream:
                        for value in reader.feed(data):
                            yield value
                        deadline = _after(timeout)
                        if reader.ended:
                            return
            except NetTimeout:
                raise outcomes.silent(what, timeout) from None
            except Refusal as exc:
                if exc.status == 404:
                    raise outcomes.not_there(inv_id, str(exc.body.get("state"))) from None
                raise
            except ConnectionLost:
                pass  # resumed below, after the last frame seen
            except NetError as exc:
                if time.monotonic() >= deadline:
                    raise DispatchError(f"reading {what} failed: {exc}") from exc
            else:
                return
            reader.resume()
            if time.monotonic() >= deadline:
                raise outcomes.silent(what, timeout)
            await sleep(next(waits))

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
        """One verb, sent again until it is answered or the plane's timeout is over."""
        return await self._until_answered(lambda: self.once(method, path, body, what, 0.0), what)

    async def _call_again(self, path: str, body: Mapping[str, Any], what: str) -> tuple[dict[str, Any], bool]:
        """As `HttpClient.call_again`."""
        again = False

        async def send() -> dict[str, Any]:
            nonlocal again
            try:
                said = {**body, "again": True} if again else body
                return await self.once("POST", path, said, what, 0.0, retry_stale=False)
            except NetError as exc:
                again = again or exc.sent_anything
                raise

        answer = await self._until_answered(send, what)
        return answer, again

    async def submit_held(self, path: str, item: Mapping[str, Any]) -> dict[str, Any]:
        """As `HttpClient.submit_held`."""
        deadline = time.monotonic() + self._client.timeout
        waits = patience()
        while True:
            left = max(0.0, deadline - time.monotonic())
            send = functools.partial(self.once, "POST", path, {**item, "hold_s": left}, "submitting", left)
            try:
                return await self._until_answered(send, "submitting")
            except Refusal as full:
                if not http_wire.holds(full) or time.monotonic() >= deadline:
                    raise
                await sleep(next(waits))

    async def _until_answered(self, send: Callable[[], Awaitable[T]], what: str) -> T:
        deadline = time.monotonic() + self._client.timeout
        waits = patience()
        while True:
            try:
                answer = await send()
            except NetError as exc:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DispatchError(f"{what} failed: {exc}") from exc
                self._client.outage.goes_on(what, exc, f"for up to {self._client.timeout:g} s")
                await sleep(min(left, next(waits)))
            else:
                self._client.outage.over()
                return answer

    async def once(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        what: str,
        wait_s: float,
        *,
        retry_stale: bool = True,
    ) -> dict[str, Any]:
        """One request."""
        data = None if body is None else http_wire.pack(body)
        answer = await async_pool_for(self._client.target).request(
            method,
            path,
            headers=self._client.headers,
            body=data,
            timeout=wait_s + SLACK_S + self._client.timeout,
            retry_stale=retry_stale,
        )
        return http_wire.unpack(answer.status, answer.body, what)

    def answered(self) -> None:
        """The server is there."""
        self._client.outage.over()

    def tried_in_vain(self, exc: NetError) -> None:
        """A poll for results found nobody, and is made again."""
        self._client.outage.goes_on(WAITING, exc, "until the wait ends")

    def _loop(self) -> _Loop:
        key = loop_key()
        found = self._loops.get(key)
        if found is None:
            found = self._loops[key] = _Loop(self)
        return found


class _Leaving:
    """A submit on its way, and the promise of its answer, or of None: send what is in the outbox."""

    __slots__ = ("item", "promise")

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.promise = promise()


class _Loop:
    """What the tasks of one loop share: a watch, and submits that wait to leave."""

    def __init__(self, verbs: AsyncHttp) -> None:
        self._verbs = verbs
        self._book = WatchBook()
        self._leading = False
        self._followers: dict[str, list[Promise[None]]] = {}
        self._heir: Promise[None] | None = None
        """Who was woken to lead, and does not yet."""
        self._outbox: deque[_Leaving] = deque()
        self._senders = 0
        self._waits = patience()

    # -- submits

    async def submit(self, item: dict[str, Any]) -> str:
        """Each task puts its item into the outbox. One sends what is there, once a turn of the loop has brought it
        company; a full batch leaves at once. Who has its own answer leaves the sending to one that still waits.
        """
        leaving = _Leaving(item)
        self._outbox.append(leaving)
        try:
            if not self._senders or (len(self._outbox) >= MAX_ITEMS and self._senders < MAX_SENDERS):
                await self._send(leaving)
            while (answer := await leaving.promise.wait()) is None:  # asked to send
                leaving.promise = promise()
                await self._send(leaving)
        except BaseException:
            if leaving in self._outbox:
                self._outbox.remove(leaving)
            self._ask_to_send()
            raise
        if int(answer.get("status", 200)) != 200:
            http_wire.refuse(int(answer["status"]), answer, "submitting")
        return self._submitted(item, answer)

    async def submit_alone(self, item: dict[str, Any]) -> str:
        """One that is for later, without company."""
        body = {**item, "watch": self._book.session, "hold_s": 0.0}
        return self._submitted(item, await self._verbs.call("POST", http_wire.DELAYED, body, "submitting"))

    async def submit_held(self, item: dict[str, Any]) -> str:
        """One that its queue holds while it is full."""
        path = http_wire.DELAYED if http_wire.waits(item) else http_wire.SUBMIT
        answer = await self._verbs.submit_held(path, {**item, "watch": self._book.session})
        return self._submitted(item, answer)

    def _submitted(self, item: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        sent = str(answer["invocation_id"])
        self._book.submitted(sent, again="retry_failed" in item)
        pass_on(answer)
        return sent

    async def _send(self, mine: _Leaving) -> None:
        self._senders += 1
        try:
            if len(self._outbox) < MAX_ITEMS:
                await sleep(0)
            while self._outbox and not mine.promise.kept:
                await self._send_batch(mine)
        finally:
            self._senders -= 1
            self._ask_to_send()

    def _ask_to_send(self) -> None:
        if self._outbox and not self._senders:
            self._outbox[0].promise.keep(None)

    async def _send_batch(self, mine: _Leaving) -> None:
        batch: list[_Leaving] = []
        size = 0
        while self._outbox and len(batch) < MAX_ITEMS and size < MAX_BYTES:
            batch.append(self._outbox.popleft())
            size += len(batch[-1].item.get("args_blob") or b"")
        watch = self._book.session
        try:
            if len(batch) == 1:
                body = {**batch[0].item, "watch": watch, "hold_s": 0.0}
                answers = [await self._verbs.call("POST", http_wire.SUBMIT, body, "submitting")]
            else:
                body = {"invocations": [leaving.item for leaving in batch], "watch": watch}
                answers = (await self._verbs.call("POST", http_wire.SUBMIT, body, "submitting"))["results"]
        except Exception as exc:  # noqa: BLE001  # each of them raises it
            for leaving in batch:
                leaving.promise.fail(exc)
            return
        except BaseException:  # the sending task was cancelled: for the others that was no answer
            self._outbox.extendleft(leaving for leaving in reversed(batch) if leaving is not mine)
            raise
        for leaving, answer in zip(batch, answers, strict=True):
            leaving.promise.keep(answer)

    # -- results

    async def wait(self, id_: str, timeout_s: float | None) -> Mapping[str, Any] | None:
        """The answer for `id_`, or None when the time is over."""
        deadline = _after(timeout_s)
        book = self._book
        book.enter(id_)
        try:
            if self._leading and not book.is_listed(id_) and book.answer(id_) is None:
                self._tell(book.read(await self._ask(0.0)))
            while (answer := book.answer(id_)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                if self._leading:
                    await self._follow(id_, left)
                else:
                    await self._lead(min(left, POLL_S))
            book.forget(id_)
            return answer
        finally:
            book.leave(id_)
            self._hand_over()

    async def _follow(self, id_: str, left: float) -> None:
        told: Promise[None] = promise()
        self._followers.setdefault(id_, []).append(told)
        try:
            await told.wait(left if left != float("inf") else None)
        except TimeoutError:
            return
        finally:
            if self._heir is told:
                self._heir = None
            waiting = self._followers.get(id_)
            if waiting is not None and told in waiting:
                waiting.remove(told)
                if not waiting:
                    del self._followers[id_]

    async def _lead(self, wait_s: float) -> None:
        self._leading = True
        try:
            self._tell(self._book.read(await self._ask(wait_s)))
        finally:
            self._leading = False
            self._hand_over()

    async def _ask(self, wait_s: float) -> Mapping[str, Any]:
        try:
            answer = await self._verbs.once("POST", http_wire.AWAIT, self._book.request(wait_s), WAITING, wait_s)
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
        return answer

    def _tell(self, ids: list[str]) -> None:
        for id_ in ids:
            for told in self._followers.pop(id_, ()):
                told.keep(None)

    def _hand_over(self) -> None:
        """When nobody leads, wake one that still waits: it leads from here."""
        if self._leading or self._heir is not None:
            return
        for waiting in self._followers.values():
            for told in waiting:
                if not told.kept:
                    self._heir = told
                    told.keep(None)
                    return


def _after(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout
