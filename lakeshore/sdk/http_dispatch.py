"""`HttpDispatch`: the same verbs on a control plane, over one small pool of connections.

Every verb may be sent twice: ids, claims and nonces make it the same verb. So an unreachable server is tried again
until `timeout` is over, and a submit that returned is on the server's disk. Submits of many threads leave together: the
first one sends, those that come meanwhile leave with the next request.
Reference: python-sdk/dispatch.md, api/function-protocol.md.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lakeshore import wire
from lakeshore.net.errors import ConnectionLost, NetError
from lakeshore.net.errors import Timeout as NetTimeout
from lakeshore.wire.messages import MAX_PAYLOAD_BYTES

from . import delays, forks, http_wire, limits, outcomes, vain
from .claimed import Claimed, check_kind
from .errors import DispatchError
from .guard import Guard
from .http_async import AsyncHttp
from .http_client import HttpClient
from .http_source import SessionSource
from .http_wire import Refusal
from .ids import check_id, new_id
from .limits import GRACE_S, NEVER, OutOfTime, after, left_of
from .session import Session
from .submitter import Submitter
from .warned import pass_on
from .watcher import Watcher, patience

if TYPE_CHECKING:
    from lakeshore.archives.stamp import Stamp

    from .code import CodeChannel

__all__ = ["HttpDispatch"]

STAMPS_S = 6 * 3600.0
"""So often the server is asked again for an archive that calls are stamped with: it keeps what is asked for."""
SLACK_S = 10.0
"""How much longer than asked an answer to a long poll may take."""


class HttpDispatch:
    """A control plane at `base_url` (`http://` or `https://`), with a few connections that threads share.

    `token` is the bearer, `namespace` where the token does not say it. `timeout` is how long, in seconds, a verb keeps
    trying to reach the server, and to repeat what may be repeated; then it raises DispatchError. Nothing is sent before
    the first verb.
    """

    local = False
    shows_names = True
    stamps_functions = True
    """`push_code` takes the function."""

    def __init__(
        self, base_url: str, *, token: str | None = None, namespace: str = "default", timeout: float = 30.0
    ) -> None:
        self.client = HttpClient(base_url, token=token, namespace=namespace, timeout=timeout)
        self.namespace = namespace
        self._current: _Open | None = None
        self._stamps: dict[tuple[str, str | None], Mapping[str, Any]] = {}
        self._stamps_until = 0.0

    def __repr__(self) -> str:
        return f"HttpDispatch({self.client.url!r}, namespace={self.namespace!r})"

    @property
    def aio(self) -> AsyncHttp:
        """The async verbs, for the loop that runs."""
        return self._state().aio

    @property
    def base_url(self) -> str:
        """The server's address."""
        return self.client.url

    @property
    def token(self) -> str | None:
        """The bearer that goes with every request."""
        return self.client.token

    # -- producers

    def submit(
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
        """As `Dispatch.submit`. Payloads over 256 KiB travel beside the call; over 100 MiB nothing is sent."""
        state = self._state()
        item = http_wire.submit_item(
            queue,
            self.client.payload("args", envelope, id, "the call's arguments"),
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
        return state.submit(item)

    def submit_and_wait(self, queue: str, envelope: bytes, *, id: str, timeout: float | None, **options: Any) -> bytes:
        """`submit` and `result` in one request, while no other thread does the same: with company both are shared.

        `timeout` is for both of them, a delay not for the submit. Raises Timeout when no server was reached, too.
        """
        began, deadline = time.monotonic(), after(timeout)
        until = limits.of_submit(deadline, delays.left(options))
        try:
            sent, ended = self._sent(queue, envelope, id, deadline, until, options)
        except OutOfTime as late:
            raise outcomes.not_submitted(id, until - began, late) from None
        return self._result(sent, deadline, timeout) if ended is None else self._result_of(ended)

    def _sent(
        self, queue: str, envelope: bytes, id_: str, deadline: float, until: float, options: Mapping[str, Any]
    ) -> tuple[str, Mapping[str, Any] | None]:
        """The id of a call that the server has, and what it ended in if it did so by `deadline`. It is submitted by
        `until`, or not at all. Raises OutOfTime.
        """
        state = self._state()
        args = self.client.payload("args", envelope, id_, "the call's arguments", until)
        item = http_wire.submit_item(queue, args, id=id_, **options)
        left = left_of(deadline)
        wait_s = vain.SAID_AFTER_S if left is None else min(left, vain.SAID_AFTER_S)
        alone = "retry_failed" not in item and not http_wire.waits(item)
        perhaps = False
        if wait_s > 0 and alone and state.alone.acquire(blocking=False):
            try:
                body = {**item, "wait_s": wait_s, "hold_s": 0.0, "why": True}
                answer = self.client.once(
                    "POST", http_wire.SUBMIT, body, "submitting", wait_s, until=deadline + GRACE_S
                )
            except (NetError, http_wire.Refusal) as exc:
                if isinstance(exc, http_wire.Refusal) and not http_wire.holds(exc):
                    raise
                if isinstance(exc, NetError):
                    perhaps = exc.sent_anything
                    if time.monotonic() >= until:
                        raise OutOfTime(exc, sent=perhaps) from exc
            else:
                sent = str(answer["invocation_id"])
                pass_on(answer)
                vain.tell(answer)
                ended = answer.get("ended")
                return sent, None if ended is None else http_wire.value_or_raise(sent, ended)
            finally:
                state.alone.release()
        try:
            return state.submit(item, until), None  # patient with a server that is away; the same id is the same call
        except OutOfTime as late:
            late.sent = late.sent or perhaps
            raise

    def cancel(self, inv_id: str) -> bool:
        """As `Dispatch.cancel`."""
        check_id(inv_id)
        path = http_wire.path("v1", "producer", "invocations", inv_id, "cancel")
        return http_wire.was_cancelled(*self.client.call_again(path, {}, f"cancelling {inv_id}"))

    def retry(self, inv_id: str, *, claim: int | None = None) -> str:
        """As `Dispatch.retry`."""
        check_id(inv_id)
        path = http_wire.path("v1", "namespaces", self.namespace, "invocations", inv_id, "retry")
        body = {"nonce": new_id()} if claim is None else {"nonce": new_id(), "claim": claim}
        self.client.call("POST", path, body, f"retrying {inv_id}")
        self._state().watcher.submitted(inv_id, again=True)
        return inv_id

    def get(self, inv_id: str) -> dict[str, Any] | None:
        """The invocation's row, or None."""
        check_id(inv_id)
        body = {"invocation_id": inv_id, "timeout_s": 0, "get": True}
        answer = self.client.call("POST", http_wire.AWAIT, body, f"asking for {inv_id}")
        row: dict[str, Any] | None = answer.get("invocation")
        return row

    def count(self, queue: str, state: str = "queued") -> int:
        """As `Dispatch.count`."""
        wanted = "killed" if state == "cancelled" else state
        path = http_wire.path("v1", "producer", "queues", queue, "count", state=wanted)
        return int(self.client.call("GET", path, None, f"counting {queue}")["count"])

    def result(self, inv_id: str, *, timeout: float | None = 30.0, poll: float = 0.02) -> bytes:
        """As `Dispatch.result`: all waiting threads of a process share one long poll."""
        check_id(inv_id)
        return self._result(inv_id, after(timeout), timeout)

    def _result(self, inv_id: str, deadline: float, timeout: float | None) -> bytes:
        """Wait for what is left of `timeout`."""
        watcher = self._state().watcher
        answer = watcher.wait(inv_id, left_of(deadline))
        if answer is None:
            if watcher.trouble is not None:
                raise outcomes.still(inv_id, "unknown", timeout, watcher.trouble)
            asked = {"invocation_id": inv_id, "timeout_s": 0, "why": True}
            until = deadline + limits.LAST_LOOK_S
            try:
                now = self.client.call("POST", http_wire.AWAIT, asked, f"awaiting {inv_id}", until=until)
            except OutOfTime as late:
                raise outcomes.still(inv_id, "unknown", timeout, str(late)) from None
            if now["state"] == "pending":
                raise outcomes.still(inv_id, str(now.get("row_state")), timeout, vain.hint(now))
            answer = now
        return self._result_of(http_wire.value_or_raise(inv_id, answer))

    def modes(self) -> list[Mapping[str, Any]]:
        """The modes that the server keeps for this namespace, as its rows; none of a server that keeps no modes."""
        path = http_wire.path("v1", "namespaces", self.namespace, "modes")
        try:
            found: list[Mapping[str, Any]] = self.client.call("GET", path, None, "reading the modes").get("modes", [])
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            return []
        return found

    def push_code(self, function: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """The stamp of the commit that a function by reference is in (its `Envelope.fn`), whose archive is sent first
        where the server has none; None where there is no such commit. Without a function: that of the working
        directory's tree.

        Raises nothing for a function, for its call is submitted all the same; else what `code.push_if_needed` raises.
        """
        if function is None:
            from .code import push_if_needed  # at its wall: a call without archives asks nothing of git

            return push_if_needed(self)
        key = function["module"], function["src_hash"]
        if time.monotonic() > self._stamps_until:
            self._stamps, self._stamps_until = {}, time.monotonic() + STAMPS_S
        stamp = self._stamps.get(key)
        if stamp is None:
            try:
                stamp = self._stamps[key] = self._state().code().stamp_of(key[0]) or {}
            except OutOfTime:
                return None
        return stamp or None

    def fetch_code(self, stamp: Stamp, into: Path) -> str:
        """Write the archive of a call's commit into a new file; its sha256. Raises DispatchError."""
        if stamp.storage is not None:
            from . import code_storage  # at its wall: as above

            return code_storage.fetch(self.client, stamp.storage, stamp.key, into, stamp.size or MAX_PAYLOAD_BYTES)
        path = f"/v1/namespaces/{self.namespace}/code-archives/{quote(stamp.key)}"
        return self.client.fetch_file(path, into, stamp.size or MAX_PAYLOAD_BYTES, "fetching an archive of code")

    # -- workers

    def claim(self, queue: str, worker_id: str, *, kind: str = "fifo", temperature: float = 1.0) -> Claimed | None:
        """As `Dispatch.claim`. The process's guardian renews the claim until it is settled."""
        check_kind(kind)
        session = self._state().session(worker_id)
        with session.lock:
            session.aim(queue, kind, temperature)
            self.exchange(session, capacity=1, timeout_s=0.0)
            work = session.take()
            if work is None:
                return None
            session.begin(work.id, work.claim)
            self._state().guard.hold(session)
        return self.client.claimed(work)

    def ack(
        self,
        inv_id: str,
        worker_id: str,
        *,
        result: bytes | None = None,
        claim: int | None = None,
        last_seq: int | None = None,
    ) -> None:
        """As `Dispatch.ack`."""
        number = self._held_claim(inv_id, worker_id, claim)
        body = {"state": "succeeded", **self.client.payload("result", result or b"", inv_id, "the result")}
        if last_seq is not None:
            body["last_seq"] = last_seq
        self._settle(inv_id, worker_id, number, body)

    def nack(
        self,
        inv_id: str,
        worker_id: str,
        *,
        error: object,
        retry: bool = True,
        claim: int | None = None,
        retries: int | None = None,
        outcome: str = "failed",
    ) -> None:
        """As `Dispatch.nack`."""
        number = self._held_claim(inv_id, worker_id, claim)
        body: dict[str, Any] = {"state": outcome, "error": outcomes.as_error(error), "retry": retry}
        if retries is not None:
            body["retries"] = retries
        self._settle(inv_id, worker_id, number, body)

    def source(
        self, queue: str, worker: str, *, kind: str, temperature: float, retries: int, poll_s: float, once: bool
    ) -> SessionSource:
        """A worker loop's end of this plane: sessions, prefetch, batched endings."""
        del poll_s  # a long poll waits at the server
        session = Session(worker)
        session.aim(queue, kind, temperature)
        return SessionSource(self.client, session, self._state().guard, retries=retries, once=once)

    def exchange(
        self, session: Session, *, capacity: int, timeout_s: float, patience_s: float | None = None
    ) -> dict[str, Any]:
        """One poll of a session, sent again (under a new number) until it is answered. Raises DispatchError."""
        deadline = time.monotonic() + (self.client.timeout if patience_s is None else patience_s)
        waits = patience()
        while True:
            body = session.request(capacity=capacity, timeout_s=timeout_s)
            try:
                answer = self.client.once("POST", http_wire.POLL, body, f"polling {session.queue}", timeout_s)
            except Refusal as exc:
                if exc.status != 409 or exc.body.get("error") != "superseded":
                    raise
                continue
            except NetError as exc:
                if time.monotonic() > deadline:
                    raise DispatchError(f"polling {session.queue} failed: {exc}") from exc
                time.sleep(next(waits))
                continue
            if session.read(answer):
                return answer

    # -- frames

    def journal_append(
        self, inv_id: str, seq: int | None, frame_bytes: bytes, *, final: bool = False, claim: int | None = None
    ) -> int:
        """As `Dispatch.journal_append`. Without a `seq` an answer that is lost raises: it cannot be asked for again."""
        number = claim if claim is not None else self._any_claim(inv_id)
        body = {"invocation_id": inv_id, "seq": seq, "bytes": frame_bytes, "final": final, "claim": number}
        what = f"posting to {inv_id}"
        if seq is None:
            return int(self.client.call_once(http_wire.CHUNK, body, what)["seq"])
        return int(self.client.call("POST", http_wire.CHUNK, body, what)["seq"])

    def journal_read(
        self, inv_id: str, *, since: int = -1, timeout: float | None = 30.0, poll: float = 0.02
    ) -> Iterator[tuple[int, bytes]]:
        """As `Dispatch.journal_read`; a lost connection is resumed after the last frame seen."""
        return self._read_frames(inv_id, http_wire.Pieces(since), timeout)

    def journal_values(
        self, inv_id: str, reader: wire.ValueReader, *, timeout: float | None = 30.0
    ) -> Generator[Any, None, None]:
        """What the reader makes of the frames after its `seq`, live, as `journal_read` brings them."""
        return self._read_frames(inv_id, reader, timeout)

    def _read_frames(self, inv_id: str, reader: Any, timeout: float | None) -> Generator[Any, None, None]:
        check_id(inv_id)

        def path(since: int) -> str:
            return http_wire.path("v1", "producer", "invocations", inv_id, "result", "stream", since=since)

        return self._read_stream(path, f"invocation {inv_id}", reader, timeout)

    def journal_trim(self, inv_id: str, *, keep_last: int = 0) -> int:
        """As `Dispatch.journal_trim`."""
        check_id(inv_id)
        path = http_wire.path("v1", "producer", "invocations", inv_id, "trim")
        return int(self.client.call("POST", path, {"keep_last": keep_last}, f"trimming {inv_id}")["trimmed"])

    def topic_post(self, queue: str, name: str, body: bytes, *, final: bool = False) -> int:
        """As `Dispatch.topic_post`."""
        path = http_wire.path("v1", "producer", "queues", queue, "topics", name)
        post = {"bytes": body, "final": final, "nonce": random.randrange(1, 2**32)}  # noqa: S311  # guards nothing
        return int(self.client.call_again(path, post, f"posting to topic {name}")[0]["seq"])

    def topic_read(
        self, queue: str, name: str, *, since: int = -1, timeout: float | None = 5.0
    ) -> Iterator[tuple[int, bytes]]:
        """As `Dispatch.topic_read`."""
        return self._read_stream(
            lambda since: http_wire.path(
                "v1", "producer", "queues", queue, "topics", name, "stream", since=since, timeout_s=timeout
            ),
            f"topic {name!r}",
            http_wire.Pieces(since),
            timeout,
            ends=False,
        )

    def close(self) -> None:
        """Let go: claims that are still held are given back, connections are closed."""
        with forks.gate:
            state, self._current = self._current, None
        if state is not None and state.pid == os.getpid():
            state.guard.close()
        self.client.pool.close()

    # -- inside

    def _result_of(self, answer: Mapping[str, Any]) -> bytes:
        reference = answer.get("result_ref")
        return self.client.fetch(reference, "the result") if reference else answer.get("result_blob") or b""

    def _settle(self, inv_id: str, worker_id: str, claim: int, body: dict[str, Any]) -> None:
        request = {"invocation_id": inv_id, "claim": claim, "worker_id": worker_id, **body}
        try:
            answer = self.client.call("POST", http_wire.ACK, request, f"settling {inv_id}")
        except Refusal as exc:
            if exc.body.get("error") == "gap":
                raise DispatchError(
                    f"invocation {inv_id} cannot be settled before frame {exc.body.get('expected')} is stored"
                ) from exc
            raise
        state = self._state()
        session = state.session(worker_id)
        with session.lock:
            session.settled(inv_id, claim)
            state.guard.hold(session)
        if answer.get("result") == "stale":
            raise DispatchError(
                f"worker {worker_id!r} does not hold invocation {inv_id} any more (it is {answer.get('state')})"
            )

    def _held_claim(self, inv_id: str, worker_id: str, claim: int | None) -> int:
        if claim is not None:
            return claim
        found = self._state().session(worker_id).claim_of(inv_id)
        if found is None:
            raise DispatchError(f"worker {worker_id!r} does not hold invocation {inv_id} here")
        return found

    def _any_claim(self, inv_id: str) -> int:
        found = [c for s in self._state().sessions() if (c := s.claim_of(inv_id)) is not None]
        if len(found) != 1:
            raise DispatchError(f"invocation {inv_id} is not held here; claim it first")
        return found[0]

    def _read_stream(
        self, path: Callable[[int], str], what: str, reader: Any, timeout: float | None, *, ends: bool = True
    ) -> Generator[Any, None, None]:
        deadline = after(timeout)
        waits = patience()
        while True:
            left = None if timeout is None else max(0.05, deadline - time.monotonic())
            try:
                stream = self.client.pool.stream("GET", path(reader.seq), headers=self.client.headers, timeout=left)
                with stream:
                    if stream.status != 200:
                        http_wire.unpack(stream.status, stream.read(), f"reading {what}")
                    for data in stream:
                        yield from reader.feed(data)
                        deadline = after(timeout)
                        if reader.ended:
                            return
                if ends:
                    return
            except NetTimeout:
                raise outcomes.silent(what, timeout) from None
            except Refusal as exc:
                if exc.status == 404:
                    raise outcomes.not_there(what.removeprefix("invocation "), str(exc.body.get("state"))) from None
                raise
            except ConnectionLost:
                pass  # resumed below, after the last frame seen
            except NetError as exc:
                if time.monotonic() >= deadline:
                    raise DispatchError(f"reading {what} failed: {exc}") from exc
            reader.resume()
            if time.monotonic() >= deadline:
                raise outcomes.silent(what, timeout)
            time.sleep(next(waits))

    def _state(self) -> _Open:
        state = self._current
        if state is not None and state.pid == os.getpid():
            return state
        with forks.gate:
            if self._current is None or self._current.pid != os.getpid():
                self._current = _Open(self.client)
            return self._current


class _Open:
    """What one process has open."""

    def __init__(self, client: HttpClient) -> None:
        self.pid = os.getpid()
        self._client = client
        self.watcher = Watcher(client.ask)
        self.submitter = self._submitter(http_wire.SUBMIT)
        self.later = self._submitter(http_wire.DELAYED)
        self.alone = threading.Lock()
        """Held by the one thread whose submit waits for its result."""
        self.guard = Guard(client.url, client.token, client.namespace)
        self.aio = AsyncHttp(client)
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._code: CodeChannel | None = None

    def code(self) -> CodeChannel:
        """Where the stamps of calls come from."""
        with self._lock:
            if self._code is None:
                from .code import CodeChannel  # at its wall: as above

                self._code = CodeChannel(self._client)
            return self._code

    def _submitter(self, path: str) -> Submitter:
        client = self._client

        def send(body: dict[str, Any], until: float) -> Mapping[str, Any]:
            return client.once("POST", path, body, "submitting", 0.0, until=until)

        return Submitter(send, client.until_answered, self.watcher)

    def submit(self, item: dict[str, Any], until: float = NEVER) -> str:
        """The id of a submit that is on the server's disk. Raises OutOfTime."""
        waits = http_wire.waits(item)
        try:
            answer = (self.later if waits else self.submitter).submit(item, until)
        except DispatchError as exc:
            if http_wire.holds(exc):
                path = http_wire.DELAYED if waits else http_wire.SUBMIT
                answer = self._client.submit_held(path, {**item, "watch": self.watcher.book.session}, until)
            elif waits:
                raise http_wire.too_old(exc) from exc
            else:
                raise
        sent = str(answer["invocation_id"])
        self.watcher.submitted(sent, again="retry_failed" in item)
        pass_on(answer)
        return sent

    def session(self, worker_id: str) -> Session:
        """The session of a hand-written worker."""
        with self._lock:
            found = self._sessions.get(worker_id)
            if found is None:
                found = self._sessions[worker_id] = Session(worker_id)
            return found

    def sessions(self) -> list[Session]:
        with self._lock:
            return list(self._sessions.values())
