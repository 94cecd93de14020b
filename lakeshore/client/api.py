"""One control plane, seen from one namespace, over JSON.

What there is of daemons, their commands and releases is beside this file, one resource a module.

Rules: the token goes to `url` and nowhere else (redirects are not followed); no message holds it. A GET that met a
dead connection is sent again by `net`. A retry and a kill whose answer was lost are asked for again, for `INSIST_S`, in
a way that does them once; nothing else is repeated, for it is not known what was done.
Reference: get-started/jobs.md, "HTTP"; api/auth-and-secrets.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from lakeshore.net.backoff import chance, full_jitter
from lakeshore.net.bearer import bearer
from lakeshore.net.blocking import BlockingConnection
from lakeshore.net.body import Body
from lakeshore.net.errors import NetError, ProtocolViolation
from lakeshore.net.target import parse_target

from .answers import not_ours, page_after, rows_in
from .errors import ApiError, NotLakeshore

INSIST_S = 20.0
"""How long a verb whose answer was lost is sent again: a server that restarts is back by then."""
_WAITS = "wait_s"
Query = Iterable[tuple[str, str | int | None]]


class ApiClient:
    """A blocking client on one connection, for one thread at a time. ValueError for a malformed `url`."""

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        token: str | None = None,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
    ) -> None:
        self._connection = BlockingConnection(parse_target(url), connect_timeout=connect_timeout)
        self._timeout = timeout
        self._headers = headers_of(namespace, token)
        self.around: Callable[[], AbstractContextManager[object]] = nullcontext
        """What a request is made in, unless it waits for news by itself: a caller's way to tell that it takes long."""
        self.namespace = namespace
        self.has_token = bool(token)
        self.answered: str | None = None
        """Which address gave the last answer that was taken for one of ours."""

    @property
    def url(self) -> str:
        """The server's base URL."""
        return self._connection.target.url

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- invocations

    def invocations(
        self,
        *,
        states: Iterable[str] = (),
        worker: str | None = None,
        queue: str | None = None,
        limit: int = 50,
        offset: int = 0,
        before: int | None = None,
    ) -> dict[str, Any]:
        """`{invocations: [row…], limit, offset, count, next?}`, newest submitted first; `states` are alternatives.

        `next` is there when the page is full: `before=next` has those that follow, however deep.
        """
        query: list[tuple[str, str | int | None]] = [("state", state) for state in states]
        query += [("worker", worker), ("queue", queue), ("limit", limit), ("offset", offset), ("before", before)]
        return self.map("GET", self.ours("invocations"), query)

    def every_invocation(
        self,
        *,
        states: Iterable[str] = (),
        worker: str | None = None,
        queue: str | None = None,
        offset: int = 0,
        page: int = 200,
    ) -> Iterator[dict[str, Any]]:
        """The same rows, all of them; `page` (200 at most) are asked for at a time, the next when they are used up."""
        query: list[tuple[str, str | int | None]] = [("state", state) for state in states]
        query += [("worker", worker), ("queue", queue)]
        return self.pages(self.ours("invocations"), "invocations", query, page=page, offset=offset, cursor="before")

    def invocations_beginning(self, beginning: str, *, limit: int) -> list[dict[str, Any]]:
        """The rows whose id begins so, newest submitted first."""
        query: list[tuple[str, str | int | None]] = [("idPrefix", beginning), ("limit", limit)]
        return self.rows(self.ours("invocations"), "invocations", query)

    def invocation(self, invocation_id: str) -> dict[str, Any]:
        """One row. ApiError 404 when the namespace has none of that id."""
        return self._row("GET", self.ours("invocations", invocation_id))

    def counts(self) -> dict[str, Any]:
        """How many there are of each state; `delayed` is a part of `queued`."""
        return self.map("GET", self.ours("invocations", "counts"))

    def kill(self, invocation_id: str) -> dict[str, Any]:
        """Mark a queued invocation killed; its row. ApiError 409 when it runs or has ended."""
        path = self.ours("invocations", invocation_id)
        lost: list[NetError] = []
        try:
            return self.insist(lambda: self._row("DELETE", path), lost)
        except ApiError as error:
            if not (lost and error.status == 409 and error.body.get("state") == "killed"):
                raise
            return self.invocation(invocation_id)  # by the request whose answer was lost

    def retry(self, invocation_id: str, *, claim: int | None = None) -> dict[str, Any]:
        """Queue a failed, killed or timed-out invocation again. With `claim`, only if the row still has that number."""
        body: dict[str, Any] = {"nonce": os.urandom(16).hex()}
        if claim is not None:
            body["claim"] = claim
        path = self.ours("invocations", invocation_id, "retry")
        return self.insist(lambda: self._row("POST", path, body=body), [])

    def bulk_cancel(self, *, queue: str | None = None) -> dict[str, Any]:
        """Mark every queued invocation killed: `{cancelled: n}`."""
        return self.map("POST", self.ours("invocations", "bulk-cancel"), [("queue", queue)])

    def prune(
        self,
        *,
        older_than_hours: float,
        states: Iterable[str] = (),
        queue: str | None = None,
        dry_run: bool = False,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Forget ended invocations for a few seconds: `{count, dryRun, next}`; `next` is the cursor to go on with."""
        body: dict[str, Any] = {"olderThanHours": older_than_hours, "dryRun": dry_run, "states": list(states)}
        body |= {name: value for name, value in (("queue", queue), ("cursor", cursor)) if value is not None}
        path = self.ours("invocations", "prune")
        answer = self.map("POST", path, body=body)
        page_after(answer, cursor, f"{self.url}{path}")
        return answer

    def logs(
        self,
        invocation_id: str,
        *,
        attempt: int | None = None,
        claim: int | None = None,
        offset: int = 0,
        stream: str | None = None,
        wait_s: float = 0.0,
    ) -> dict[str, Any]:
        """What a body printed, from the position `offset` on: `{attempt, claim, attempts, state, end, offset, parts}`;
        bytes are base64. Waits up to `wait_s` (30 at most) until there is something.
        """
        query: list[tuple[str, str | int | None]] = [("attempt", attempt), ("claim", claim), ("offset", offset)]
        query += [("stream", stream), ("wait_s", f"{wait_s:g}")]
        return self.map("GET", self.ours("invocations", invocation_id, "logs"), query)

    # -- schedules

    def schedules(self) -> list[dict[str, Any]]:
        """A namespace's schedules, by name."""
        return self.rows(self.ours("schedules"), "schedules")

    def add_schedule(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """`{name, queue, every | cron, tz?, catchUp?, overlap?, envelope}`; asked for again it is the same one.

        ApiError 409 when the name is another one's.
        """
        return self.insist(lambda: self.map("POST", self.ours("schedules"), body=asked), [])

    def pause_schedule(self, name: str, *, paused: bool) -> dict[str, Any]:
        """Pause a schedule, or let it go on. ApiError 404."""
        return self.insist(lambda: self.map("PATCH", self.ours("schedules", name), body={"paused": paused}), [])

    def remove_schedule(self, name: str) -> None:
        """Forget a schedule. ApiError 404, unless it was there before an answer was lost."""
        lost: list[NetError] = []
        try:
            self.insist(lambda: self.map("DELETE", self.ours("schedules", name)), lost)
        except ApiError as error:
            if not (lost and error.status == 404):
                raise

    # -- the server itself

    def whoami(self) -> dict[str, Any]:
        """`{namespace, tokenPrefix, tokenName, lastUsedAt, authMode}`."""
        return self.map("GET", self.ours("whoami"))

    # -- tokens, and what needs the admin token

    def tokens(self) -> list[dict[str, Any]]:
        """The namespace's tokens, revoked ones too, without their plaintext."""
        return self.rows(self.ours("tokens"), "tokens")

    def mint_token(self, name: str, *, scope: str | None = None, ttl_s: float | None = None) -> dict[str, Any]:
        """A new token: `{id, name, prefix, scope, expiresAt, plaintext, …}`. ApiError 409 when the name is taken."""
        given = {"scope": scope, "ttl_s": ttl_s}
        body = {"name": name} | {key: value for key, value in given.items() if value is not None}
        return self.map("POST", self.ours("tokens"), body=body)

    def revoke_token(self, token_id: str) -> dict[str, Any]:
        """Revoke for good; the row. Again is no error."""
        return self.map("DELETE", self.ours("tokens", token_id))

    # -- one request

    def call(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Mapping[str, Any] | None = None,
        data: Body = None,
        size: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send one request, with `body` as JSON or with `data` (of `size` bytes) as it is; the JSON of a 2xx answer.

        ApiError for any other, NetError when there is none.
        """
        headers = list(self._headers)
        if data is not None:
            headers.append(("content-type", "application/octet-stream"))
        elif body is not None:
            headers.append(("content-type", "application/json"))
            data = json.dumps(body).encode()
        query = list(query)
        with nullcontext() if any(name == _WAITS for name, _value in query) else self.around():
            answer = self._connection.request(
                method,
                with_query(path, query),
                headers=headers,
                body=data,
                content_length=size,
                timeout=self._timeout if timeout is None else timeout,
                retry_stale=method == "GET",
            )
        value = read_answer(self.url, answer.status, answer.body)
        self.answered = f"{self.url}{path}"
        return value

    def insist(self, send: Callable[[], dict[str, Any]], lost: list[NetError]) -> dict[str, Any]:
        """Send once, and again after an answer was lost; `lost` gets why. Raises what the first loss was in the end."""
        deadline = time.monotonic() + INSIST_S
        waits = full_jitter(chance, base=0.1, cap=1.0)
        while True:
            try:
                return send()
            except ProtocolViolation:
                raise
            except NetError as error:
                if error.sent_anything:
                    lost.append(error)
                if not lost:
                    raise
                if time.monotonic() >= deadline:
                    raise lost[0] from error
                time.sleep(next(waits))

    def ours(self, *parts: str) -> str:
        """The path of something in our namespace."""
        return path_of(self.namespace, *parts)

    def map(
        self, method: str, path: str, query: Query = (), *, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """`call` for an answer that is an object."""
        value = self.call(method, path, query, body=body)
        if not isinstance(value, dict):
            raise not_ours(f"{self.url}{path}", "without an object")
        return value

    def rows(self, path: str, name: str, query: Query = ()) -> list[dict[str, Any]]:
        """GET the list that is in an answer under `name`."""
        return rows_in(self.map("GET", path, query), name, f"{self.url}{path}")

    def pages(
        self,
        path: str,
        name: str,
        query: Query = (),
        *,
        page: int | None = None,
        offset: int = 0,
        cursor: str = "cursor",
    ) -> Iterator[dict[str, Any]]:
        """The rows of a list that is answered in pages, of `page` rows or as many as the server likes; each is asked
        for when it is needed. `next` of an answer is the `cursor` of the following one.
        """
        place: str | int | None = None
        query = [*query, ("limit", page)]
        while True:
            where = [("offset", offset)] if offset and place is None else [(cursor, place)]
            answer = self.map("GET", path, [*query, *where])
            yield from rows_in(answer, name, f"{self.url}{path}")
            place = page_after(answer, place, f"{self.url}{path}")
            if place is None:
                return

    def _row(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        value = self.map(method, path, body=body)
        inner = value.get("invocation")  # some answers wrap the row
        return inner if isinstance(inner, dict) else value


def headers_of(namespace: str, token: str | None) -> list[tuple[str, str]]:
    """What every request says of its sender. ValueError for what can be no namespace."""
    if not (namespace.isascii() and namespace.isprintable()):
        raise ValueError(f"{namespace!r} is no namespace")
    headers = [("accept", "application/json"), ("x-ls-namespace", namespace)]
    return [*headers, ("authorization", bearer(token))] if token else headers


def path_of(namespace: str, *parts: str) -> str:
    """The path of something in a namespace."""
    return "/".join(("/v1/namespaces", *(quote(part, safe="") for part in (namespace, *parts))))


def with_query(path: str, query: Query) -> str:
    """A path with what of the query is not None."""
    pairs = [(key, value) for key, value in query if value is not None]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def read_answer(url: str, status: int, body: bytes) -> Any:
    """The JSON of a 2xx answer. ApiError for any other; NotLakeshore for what is no JSON."""
    value: Any = None
    readable = True
    try:
        value = json.loads(body) if body else None
    except (ValueError, RecursionError):
        readable = False
    refused = status >= 300
    if not readable or (refused and not isinstance(value, dict)):
        raise NotLakeshore(
            f"{url} answered {status}, and not with JSON. Is that the address of a control plane?",
            status=status,
        )
    if refused:
        raise _refusal(status, value)
    return value


def _refusal(status: int, body: dict[str, Any]) -> ApiError:
    said = body.get("error")
    hint = body.get("hint")
    field = body.get("field")
    return ApiError(
        said if isinstance(said, str) and said else f"the server answered {status}",
        status=status,
        hint=hint if isinstance(hint, str) else None,
        field=field if isinstance(field, str) else None,
        body=body,
    )
