"""One control plane, blocking: a request, a verb that is sent until it is answered, payloads that travel beside.

Every verb may be sent twice: ids, claims and nonces make it the same verb. What has none of them is sent again only
when nothing of it had left. Safe in threads and after a fork.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lakeshore.heap import keep_freed_memory
from lakeshore.net.blocking import BlockingPool
from lakeshore.net.errors import NetError, ProtocolViolation
from lakeshore.net.http1 import HeaderItems, Route
from lakeshore.net.response import Response
from lakeshore.net.target import parse_target
from lakeshore.wire.messages import OCTETS

from . import http_wire, outcomes
from .claimed import Claimed
from .errors import DispatchError
from .limits import GRACE_S, NEVER, OutOfTime, allowed
from .outage import Outage
from .session import Entry
from .transfer import HashedBody, joined
from .watcher import patience

T = TypeVar("T")

WAITING = "waiting for results"
SLACK_S = 10.0
"""How much longer than asked an answer to a long poll may take."""
_LONGEST_REFUSAL = 64 * 1024
_SIGNED = (("Content-Type", OCTETS), ("Accept", http_wire.CONTENT_TYPE))


class HttpClient:
    """`timeout` is how long, in seconds, a verb keeps trying to reach the server."""

    def __init__(self, base_url: str, *, token: str | None, namespace: str, timeout: float) -> None:
        self.url = base_url.rstrip("/")
        self.token = token
        self.namespace = namespace
        self.timeout = timeout
        self.target = parse_target(base_url)
        self.headers = http_wire.headers(token, namespace)
        self.pool = BlockingPool(self.target)
        self.outage = Outage()
        self._raw_headers = http_wire.raw_headers(token, namespace)
        self._stores = True
        """Whether the server may have the route for a payload in one exchange."""
        self.routes = {path: Route(self.target, path, self.headers) for path in http_wire.FIXED}

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None, what: str, *, until: float = NEVER
    ) -> dict[str, Any]:
        """One verb, sent again until it is answered or `timeout` is over. Raises Refusal, DispatchError, OutOfTime."""
        return self.until_answered(lambda: self.once(method, path, body, what, 0.0, until=until), what, until=until)

    def call_again(self, path: str, body: Mapping[str, Any], what: str) -> tuple[dict[str, Any], bool]:
        """`call` of a POST that says of itself, by `again: true`, that it is a copy; and whether the last one was."""
        again = False

        def send() -> dict[str, Any]:
            nonlocal again
            try:
                return self.once("POST", path, {**body, "again": True} if again else body, what, 0.0, retry_stale=False)
            except NetError as exc:
                again = again or exc.sent_anything
                raise

        answer = self.until_answered(send, what)
        return answer, again

    def call_once(self, path: str, body: Mapping[str, Any], what: str) -> dict[str, Any]:
        """A POST that nothing makes the same one: sent again only while nobody can have taken it."""
        return self.until_answered(
            lambda: self.once("POST", path, body, what, 0.0, retry_stale=False), what, lost_is_over=True
        )

    def submit_held(self, path: str, item: Mapping[str, Any], until: float = NEVER) -> dict[str, Any]:
        """A submit that its queue holds while it is full, for up to `timeout`. Raises what `call` raises."""
        deadline = min(time.monotonic() + self.timeout, until)
        waits = patience()
        while True:
            left = max(0.0, deadline - time.monotonic())
            body = {**item, "hold_s": left}
            send = functools.partial(self.once, "POST", path, body, "submitting", left, until=until + GRACE_S)
            try:
                return self.until_answered(send, "submitting", until=until)
            except http_wire.Refusal as full:
                if not http_wire.holds(full) or time.monotonic() >= deadline:
                    raise
                time.sleep(next(waits))

    def until_answered(
        self, send: Callable[[], T], what: str, *, lost_is_over: bool = False, until: float = NEVER
    ) -> T:
        """What `send` answers, tried for up to `timeout`, and not after `until`. Raises DispatchError, OutOfTime."""
        began = time.monotonic()
        deadline = min(began + self.timeout, until)
        waits = patience()
        sent = False
        while True:
            try:
                answer = send()
            except ProtocolViolation as exc:
                raise DispatchError(f"{what} failed: {exc}") from exc
            except NetError as exc:
                if lost_is_over and exc.sent_anything:
                    raise DispatchError(f"{what}: the answer was lost, and whether it was done is not known") from exc
                sent = sent or exc.sent_anything
                left = deadline - time.monotonic()
                if left <= 0 and until > deadline:
                    raise DispatchError(f"{what} failed: {exc}") from exc
                self.outage.goes_on(what, exc, f"for up to {deadline - began:.3g} s")
                time.sleep(max(0.0, min(left, next(waits))))
                if time.monotonic() >= until:
                    raise OutOfTime(exc, sent=sent) from exc
            else:
                self.outage.over()
                return answer

    def ask(self, body: dict[str, Any], wait_s: float, until: float = NEVER) -> Mapping[str, Any]:
        """One await request. Raises NetError for who will try again."""
        try:
            answer = self.once("POST", http_wire.AWAIT, body, WAITING, wait_s, until=until)
        except NetError as exc:
            self.outage.goes_on(WAITING, exc, "until the wait ends")
            raise
        self.outage.over()
        return answer

    def once(
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
        """One request; with `retry_stale` one more when its connection turns out dead. Raises Refusal and NetError."""
        data = None if body is None else http_wire.pack(body)
        timeout = allowed(wait_s + SLACK_S + self.timeout, until)
        route = self.routes.get(path)
        if route is not None and data is not None:
            return http_wire.unpack(*self.pool.ask(route, data, timeout=timeout, retry_stale=retry_stale), what)
        answer = self.pool.request(
            method, path, headers=self.headers, body=data, timeout=timeout, retry_stale=retry_stale
        )
        return http_wire.unpack(answer.status, answer.body, what)

    def payload(self, kind: str, data: bytes, inv_id: str, what: str, until: float = NEVER) -> dict[str, Any]:
        """`{args_blob: data}`, or `{args_ref: …}` once the bytes are in the blob store."""
        refused = outcomes.too_large(len(data), what)
        if refused is not None:
            raise refused
        if not http_wire.travels_beside(len(data)):
            return {f"{kind}_blob": data}
        keep_freed_memory()
        what = f"uploading {what}"
        stored = self._store(kind, data, inv_id, what, until) if self._stores else None
        return {f"{kind}_ref": stored or self._store_signed(kind, data, inv_id, what, until)}

    def _store(self, kind: str, data: bytes, inv_id: str, what: str, until: float) -> dict[str, Any] | None:
        """Have the server keep a payload, in one exchange: its reference. None from a server without that route."""
        path = http_wire.path("v1", "namespaces", self.namespace, "payloads", jobId=inv_id, kind=kind)
        body = HashedBody(data)
        answer = self._upload("POST", path, self._raw_headers, body, what, until)
        try:
            stored = http_wire.unpack(answer.status, answer.body, what)
        except http_wire.Refusal as refusal:
            if not http_wire.has_no_route(refusal):
                raise
            self._stores = False
            return None
        digest = body.sha256()
        if stored["sha256"] != digest:
            raise DispatchError(f"{what} failed: other bytes arrived than were sent; try again")
        return {"key": stored["key"], "size": len(data), "sha256": digest}

    def _store_signed(self, kind: str, data: bytes, inv_id: str, what: str, until: float) -> dict[str, Any]:
        """The same of a server that is asked for a place first."""
        digest = hashlib.sha256(data).hexdigest()
        asked = {"op": "put", "size": len(data), "jobId": inv_id, "kind": kind, "sha256": digest}
        path = http_wire.path("v1", "namespaces", self.namespace, "payloads", "presign")
        signed = self.call("POST", path, asked, what, until=until)
        answer = self._upload("PUT", str(signed["url"]), _SIGNED, data, what, until)
        if answer.status not in (200, 201, 204):
            http_wire.unpack(answer.status, answer.body, what)
        return {"key": signed["key"], "size": len(data), "sha256": digest}

    def post_new(self, path: str, body: Mapping[str, Any], what: str) -> dict[str, Any]:
        """A POST that makes what is not there yet, answered 200 or 201. Raises what `call` raises."""

        def send() -> Response:
            data, timeout = http_wire.pack(body), SLACK_S + self.timeout
            return self.pool.request("POST", path, headers=self.headers, body=data, timeout=timeout)

        answer = self.until_answered(send, what)
        return http_wire.unpack(200 if answer.status == 201 else answer.status, answer.body, what)

    def store_file(self, path: str, file: Path, what: str) -> dict[str, Any]:
        """POST a file's bytes; what is answered. Raises Refusal, DispatchError."""
        size = file.stat().st_size
        with file.open("rb") as body:

            def send() -> Response:
                body.seek(0)
                timeout = _transfer_s(self.timeout, size)
                return self.pool.request(
                    "POST", path, headers=self._raw_headers, body=body, content_length=size, timeout=timeout
                )

            answer = self.until_answered(send, what)
        return http_wire.unpack(answer.status, answer.body, what)

    def fetch_file(self, path: str, file: Path, most: int, what: str) -> str:
        """GET bytes into a new file; their sha256. Raises Refusal, DispatchError; also for more than `most` bytes."""

        def get() -> tuple[int, bytes, str]:
            digest, size = hashlib.sha256(), 0
            timeout = _transfer_s(self.timeout, most)
            with self.pool.stream("GET", path, headers=self.headers, timeout=timeout) as answer:
                if answer.status != 200:
                    return answer.status, joined(answer, _LONGEST_REFUSAL)[0], ""
                with file.open("wb") as into:
                    for piece in answer:
                        size += len(piece)
                        if size > most:
                            raise DispatchError(f"{what} failed: more than {most} bytes came")
                        digest.update(piece)
                        into.write(piece)
            return 200, b"", digest.hexdigest()

        status, data, sha256 = self.until_answered(get, what)
        if status != 200:
            http_wire.unpack(status, data, what)
        return sha256

    def _upload(
        self, method: str, path: str, headers: HeaderItems, body: bytes | HashedBody, what: str, until: float
    ) -> Response:
        def send() -> Response:
            if type(body) is HashedBody:
                body.seek(0)
            return self.pool.request(
                method,
                path,
                headers=headers,
                body=body,
                content_length=len(body),
                timeout=allowed(_transfer_s(self.timeout, len(body)), until),
            )

        return self.until_answered(send, what, until=until)

    def fetch(self, reference: Mapping[str, Any], what: str) -> bytes:
        """The bytes of a payload that travelled beside. Raises DispatchError when they are not what was stored."""
        url, size = str(reference["url"]), int(reference["size"])

        def get() -> tuple[int, bytes, str]:
            timeout = _transfer_s(self.timeout, size)
            with self.pool.stream("GET", url, headers=_SIGNED, timeout=timeout) as answer:
                return answer.status, *joined(answer, max(size, _LONGEST_REFUSAL))

        status, data, digest = self.until_answered(get, f"fetching {what}")
        if status != 200:
            http_wire.unpack(status, data, f"fetching {what}")
        if digest != reference["sha256"]:
            raise DispatchError(f"{what} arrived damaged; ask again, and look at the server's disk if it stays so")
        return data

    def claimed(self, work: Entry) -> Claimed:
        """A run command as the documented `Claimed`, its arguments fetched."""
        body = work.body
        reference = body.get("payload_ref")
        return Claimed(
            id=work.id,
            envelope=self.fetch(reference, "the arguments") if reference else body.get("args_blob") or b"",
            attempt=int(body.get("attempt") or 1),
            queue=str(body.get("queue") or ""),
            claim=work.claim,
            first_seq=int(body.get("first_seq") or 0),
            timeout_s=(body.get("run_config") or {}).get("timeout_s"),
        )


def _transfer_s(timeout: float, size: int) -> float:
    """How many seconds a payload's way may take."""
    return max(timeout, size / 1e6) + SLACK_S
