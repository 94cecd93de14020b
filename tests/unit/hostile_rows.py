"""Answers that fit the OpenAPI document in everything but their texts, each of which would steer a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

from lakeshore.server.openapi import document
from lakeshore.server.routes.table import TABLE

STEER = "a\x1b]0;t\x07\x1b[2J\x9b5m\u202e\u2066b\u2028c\rd"
OBEYED = frozenset("\x1b\x07\x9b\u202e\u2066\u2028\r")
_DOCUMENT = document(TABLE, "1")
_LAST = ("next", "cursor", "nextCursor", "next_cursor")


def answer(method: str, path: str) -> tuple[int, bytes]:
    """Status and JSON of a request; 404 for what no route has."""
    for pattern, operations in sorted(_DOCUMENT["paths"].items(), key=lambda item: str(item[0]).count("{")):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path) and method.lower() in operations:
            for status, said in operations[method.lower()]["responses"].items():
                schema = said.get("content", {}).get("application/json", {}).get("schema")
                if status < "300" and schema is not None:
                    return int(status), json.dumps(_made(schema)).encode()
    return 404, b'{"error": "nothing here"}'


def _made(schema: dict[str, Any], name: str = "") -> Any:
    if "$ref" in schema:
        return _made(_DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]], name)
    if "anyOf" in schema:
        return _made(next(one for one in schema["anyOf"] if one.get("type") != "null"), name)
    if name in _LAST:
        return None
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        found = {key: _made(inner, key) for key, inner in schema.get("properties", {}).items()}
        return found or {STEER: STEER, "x": {STEER: [STEER]}}
    if kind == "array":
        return [_made(schema.get("items", {}))]
    if kind in ("integer", "number"):
        return 3
    if kind == "boolean":
        return name != "more"
    return "2026-01-02T03:04:05Z" if schema.get("format") == "date-time" else STEER
