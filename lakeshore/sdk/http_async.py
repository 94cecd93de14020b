"""The producer verbs of an HTTP plane on the running loop: no thread per verb, wait or stream.

As on the blocking side, submits that come together leave together, and one task of those that wait reads the process's
one watch; the others are told. Works on asyncio and on trio; every loop has a watch of its own.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from lakeshore import wire
from lakeshore.net.current import async_pool_for
from lakeshore.net.errors import ConnectionLost, NetError
from lakeshore.net.errors import Timeout as NetTimeout

from . import delays, http_wire, limits, outcomes, vain
from .aio import in_thread, is_over, loop_key, sleep
from .errors import DispatchError
from .http_client import SLACK_S, WAITING, HttpClient
from .http_loop import HttpLoop
from .http_wire import Refusal
from .ids import check_id
from .limits import GRACE_S, NEVER, OutOfTime, after, allowed
from .watcher import patience

T = TypeVar("T")


class AsyncHttp:
    """Async verbs of one control plane, for whatever loop awaits them."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._loops: dict[object, HttpLoop] = {}

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
        within: float | None = None,
    ) -> str:
        """As `HttpDispatch.submit`. Raises Timeout when it takes longer than `within` seconds."""
        began, until = time.monotonic(), after(within)
        try:
            beside = http_wire.travels_beside(len(envelope))
            item = http_wire.submit_item(
                queue,
                await self._upload(envelope, id, until) if beside else {"args_blob": envelope},
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
            return await self._submit(item, until)
        except OutOfTime as late:
            raise outcomes.not_submitted(id, until - began, late) from None

    async def _submit(self, item: dict[str, Any], until: float) -> str:
        waits = http_wire.waits(item)
        try:
            return await (self._loop().submit_alone(item, until) if waits else self._loop().submit(item, until))
        except DispatchError as exc:
            if http_wire.holds(exc):
                return await self._loop().submit_held(item, until)
            if waits:
                raise http_wire.too_old(exc) from exc
            raise

    async def submit_and_wait(
        self,
        queue: str,
        envelope: bytes,
        *,
        id: str,
        timeout: float | None,  # noqa: ASYNC109  # documented
        **options: Any,
    ) -> bytes:
        """As `HttpDispatch.submit_and_wait`; the task sleeps once."""
        began, deadline = time.monotonic(), after(timeout)
        until = limits.of_submit(deadline, delays.left(options))
        loop = self._loop()
        try:
            beside = http_wire.travels_beside(len(envelope))
            args = await self._upload(envelope, id, until) if beside else {"args_blob": envelope}
            item = http_wire.submit_item(queue, args, id=id, **options)
            if http_wire.waits(item):
                sent = await self._submit(item, until)
                answer = await loop.wait(sent, deadline)
            else:
                try:
                    sent, answer = await loop.call(item, deadline, until)
                except DispatchError as exc:
                    if not http_wire.holds(exc):
                        raise
                    sent = await loop.submit_held(item, until)
                    answer = await loop.wait(sent, deadline)
        except OutOfTime as late:
            raise outcomes.not_submitted(id, until - began, late) from None
        return await self._result_of(sent, answer, deadline, timeout)

    async def _upload(self, envelope: bytes, id: str, until: float) -> dict[str, Any]:
        """Arguments that travel beside the call, as a submit carries them. DispatchError for what no plane takes."""
        return await in_thread(lambda: self._client.payload("args", envelope, id, "the call's arguments", until))

    async def result(self, inv_id: str, *, timeout: float | None) -> bytes:  # noqa: ASYNC109  # documented
        """As `HttpDispatch.result`."""
        check_id(inv_id)
        deadline = after(timeout)
        return await self._result_of(inv_id, await self._loop().wait(inv_id, deadline), deadline, timeout)

    async def _result_of(
        self,
        inv_id: str,
        answer: Mapping[str, Any] | None,
        deadline: float,
        timeout: float | None,  # noqa: ASYNC109  # of the wait that is over
    ) -> bytes:
        """The packed result in the answer to a wait."""
        if answer is None:
            asked = {"invocation_id": inv_id, "timeout_s": 0, "why": True}
            until = deadline + limits.LAST_LOOK_S
            try:
                answer = await self.call("POST", http_wire.AWAIT, asked, f"awaiting {inv_id}", until=until)
            except OutOfTime as late:
                raise outcomes.still(inv_id, "unknown", timeout, str(late)) from None
            if answer["state"] == "pending":
                raise outcomes.still(inv_id, str(answer.get("row_state")), timeout, vain.hint(answer))
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
        deadline = after(timeout)
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
                        deadline = after(timeout)
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

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None, what: str, *, until: float = NEVER
    ) -> dict[str, Any]:
        """One verb, sent again until it is answered or the plane's timeout is over. Raises OutOfTime."""
        send = functools.partial(self.once, method, path, body, what, 0.0, until=until)
        return await self.until_answered(send, what, until=until)

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

        answer = await self.until_answered(send, what)
        return answer, again

    async def submit_held(self, path: str, item: Mapping[str, Any], until: float) -> dict[str, Any]:
        """As `HttpClient.submit_held`."""
        deadline = min(time.monotonic() + self._client.timeout, until)
        waits = patience()
        while True:
            left = max(0.0, deadline - time.monotonic())
            body = {**item, "hold_s": left}
            send = functools.partial(self.once, "POST", path, body, "submitting", left, until=until + GRACE_S)
            try:
                return await self.until_answered(send, "submitting", until=until)
            except Refusal as full:
                if not http_wire.holds(full) or time.monotonic() >= deadline:
                    raise
                await sleep(next(waits))

    async def until_answered(self, send: Callable[[], Awaitable[T]], what: str, *, until: float = NEVER) -> T:
        """As `HttpClient.until_answered`."""
        began = time.monotonic()
        deadline = min(began + self._client.timeout, until)
        waits = patience()
        sent = False
        while True:
            try:
                answer = await send()
            except NetError as exc:
                sent = sent or exc.sent_anything
                left = deadline - time.monotonic()
                if left <= 0 and until > deadline:
                    raise DispatchError(f"{what} failed: {exc}") from exc
                self._client.outage.goes_on(what, exc, f"for up to {deadline - began:.3g} s")
                await sleep(max(0.0, min(left, next(waits))))
                if time.monotonic() >= until:
                    raise OutOfTime(exc, sent=sent) from exc
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
        until: float = NEVER,
    ) -> dict[str, Any]:
        """One request."""
        data = None if body is None else http_wire.pack(body)
        answer = await async_pool_for(self._client.target).request(
            method,
            path,
            headers=self._client.headers,
            body=data,
            timeout=allowed(wait_s + SLACK_S + self._client.timeout, until),
            retry_stale=retry_stale,
        )
        return http_wire.unpack(answer.status, answer.body, what)

    def answered(self) -> None:
        """The server is there."""
        self._client.outage.over()

    def tried_in_vain(self, exc: NetError) -> None:
        """A poll for results found nobody, and is made again."""
        self._client.outage.goes_on(WAITING, exc, "until the wait ends")

    def _loop(self) -> HttpLoop:
        key = loop_key()
        found = self._loops.get(key)
        if found is None:
            for other in list(self._loops):
                if is_over(other):
                    self._loops.pop(other, None)
            found = self._loops[key] = HttpLoop(self)
        return found
