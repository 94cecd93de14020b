"""The table of routes as an OpenAPI 3.1 document: `GET /v1/openapi.json`.

Everything in it comes from the rows and from what their handlers state (`routes/stated.py`); the HTTP reference of the
documentation is made of the same. Bodies are maps in both encodings, of one schema.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final, NotRequired, TypedDict

from ..wire.messages import JSON, MSGPACK
from .routes.stated import COMMON, MEANINGS, Media, OneOf, Stated, stated_of, statuses
from .schemas import Schema, Schemas
from .shapes import LABEL, NAMESPACE, fields_of

ENCODINGS: Final = (JSON, MSGPACK)
_INTRODUCTION: Final = (
    "A body is a map, in msgpack or in JSON (where bytes are base64 strings); the answer comes in the encoding of its "
    "request. Unknown keys are ignored, but where additionalProperties says otherwise; null is absent. A refusal is an "
    "Error that names the field."
)
_DAEMON: Final = ("X-LS-Key-Id", "X-LS-Timestamp", "X-LS-Nonce", "X-LS-Signature")
_PARAMETER: Final = re.compile(r"\{(\w+)(?:\.\.\.)?\}")
_PATTERNS: Final = {"ns": NAMESPACE.says, "slug": NAMESPACE.says, "label": LABEL.says}


class Error(TypedDict):
    """A refusal: what is wrong, the path of the field, what to do; some say more."""

    error: str
    field: NotRequired[str]
    hint: NotRequired[str]


def document(table: Iterable[Any], version: str) -> dict[str, Any]:
    """The document of rows of a table (`routes/table.py`)."""
    schemas = Schemas()
    error = schemas.of(Error, asked=False)
    paths: dict[str, dict[str, Any]] = {}
    taken: set[str] = set()
    for row in table:
        path = row.pattern.replace("...}", "}")
        paths.setdefault(path, {})[row.method.lower()] = _operation(row, schemas, taken)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lakeshore", "version": version, "description": _INTRODUCTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": {
                str(status): {"description": MEANINGS[status], "content": _content(error)}
                for status in sorted(MEANINGS)
                if status >= 400
            },
            "parameters": {
                "namespace": {
                    "name": "X-LS-Namespace",
                    "in": "header",
                    "description": "The namespace, where the credential does not name it.",
                    "schema": {"type": "string", **NAMESPACE.says},
                }
            },
            "securitySchemes": _schemes(),
        },
    }


def _operation(row: Any, schemas: Schemas, taken: set[str]) -> dict[str, Any]:
    stated = stated_of(row.handler)
    module = row.handler.__module__.rpartition(".")[2]
    id_ = f"{module}.{row.handler.__name__}"
    while id_ in taken:
        id_ += "_"
    taken.add(id_)
    made: dict[str, Any] = {"operationId": id_, "tags": [module]}
    summary, said = about(row.handler)
    if summary:
        made["summary"] = summary
    if said:
        made["description"] = said
    if parameters := _parameters(row, stated, schemas):
        made["parameters"] = parameters
    if stated.body:
        made["requestBody"] = _request(stated, schemas)
    made["responses"] = {
        **{str(status): _answer(status, said, schemas) for status, said in sorted(stated.answers.items())},
        **{
            str(status): {"$ref": f"#/components/responses/{status}"}
            for status in sorted((statuses(row) | COMMON) - set(stated.answers))
        },
    }
    made["security"] = _security(row)
    return made


def about(handler: Any) -> tuple[str, str]:
    """A handler's docstring without its route: the first line, and the rest."""
    first, _, rest = (inspect.getdoc(handler) or "").partition("\n\n")
    found = re.match(r"[A-Z]+ /\S*(?: \{.*?\})?(?: →.*)?(?:[:,] )?(.*)", first.replace("\n", " "))
    said = (found[1] if found else first).strip()
    return f"{said[:1].upper()}{said[1:]}", " ".join(rest.split())


def _parameters(row: Any, stated: Stated, schemas: Schemas) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for name in _PARAMETER.findall(row.pattern):
        schema = {"type": "string", "minLength": 1, **_PATTERNS.get(name, {})}
        made.append({"name": name, "in": "path", "required": True, "schema": schema})
    if stated.query is not None:
        for name, field in fields_of(stated.query).items():
            schema = schemas.of(field.kind, asked=False)
            made.append({"name": name, "in": "query", "required": field.required, "schema": schema})
    if row.tier == "plain":
        made.append({"$ref": "#/components/parameters/namespace"})
    return made


def _request(stated: Stated, schemas: Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    shapes: list[Schema] = []
    for body in stated.body:
        if isinstance(body, Media):
            content[body.type] = {}
        else:
            shapes.append(schemas.of(body, asked=True))
    if shapes:
        content |= _content(shapes[0] if len(shapes) == 1 else {"anyOf": shapes})
    return {"required": not stated.optional, "content": content}


def _answer(status: int, said: Any, schemas: Schemas) -> dict[str, Any]:
    meaning = MEANINGS[status]
    if isinstance(said, Media):
        return {"description": said.says or meaning, "content": {said.type: {}}}
    if isinstance(said, OneOf):
        return {"description": meaning, "content": _content({"anyOf": [schemas.of(one, asked=False) for one in said]})}
    return {"description": meaning, "content": _content(schemas.of(said, asked=False))}


def _content(schema: Schema) -> dict[str, Any]:
    return {encoding: {"schema": schema} for encoding in ENCODINGS}


def _schemes() -> dict[str, Any]:
    daemon = {
        name: {"type": "apiKey", "in": "header", "name": name, "description": "One of four of a daemon's signature."}
        for name in _DAEMON
    }
    return {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the namespace."},
        "admin": {"type": "http", "scheme": "bearer", "description": "The admin token."},
        "signedUrl": {"type": "apiKey", "in": "query", "name": "sig", "description": "What presign put into the URL."},
        **daemon,
    }


def _security(row: Any) -> list[dict[str, list[str]]]:
    if row.tier == "open":
        return []
    if row.tier == "signed":
        return [{"signedUrl": []}]
    if row.is_admin:
        return [{"admin": []}]
    found: list[dict[str, list[str]]] = [{"bearer": []}, {"admin": []}]
    return [*found, {name: [] for name in _DAEMON}] if "daemon" in row.scopes else found
