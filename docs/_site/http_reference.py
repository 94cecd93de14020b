"""reference/http-api.md: every route of the server, from its table and from what its handlers state.

It is made of what the OpenAPI document is made of; of what producers and workers say it also has the words of
`wire/messages.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

from lakeshore.server.routes import table
from lakeshore.server.routes.stated import COMMON, MEANINGS, Media, OneOf, Stated, stated_of, statuses
from lakeshore.server.schemas import Schema, Schemas
from lakeshore.server.shapes import fields_of, unannotated
from lakeshore.wire import messages
from prose import doc_of, readable

HEAD = """<!-- about: Every route of the server: tier, scopes, bodies, statuses. -->

# HTTP API

A body is a map, in msgpack (`application/x-msgpack`) or in JSON (`application/json`, where bytes are base64
strings). The answer comes in the encoding of its request. Unknown keys are ignored; null and absent are the same.
Times are seconds, sizes bytes.

`Authorization: Bearer <token>` says who calls. `X-LS-Namespace: <slug>` names the namespace where the credential
does not.
The same as an OpenAPI 3.1 document: `GET /v1/openapi.json`, from any server.

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
SECTIONS = {
    "Health": ("/healthz", "/readyz", "/metrics"),
    "Producers": ("/v1/producer/",),
    "Workers": ("/v1/daemon/",),
    "Payloads": ("/v1/namespaces/{ns}/payloads", "/v1/blobs/"),
    "Commands": (
        "/v1/namespaces/{ns}/exec",
        "/v1/namespaces/{ns}/workers/{id}/exec",
        "/v1/namespaces/{ns}/workers/{worker}/exec",
        "/v1/namespaces/{ns}/jobs/",
    ),
    "Operators": ("/v1/namespaces/",),
    "Admin": ("/v1/admin/",),
}
_ROUTE = re.compile(r"^    (?P<methods>[A-Z]+(?: ?\| ?[A-Z]+)*)\s+(?P<path>/\S*)(?P<said>.*)$")


def page() -> str:
    """The whole page."""
    every = sorted(COMMON.union(*(statuses(row) for row in table.TABLE)))
    common = ", ".join(map(str, sorted(COMMON)))
    told = "\n".join(f"| {status} | {MEANINGS[status]} |" for status in every)
    lines = [f"{HEAD}{told}\n\nAny route may answer {common}: they are not repeated below.\n"]
    stated = _stated()
    used: list[str] = []
    for title, rows in _sections():
        lines.append(f"## {title}\n")
        for row in rows:
            lines += _route(row, stated.get(_key(row.method, row.pattern), ""), used)
    lines.append("## Bodies\n")
    for name in dict.fromkeys([*used, *_parts(used)]):
        lines += _body(name)
    lines += _shapes()
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
    tier = "admin" if row.is_admin else row.tier
    scopes = "" if tier == "admin" else scopes
    every = statuses(row)
    lines = [f"### {heading(row)}\n", f"**{tier}**{scopes} · {', '.join(map(str, sorted(every)))}\n"]
    first, _, rest = readable(inspect.getdoc(row.handler) or "").partition("\n")
    shape = re.match(r"[A-Z]+ /\S*(?: (\{.*?\}))?(?:: )?(.*)", first)
    said = " ".join(part for part in ((shape[2] if shape else first).strip(), rest.strip()) if part)
    if shape and shape[1]:
        lines.append(f"Body: `{shape[1]}`\n")
    taken = stated_of(row.handler)
    if taken.query is not None:
        asked = ", ".join(f"`{name}` {_told(field.kind)}" for name, field in fields_of(taken.query).items())
        lines.append(f"Query: {asked}\n")
    if named := [shape for shape in taken.body if typing.is_typeddict(shape) and fields_of(shape)]:
        lines.append(f"Fields: {', '.join(_link(shape) for shape in named)}\n")
    if named := [shape for shape in _answers(taken) if typing.is_typeddict(shape)]:
        lines.append(f"Answer: {', '.join(_link(shape) for shape in named)}\n")
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


def _answers(taken: Stated) -> list[Any]:
    found = [one for said in taken.answers.values() for one in (said if isinstance(said, OneOf) else (said,))]
    return list(dict.fromkeys(one for one in found if not isinstance(one, Media)))


def _link(shape: Any) -> str:
    return f"[{shape.__name__}](#{shape.__name__.lower()})"


def _shapes() -> list[str]:
    """A section for each class that a route takes or answers and that `wire/messages.py` does not have."""
    found: dict[Any, None] = {}
    for row in table.TABLE:
        taken = stated_of(row.handler)
        for shape in (*taken.body, *_answers(taken)):
            _collect(shape, found)
    lines: list[str] = []
    for shape in sorted(found, key=lambda shape: str(shape.__name__)):
        lines += [f"### {shape.__name__}\n", doc_of(shape) + "\n", "| field | type | |", "| --- | --- | --- |"]
        for name, field in fields_of(shape).items():
            lines.append(f"| `{name}` | {_told(field.kind)} | {'**required**' if field.required else ''} |")
        lines.append("")
    return lines


def _collect(hint: Any, found: dict[Any, None]) -> None:
    bare, _rules = unannotated(hint)
    if typing.is_typeddict(bare):
        if bare not in found and fields_of(bare):
            found[bare] = None
            for field in fields_of(bare).values():
                _collect(field.kind, found)
    else:
        for part in typing.get_args(bare):
            _collect(part, found)


def _told(hint: Any) -> str:
    """A type in words, with what its schema says of it."""
    schemas = Schemas()
    return f"`{_words(schemas.of(hint, asked=False))}`".replace("|", "\\|")


def _words(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(_words(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(str(one) for one in schema["enum"])
    if "not" in schema:
        return "not here"
    said = schema.get("type", "any")
    said = " | ".join(said) if isinstance(said, list) else said
    if said == "array":
        said = f"[{_words(schema['items'])}]"
    bounds = [f"{sign} {schema[key]:.15g}" for key, sign in _BOUNDS.items() if key in schema]
    return " ".join([said, *bounds])


_BOUNDS = {
    "exclusiveMinimum": ">",
    "minimum": "≥",
    "maximum": "≤",
    "minLength": "length ≥",
    "maxLength": "length ≤",
    "maxItems": "items ≤",
}


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
