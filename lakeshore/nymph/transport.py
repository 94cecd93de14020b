"""Everything that a daemon says to its server, signed or with a bearer.

Rules: a body is msgpack, a chunk is raw bytes. Each attempt is signed anew, with a nonce of its own, so no attempt is
ever repeated byte for byte. Polls have connections of their own: nothing waits behind a chunk. A clock that is off is
learned from the refusal, and the request is sent once more. A redirect is not followed, and the bearer goes to no other
server.
Reference: nymph/protocol, "Transport"; nymph/key-rotation; N-098, N-247…N-252, N-264.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgpack
import trio

from ..net.bearer import bearer
from ..net.errors import ConnectionLost, NetError
from ..net.http1 import MAX_BODY
from ..net.interface import AsyncStream
from ..net.response import Response
from ..net.target import Target, parse_target
from ..net.trio_ import AsyncPool
from ..wire.messages import JSON, MSGPACK, OCTETS
from ..wire.signing import SigningError
from .identity import Identity, Recovery
from .told import number

Map = Mapping[str, Any]

PATIENCE_S: Final = 120.0
"""For a whole request, unless it says otherwise."""
AT_ONCE_S: Final = 1.0
"""A connection that is lost so soon had been closed before the request: it is sent once more."""
HELLO: Final = "/v1/daemon/hello"
REVOKED: Final = "token revoked"
_POLLS: Final = 4
_OTHERS: Final = 24


class TransportError(Exception):
    """`status` is None without an answer; `body` is what was answered. `revoked`: nothing helps but another key or
    token.
    """

    def __init__(self, status: int | None, reason: str, body: Map | None = None, *, revoked: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.body, self.revoked = status, reason, body or {}, revoked


class Transport:
    """One daemon's line to its server. `target` says where and by which proxy, `aim` the same of any other server's
    base URL; `identity` None: unsigned.
    """

    def __init__(
        self,
        target: Target,
        *,
        aim: Callable[[str], Target] = parse_target,
        token: str | None,
        identity: Identity | None = None,
        machine_id: str = "",
        namespace: str = "default",
    ) -> None:
        self.target = target
        self._aim = aim
        self.namespace = namespace
        """In which payloads are; hello may tell another one."""
        self._asks_for = namespace
        self._token, self._identity, self._machine_id = token, identity, machine_id
        self._pools = {
            "poll": AsyncPool(target, max_connections=_POLLS),
            "": AsyncPool(target, max_connections=_OTHERS),
        }
        self._elsewhere: dict[Target, AsyncPool] = {}

    async def post(self, path: str, body: Map, *, timeout_s: float = PATIENCE_S, lane: str = "") -> Map:
        """Send a map; the map that was answered. TransportError for everything else."""
        return _map_of(await self._send("POST", path, _packed(body), MSGPACK, timeout_s=timeout_s, lane=lane))

    async def post_bytes(
        self, path: str, data: bytes, *, query: Map | None = None, timeout_s: float = PATIENCE_S
    ) -> Map:
        """Send raw bytes. A path may carry its query already."""
        if query:
            path += ("&" if "?" in path else "?") + urlencode(query, quote_via=quote)
        return _map_of(await self._send("POST", path, data, OCTETS, timeout_s=timeout_s))

    async def put_bytes(self, url: str, data: bytes, *, timeout_s: float = PATIENCE_S) -> None:
        """Store bytes at a signed URL, ours or another server's."""
        await self._raw("PUT", url, data, timeout_s)

    async def get(self, url: str, *, timeout_s: float = PATIENCE_S, max_body: int = MAX_BODY) -> bytes:
        """The bytes at a URL, or at a path of our server."""
        return (await self._raw("GET", url, b"", timeout_s, max_body=max_body)).body

    @asynccontextmanager
    async def streamed(self, url: str, *, timeout_s: float = PATIENCE_S) -> AsyncIterator[AsyncStream]:
        """An answer that is read as it comes; `timeout_s` is for each wait. TransportError unless it is a 200."""
        pool, path, ours = self._place(url)
        try:
            headers = self._headers("GET", path, b"", None) if ours else []
            async with await pool.stream("GET", path, headers=headers, timeout=timeout_s) as answer:
                if answer.status != 200:
                    raise _refusal(
                        Response(status=answer.status, headers=answer.headers, body=await answer.read()), url
                    )
                yield answer
        except NetError as error:
            raise TransportError(None, str(error)) from error

    async def hello(self, body: Map, *, timeout_s: float = PATIENCE_S) -> Map:
        """The first contact, as whom this daemon is by then. What is answered has `reject` when nothing helps."""
        retried = False
        while True:
            answer = await self._hello(body, timeout_s)
            identity, said = self._identity, answer.get("reject")
            server_time = number(answer.get("server_time_epoch_s"))
            if identity is None:
                return answer
            if said is None:
                identity.admitted(
                    worker_id=str(answer.get("worker_id") or self._machine_id),
                    key_id=answer.get("key_id"),
                    server_time=server_time,
                    now=time.time(),
                )
                return answer
            code = str(said.get("code")) if isinstance(said, Mapping) else str(said)
            what = identity.hello_refused(code, server_time=server_time, now=time.time(), retried=retried)
            if retried or what not in (Recovery.RETRY, Recovery.HELLO):
                return answer
            retried = True

    async def _hello(self, body: Map, timeout_s: float) -> Map:
        identity = self._identity
        if identity is not None:
            body = {**body, "public_key": identity.public_key}
        return _map_of(await self._send("POST", HELLO, _packed(body), MSGPACK, timeout_s=timeout_s))

    # ---- one request

    async def _send(
        self, method: str, path: str, data: bytes, kind: str, *, timeout_s: float, lane: str = ""
    ) -> Response:
        retried = resent = False
        while True:
            began = trio.current_time()
            try:
                answer = await self._pools[lane].request(
                    method,
                    path,
                    headers=self._headers(method, path, data, kind),
                    body=data,
                    timeout=timeout_s,
                    retry_stale=False,
                )
            except ConnectionLost as error:
                if resent or error.received_anything or trio.current_time() - began > AT_ONCE_S:
                    raise TransportError(None, str(error)) from error
                resent = True
                continue
            except (NetError, SigningError, ValueError) as error:
                raise TransportError(None, str(error)) from error
            if 200 <= answer.status < 300:
                return answer
            refused = _refusal(answer, path)
            if self._identity is not None and path != HELLO:
                what = self._identity.refused(
                    answer.status,
                    refused.body.get("error"),
                    server_time=number(refused.body.get("server_time_epoch_s")),
                    now=time.time(),
                    retried=retried,
                )
                if what is Recovery.RETRY and not retried:
                    retried = True
                    continue
                refused.revoked = refused.revoked or what in (Recovery.HELLO, Recovery.DRAIN)
            raise refused

    def _headers(self, method: str, path: str, data: bytes, kind: str | None) -> list[tuple[str, str]]:
        headers = [("accept", MSGPACK)]
        if kind is not None:
            headers.append(("content-type", kind))
        identity, token = self._identity, self._token
        hello = path == HELLO
        if identity is not None and hello:
            token = identity.hello_bearer(token)
        if token:
            headers.append(("authorization", bearer(token)))
        if self._asks_for != "default":
            headers.append(("x-ls-namespace", self._asks_for))
        if identity is not None and (hello or identity.worker_id is not None):
            headers += identity.sign(
                method=method,
                path=path,
                body=data,
                now=time.time(),
                machine_id=self._machine_id if hello else None,
            )
        return headers

    async def _raw(self, method: str, url: str, data: bytes, timeout_s: float, *, max_body: int = MAX_BODY) -> Response:
        pool, path, ours = self._place(url)
        headers = self._headers(method, path, data, None) if ours else []
        if method == "PUT":
            headers.append(("content-type", OCTETS))
        try:
            answer = await pool.request(
                method, path, headers=headers, body=data or None, timeout=timeout_s, max_body=max_body
            )
        except (NetError, ValueError) as error:
            raise TransportError(None, str(error)) from error
        if not 200 <= answer.status < 300:
            raise _refusal(answer, url)
        return answer

    def _place(self, url: str) -> tuple[AsyncPool, str, bool]:
        """Which pool asks for a URL, by which path, and whether that is our own server."""
        if url.startswith("/"):
            return self._pools[""], url, True
        parts = urlsplit(url)
        try:
            target = self._aim(f"{parts.scheme}://{parts.netloc}")
        except ValueError as error:
            raise TransportError(None, str(error)) from None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if target.origin == self.target.origin:
            prefix = self.target.prefix
            return self._pools[""], path.removeprefix(prefix) if prefix else path, True
        pool = self._elsewhere.get(target)
        if pool is None:
            pool = self._elsewhere[target] = AsyncPool(target)
        return pool, path, False

    def close(self) -> None:
        """Close what is idle."""
        for pool in (*self._pools.values(), *self._elsewhere.values()):
            pool.close()


def _packed(body: Map) -> bytes:
    """What a job or the host says may be no Unicode text (a lone surrogate): a `?` stands for it."""
    try:
        packed: bytes = msgpack.packb(body, unicode_errors="replace")
    except (ValueError, TypeError, OverflowError) as error:
        raise TransportError(None, f"this cannot be sent: {error}") from error
    return packed


def _map_of(answer: Response) -> Map:
    try:
        told = _decoded(answer)
    except (ValueError, msgpack.UnpackException) as error:
        raise TransportError(answer.status, f"the server's answer cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise TransportError(answer.status, "the server's answer is not a map: is this a Lakeshore server's address?")
    return told


def _decoded(answer: Response) -> Any:
    if not answer.body:
        return {}
    if (answer.headers.get("content-type") or "").startswith(JSON):
        import json  # wall: our own server answers in msgpack

        return json.loads(answer.body)
    return msgpack.unpackb(answer.body, strict_map_key=False)


def _refusal(answer: Response, path: str) -> TransportError:
    try:
        told = _decoded(answer)
    except (ValueError, msgpack.UnpackException):
        told = None
    body = told if isinstance(told, dict) else {}
    said = str(body.get("error") or f"{path} was answered {answer.status}")
    hint = f" ({body['hint']})" if isinstance(body.get("hint"), str) else ""
    revoked = (answer.status, said) == (403, REVOKED)
    return TransportError(answer.status, f"{said}{hint}", body, revoked=revoked)
