"""reference/http-api.md: every route of the server, from its table, bodies as `wire/messages.py` states them.

Statuses are read from the handlers' sources: what they raise, and what the layers before them do.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from lakeshore.server.routes import table
from lakeshore.wire import messages
from prose import doc_of, readable

HEAD = """<!-- about: Every route of the server: tier, scopes, bodies, statuses. -->

# HTTP API

A body is a map, in msgpack (`application/x-msgpack`) or in JSON (`application/json`, where bytes are base64
strings). The answer comes in the encoding of its request. Unknown keys are ignored; null and absent are the same.
Times are seconds, sizes bytes.

`Authorization: Bearer <token>` says who calls. `X-LS-Namespace: <slug>` names the namespace where the credential
does not.
A refusal is `{"error": "…"}`, often with `field`, the path of what is wrong, and `hint`, what to do.

| tier | who gets in |
| --- | --- |
| open | anybody |
| signed | who has the URL: its signature is the credential |
| plain | a token, of a scope that the route names; the namespace is the token's, or the header's |
| named | the same, for the namespace in the path |
| admin | the admin token, or open mode |

Where scope `daemon` may call, a daemon's signature does instead of a bearer: the headers `X-LS-Key-Id`,
`X-LS-Timestamp`, `X-LS-Nonce` and `X-LS-Signature`, and `X-LS-Worker-Id` where the body has no `worker_id`. Some of the
four are a 401.

| status | what it says |
| ---: | --- |
"""
MEANINGS = {
    200: "done",
    201: "made",
    202: "under way",
    206: "a part, as the Range asked",
    400: "the request or its body cannot be read",
    401: "no bearer token, or one that nobody minted",
    403: "the token may not do this, or it was revoked; or the URL's signature is wrong or has expired",
    404: "nothing of that name, or not for this caller",
    405: "the path has other methods; `Allow` names them",
    408: "the request stopped halfway",
    409: "it conflicts with what is: another call under this id, a stale claim, a gap, a name that is taken",
    410: "the worker was removed: it drains and ends, or says hello anew",
    413: "too large",
    415: "neither msgpack nor JSON",
    416: "no such range",
    422: "a field is wrong; `field` names it",
    429: "the queue is full; `Retry-After`",
    501: "a documented part that this version does not have",
    503: "going down, or too many connections; nothing was done",
    507: "the server's disk is full; nothing was lost",
}
SECTIONS = {
    "Health": ("/healthz", "/readyz", "/metrics"),
    "Producers": ("/v1/producer/",),
    "Workers": ("/v1/daemon/",),
    "Payloads": ("/v1/namespaces/{ns}/payloads", "/v1/blobs/"),
    "Commands": (
        "/v1/namespaces/{ns}/exec",
        "/v1/namespaces/{ns}/workers/{id}/exec",
        "/v1/namespaces/{ns}/workers/{worker}/exec",
    ),
    "Operators": ("/v1/namespaces/",),
    "Admin": ("/v1/admin/",),
}
_ROUTE = re.compile(r"^    (?P<methods>[A-Z]+(?: ?\| ?[A-Z]+)*)\s+(?P<path>/\S*)(?P<said>.*)$")


def page() -> str:
    """The whole page."""
    every = sorted(set().union(*(statuses(row) for row in table.TABLE)) | {405})
    lines = [HEAD + "\n".join(f"| {status} | {MEANINGS[status]} |" for status in every) + "\n"]
    stated = _stated()
    used: list[str] = []
    for title, rows in _sections():
        lines.append(f"## {title}\n")
        for row in rows:
            lines += _route(row, stated.get(_key(row.method, row.pattern), ""), used)
    lines.append("## Bodies\n")
    for name in dict.fromkeys([*used, *_parts(used)]):
        lines += _body(name)
    return "\n".join(lines) + "\n"


def _sections() -> Iterator[tuple[str, list[Any]]]:
    left = list(table.TABLE)
    for title, beginnings in SECTIONS.items():
        rows = [row for row in left if row.pattern.startswith(beginnings)]
        left = [row for row in left if row not in rows]
        yield title, rows
    if left:
        yield "More", left


def heading(row: Any) -> str:
    """How the page names a route."""
    return f"{row.method} {row.pattern.replace('...}', '}')}"


def _route(row: Any, stated: str, used: list[str]) -> list[str]:
    scopes = "" if row.tier in ("open", "signed", "admin") else f" · scope {_either(sorted(row.scopes))}"
    tier = "admin" if row.handler in table._ADMIN_ONLY else row.tier
    scopes = "" if tier == "admin" else scopes
    every = statuses(row) | {int(status) for status in re.findall(r"\b4\d\d\b(?! fences|`)", stated)}
    lines = [f"### {heading(row)}\n", f"**{tier}**{scopes} · {', '.join(map(str, sorted(every)))}\n"]
    first, _, rest = readable(inspect.getdoc(row.handler) or "").partition("\n")
    shape = re.match(r"[A-Z]+ /\S*(?: (\{.*?\}))?(?:: )?(.*)", first)
    said = " ".join(part for part in ((shape[2] if shape else first).strip(), rest.strip()) if part)
    if shape and shape[1]:
        lines.append(f"Body: `{shape[1]}`\n")
    query = _query_of(row)
    if query:
        lines.append(f"Query: {', '.join(f'`{name}`' for name in query)}\n")
    if said:
        lines.append(f"{said[:1].upper()}{said[1:]}\n")
    if stated:
        found = [name for name in re.findall(r"^([A-Z]\w+)\s*->", stated, re.M) if _is_body(name)]
        used += found
        if found:
            links = ", ".join(f"[{name}](#{name.lower()})" for name in dict.fromkeys(found))
            lines.append(f"Bodies: {links}\n")
        lines.append(f"```text\n{stated}\n```\n")
    return lines


def _query_of(row: Any) -> list[str]:
    """The query's names: those that the handler's docstring gives after the path, else none."""
    first = (inspect.getdoc(row.handler) or "").split("\n")[0]
    found = re.match(r"[A-Z]+ /[^?\s]*\?([\w=&]+)", first)
    return [] if found is None or "blobs" in row.pattern else [part.rstrip("=") for part in found[1].split("&")]


def _either(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


# ---- what messages.py states of a route


def _key(method: str, path: str) -> tuple[str, str]:
    return method, re.sub(r"\{[^}]*\}|:\w+|<[^>]*>", "*", path.split("?")[0])


def _stated() -> dict[tuple[str, str], str]:
    """For each route that messages.py describes: its lines there."""
    found: dict[tuple[str, str], list[str]] = {}
    now: list[tuple[str, str]] = []
    for line in (inspect.getdoc(messages) or "").splitlines():
        begins = _ROUTE.match(line)
        if begins is not None:
            now = [_key(method.strip(), begins["path"]) for method in begins["methods"].split("|")]
            query = begins["path"].partition("?")[2]
            opening = [f"?{query}"] if query and "<" not in query else []
            said = begins["said"].strip()
            for key in now:
                found[key] = [*opening, *([said] if said else [])]
        elif line.startswith("        ") and now:
            for key in now:
                found[key].append(line[8:])
        else:
            now = []
    return {key: readable_lines(lines) for key, lines in found.items()}


def readable_lines(lines: list[str]) -> str:
    """Lines of a code block, without the rows that they cite."""
    return re.sub(r" \([SK]-\d+\)", "", textwrap.dedent("\n".join(lines))).strip("\n")


# ---- bodies


def _is_body(name: str) -> bool:
    return dataclasses.is_dataclass(getattr(messages, name, None))


def _parts(names: list[str]) -> list[str]:
    """The classes that these bodies are made of, and theirs."""
    found: list[str] = []
    for name in names:
        for part in dataclasses.fields(getattr(messages, name)):
            for inner in re.findall(r"\b[A-Z]\w+\b", str(part.type)):
                if _is_body(inner) and inner not in names and inner not in found:
                    found += [inner, *_parts([inner])]
    return found


def _body(name: str) -> list[str]:
    cls = getattr(messages, name)
    lines = [f"### {name}\n", doc_of(cls) + "\n", "| field | type | default |", "| --- | --- | --- |"]
    lines += [f"| `{part.name}` | {_type(str(part.type))} | {_default(part)} |" for part in dataclasses.fields(cls)]
    return [*lines, ""]


def _type(text: str) -> str:
    said = text
    for pattern, meaning in _TYPES.items():
        said = re.sub(pattern, meaning, said)
    return f"`{said}`"


_TYPES = {
    r"\bBlob\b": "bytes",
    r"\bPair\b": "[invocation_id, claim]",
    r"\bHeld\b": "[invocation_id, claim, started]",
    r"\|": r"\\|",
}


def _default(part: Any) -> str:
    if part.default is not dataclasses.MISSING:
        return "" if part.default is None else f"`{part.default!r}`"
    if part.default_factory is not dataclasses.MISSING:
        return f"`{part.default_factory()!r}`"
    return "**required**"


# ---- statuses


@cache
def statuses(row: Any) -> frozenset[int]:
    """What the route answers with, besides what a client that breaks HTTP itself is told."""
    found = _of_source(row.handler)
    if not found & {200, 201}:
        found |= {200}
    if row.tier not in ("open", "signed"):
        found |= {401, 403}
    if row.tier == "named":
        found |= {404}
    if row.tier == "plain":
        found |= {422}  # the namespace's name
    return frozenset(found)


def _of_source(function: Callable[..., Any]) -> set[int]:
    found: set[int] = set()
    seen: set[Any] = set()
    todo: list[Any] = [function]
    while todo:
        now = todo.pop()
        if now in seen:
            continue
        seen.add(now)
        tree = ast.parse(textwrap.dedent(inspect.getsource(now)))
        here = vars(inspect.getmodule(now))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found |= _of_call(node)
            if isinstance(node, ast.Name | ast.Attribute):
                name = node.id if isinstance(node, ast.Name) else node.attr
                other = here.get(name) if isinstance(node, ast.Name) else None
                if name in ("read_map", "structure") and other is not None:
                    found |= {400, 413, 415} if name == "read_map" else {422}
                elif getattr(other, "__module__", None) == now.__module__:
                    todo += [other] if inspect.isroutine(other) or inspect.isclass(other) else []
    return found


_PLANE = {  # how a verb of the layers below may be refused; `lakeshore.server.refusals` says with what
    "submit": {409, 413, 422, 429, 507},
    "submit_many": set(),  # each item is answered by itself
    "append_many": {404, 409, 507},
    "append_run": {404, 409, 507},
    "topic_post": {409, 507},
    "hello": {507},
    "poll": {409, 507},
    "poll_foreign": {507},
    "report_many": {404, 409, 507},
    "cancel": {404},
    "retry": {404, 409, 507},
    "cancel_queued": set(),
    "trim": {404, 409},
    "verify": {403},
    "receive": {409, 413, 422, 507},
    "check_key": {403, 422},
    "check_invocation_id": {422},
    "check_queue": {422},
    "check_topic": {422},
    "too_large": {413},
}


def _of_call(node: ast.Call) -> set[int]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    given = {word.arg: word.value for word in node.keywords}
    found = set(_PLANE.get(name, ()))
    status = given.get("status")
    numbers = {inner.value for inner in ast.walk(status) if isinstance(inner, ast.Constant)} if status else set()
    found |= {number for number in numbers if isinstance(number, int) and 200 <= number < 600}
    if name == "HttpError" and node.args and isinstance(node.args[0], ast.Constant):
        found.add(node.args[0].value)
    if name == "bad_field" and "status" not in given:
        found.add(422)
    return found
