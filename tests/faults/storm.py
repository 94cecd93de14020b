"""Random requests for one route: values known and unknown, any method, any body, any word about its encoding."""

from __future__ import annotations

import dataclasses
import http.client
import inspect
import json
import random
import re
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgpack
from mutations import JSON, MSGPACK, VALUES, mutants, packed
from route_bodies import ROUTES
from served import Served

import lakeshore.server.routes
from lakeshore.server.routes.table import Row
from lakeshore.wire import messages

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECTED", "get")
CONTENT_TYPES = (
    *(JSON, MSGPACK) * 4,
    "application/json; charset=utf-8",
    "application/vnd.x+json",
    "application/msgpack",
    "application/octet-stream",
    "application/x-msgpack-stream",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "Application/JSON",
    ";",
    "\xff",
    None,
)
HEADERS = (
    ("Accept", MSGPACK),
    ("Accept", "*/*"),
    ("Accept", "text/event-stream"),
    ("X-LS-Namespace", "default"),
    ("X-LS-Namespace", "no/such name"),
    ("X-LS-Namespace", ""),
    ("X-LS-Namespace", "\xff" * 40),
    ("X-LS-Namespace", "x" * 5000),
    ("Authorization", "Bearer made-up"),
    ("Authorization", "Basic eDp5"),
    ("Authorization", ""),
    ("Range", "bytes=0-3"),
    ("Range", "bytes=-" + "9" * 5000),
    ("Range", "bytes=" + "9" * 5000 + "-"),
    ("Range", "bytes=3-1"),
    ("Range", "bytes=0-1,3-4"),
    ("If-None-Match", "*"),
    ("Last-Event-ID", "-1"),
    ("Content-Encoding", "gzip"),
    ("Connection", "close"),
)
NUMBERS = (
    *("0", "1", "-1", "2.5", "1e999", "nan", "inf", "9" * 30, "9" * 5000, "0x1", "1_0", "", " 1"),
    *("\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT THREE}"),
)
WORDS = (
    *("default", "queued", "running,failed", "x", "", "*", "a/b", "\0", "x" * 3000, "..", "%"),
    *("\N{SNOWMAN}" * 50, "\N{LATIN SMALL LETTER E WITH ACUTE}"),
)
NOT_BODIES = (
    None,
    b"",
    b"123456789",
    b"{}",
    b"\x80",
    b"[]",
    b"null",
    b"\xc0",
    b"\x1f\x8b\x08\0",
    b"{" * 5000,
    b"\0" * 300_000,
)
SEGMENTS = (
    *("default", "x", "0", "-1", "%00", "%2F", "%2e%2e", "%ff", "%E2%98%83", "a%20b", "*", "~", "p*", "x" * 3000),
    *("", "%", "nul", "__proto__", "9" * 400, "'", '"', "a;b", "a=b&c", "[]", "{id}", "%0d%0aX:%20y"),
)


@cache
def query_names() -> tuple[str, ...]:
    """Every word in quotes on a line of a route that reads its query."""
    directory = Path(inspect.getfile(lakeshore.server.routes)).parent
    lines = [line for file in sorted(directory.glob("*.py")) for line in file.read_text().splitlines()]
    found = {word for line in lines if "query" in line for word in re.findall(r'"([a-z_0-9]+)"', line)}
    found |= {word for line in lines for word in re.findall(r'_number\(\w+, "(\w+)"', line)}
    return tuple(sorted(found))


@cache
def field_names() -> tuple[str, ...]:
    """Every field of every message."""
    classes = [c for c in vars(messages).values() if isinstance(c, type) and dataclasses.is_dataclass(c)]
    return tuple(sorted({field.name for c in classes for field in dataclasses.fields(c)}))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None

    def raw(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body is not None:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (self.body or b"")

    def __str__(self) -> str:
        headers = ", ".join(f"{name}: {value:.60}" for name, value in self.headers)
        return f"{self.method} {self.target:.300} [{headers}] {self.body if self.body is None else self.body[:300]!r}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What exists on the server: good values of parameters by name, and signed targets by method."""

    values: dict[str, Sequence[str]]
    signed: dict[str, Sequence[str]]


def shot(row: Row, known: Known, rng: random.Random) -> Shot:
    """A request for this route, right or wrong."""
    method = row.method if rng.random() < 0.75 else rng.choice(METHODS)
    kind = rng.choice(CONTENT_TYPES)
    headers = [] if kind is None else [("Content-Type", kind)]
    if rng.random() < 0.3:
        headers.append(rng.choice(HEADERS))
    body = _body(row, rng, MSGPACK if kind is not None and "msgpack" in kind else JSON)
    if body is not None and row.method in ("GET", "DELETE") and rng.random() < 0.7:
        body = None
    return Shot(method=method, target=_target(row, known, rng), headers=tuple(headers), body=body)


def _target(row: Row, known: Known, rng: random.Random) -> str:
    signed = known.signed.get(row.method, ())
    if row.tier == "signed" and signed and rng.random() < 0.8:
        target = rng.choice(signed)
        if rng.random() < 0.5:
            return target
        at = rng.randrange(len("/v1/blobs/"), len(target))
        return target[:at] + rng.choice("0aZ%&=?/.") + target[at + rng.randrange(2) :]

    def value(match: re.Match[str]) -> str:
        good = known.values.get(match.group(1), ())
        return quote(rng.choice(good), safe="") if good and rng.random() < 0.75 else rng.choice(SEGMENTS)

    path = re.sub(r"\{(\w+)(?:\.\.\.)?\}", value, row.pattern)
    if rng.random() < 0.1:
        path += rng.choice(("/", "//", "/x", "?", "%2F"))
    if rng.random() < 0.5:
        pairs = []
        count = rng.choice((1, 1, 2, 3, 250))
        for _ in range(count):
            name = rng.choice(query_names()) if rng.random() < 0.9 else rng.choice(("", "x", "a[b]", "%ff"))
            pairs.append(f"{name}={quote(rng.choice(NUMBERS + WORDS)[: 6000 // count], safe='')}")
        path += "?" + "&".join(pairs)
    return path


def _body(row: Row, rng: random.Random, encoding: str) -> bytes | None:
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(NOT_BODIES)
    if kind == 1:
        encoding = JSON if encoding == MSGPACK else MSGPACK  # it says one and is the other
    if kind == 2:
        fields = {name: rng.choice(VALUES) for name in rng.sample(field_names(), rng.randrange(1, 8))}
        return packed(fields, encoding)
    base = _right_body(row, rng)
    if kind == 3:
        return packed(base, encoding)
    return next(mutants(base, encoding, rng, 8) if kind < 6 else _any_mutant(base, encoding, rng)).raw


def _any_mutant(base: dict[str, Any], encoding: str, rng: random.Random) -> Any:
    every = list(mutants(base, encoding, rng, 8))
    return iter([rng.choice(every)])


def _right_body(row: Row, rng: random.Random) -> dict[str, Any]:
    """One that belongs to the route if there is one; a new route gets the others'."""
    pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(row.pattern)))
    own = [body for path, body in ROUTES.values() if pattern.fullmatch(path)]
    return dict(rng.choice(own or [body for _path, body in ROUTES.values()]))


class Line:
    """One connection for many requests; whoever holds a request open is left."""

    def __init__(self, server: Served, patience_s: float) -> None:
        parts = urlsplit(server.url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._patience_s = patience_s
        self._sock: socket.socket | None = None
        self.held = 0

    def send(self, shot: Shot) -> tuple[int, http.client.HTTPMessage, bytes] | None:
        """The answer; None when there was none, or no end of it, in time."""
        if self._sock is None:
            self._sock = socket.create_connection(self._address, timeout=60.0)
            self._sock.settimeout(self._patience_s)
        answer = http.client.HTTPResponse(self._sock, method=shot.method)
        try:
            self._sock.sendall(shot.raw())
            answer.begin()
            body = answer.read()
        except TimeoutError:
            self.held += 1
            self.close()
            return None
        finally:
            answer.close()
        if answer.will_close:
            self.close()
        return answer.status, answer.headers, body

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def read(kind: str | None, raw: bytes) -> Any:
    """A body by its content type."""
    if kind == MSGPACK:
        return msgpack.unpackb(raw, strict_map_key=False)
    assert kind == JSON, kind
    return json.loads(raw)
