"""Types as JSON Schema 2020-12: the TypedDicts of `shapes.py`, and the wire's dataclasses as `structure.py` reads them.

Of what is asked for, null is the same as absent, so a field that may be left out may be null; in an answer it may be
null only where its type says so. Classes become `components/schemas`, once each, under their own names.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal

from .shapes import fields_of, is_closed, is_shape, unannotated, without_none

Schema = dict[str, Any]

_PLAIN: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    type(None): {"type": "null"},
    Any: {},
    dict: {"type": "object"},
}
_CITED: Final = re.compile(r" ?\((?:[SKPNC]-\d+(?:…|, )?)+\)|; [SK]-\d+[^.]*(?=\.)")


class Schemas:
    """The schemas that a document refers to."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._classes: dict[str, tuple[Any, bool]] = {}

    def of(self, hint: Any, *, asked: bool) -> Schema:
        """The schema of a type; `asked` where a caller sends it. TypeError for what JSON Schema cannot say."""
        bare, rules = unannotated(hint)
        if rules:
            schema = self.of(bare, asked=asked)
            says = {key: said for rule in rules for key, said in rule.says.items()}
            return _nullable({**self.of(without_none(bare), asked=asked), **says}) if _is_union(bare) else schema | says
        if bare in _PLAIN:
            return dict(_PLAIN[bare])
        if is_shape(bare):
            return self._class(bare, asked=asked)
        origin, arguments = typing.get_origin(bare), typing.get_args(bare)
        if _is_union(bare):
            choices = [self.of(one, asked=asked) for one in arguments if one is not type(None)]
            schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
            return _nullable(schema) if type(None) in arguments else schema
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is list or (origin is tuple and arguments[1:] == (Ellipsis,)):
            return {"type": "array", "items": self.of(arguments[0], asked=asked)}
        if origin is tuple:
            items = [self.of(one, asked=asked) for one in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin in (dict, Mapping):
            inner = self.of(arguments[1], asked=asked)
            return {"type": "object", "additionalProperties": inner} if inner else {"type": "object"}
        raise TypeError(f"{bare}: JSON Schema has no word for it")

    def _class(self, shape: Any, *, asked: bool) -> Schema:
        name = shape.__name__
        known = self._classes.setdefault(name, (shape, asked))
        if known != (shape, asked):
            raise TypeError(f"{name}: two classes of one name, or one that is both sent and answered: name them apart")
        if name not in self.components:
            self.components[name] = {}  # it may hold itself
            self.components[name] = self._fields(shape, asked=asked)
        return {"$ref": f"#/components/schemas/{name}"}

    def _fields(self, shape: Any, *, asked: bool) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for name, hint, must in _hints(shape):
            schema = self.of(hint, asked=asked)
            properties[name] = _nullable(schema) if asked and not must else schema
            if must:
                required.append(name)
        made: Schema = {"type": "object", "properties": properties}
        if said := described(shape):
            made = {"description": said, **made}
        if required:
            made["required"] = required
        return {**made, "additionalProperties": False} if is_closed(shape) else made


def described(named: Any) -> str:
    """The docstring's first paragraph, without the rows that it cites; empty for a generated one."""
    said = (inspect.getdoc(named) or "").split("\n\n")[0].replace("\n", " ")
    return "" if said.startswith((f"{named.__name__}(", "dict() ->")) else _CITED.sub("", said)


def _hints(shape: Any) -> list[tuple[str, Any, bool]]:
    if typing.is_typeddict(shape):
        return [(name, field.kind, field.required) for name, field in fields_of(shape).items()]
    hints = typing.get_type_hints(shape)
    missing = dataclasses.MISSING
    return [
        (field.name, hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(shape)
    ]


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _nullable(schema: Schema) -> Schema:
    if not schema or "null" in schema.get("type", ()):
        return schema
    if {"type": "null"} in schema.get("anyOf", ()):
        return schema
    if "anyOf" in schema and len(schema) == 1:
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}
