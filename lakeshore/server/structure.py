"""Bodies on their way in: decoded by their Content-Type, then structured into the classes of `wire/messages`.

Nothing is coerced: a string is not a number, a number is not a string, true is not 1; in JSON bytes are base64. Unknown
keys are ignored, null is absent. Refusals: 415 for another encoding, 400 for bytes that are not a map in the named one,
422 with the path of the field (`held[2].claim`) for a value of the wrong type.

A body is first read by a function made for its shape, in a tenth of the converter's time, that only says yes or no.
What it refuses is done again by the converter, which knows where: only bodies that are wrong pay for it.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgpack
from cattrs import AttributeValidationNote, ClassValidationError, Converter, IterableValidationError
from cattrs import IterableValidationNote as _ItemNote
from cattrs.gen import make_dict_structure_fn

from ..wire.messages import JSON, MSGPACK
from .http import HttpError, Request
from .primitives import (
    Wrong,
    a_bool,
    a_float,
    a_map,
    a_str,
    a_str_map,
    an_int,
    name_of,
    some_base64,
    some_bytes,
    text_or_number,
)
from .render import content_encoding

T = TypeVar("T")

_HINT: Final = "send a map as application/x-msgpack, or an object as application/json"


async def read_map(request: Request, *, optional: bool = False) -> tuple[dict[str, Any], str]:
    """The body as a map, and its encoding. `optional`: no body is an empty map. HttpError 400, 413, 415."""
    try:
        raw = await request.body()
    except HttpError as error:
        if error.status == 413:
            error.hint = "payloads over 256 KiB travel beside the call: POST /v1/namespaces/<ns>/payloads/presign"
        raise
    header = request.headers.get(b"content-type")
    if not raw and optional:
        return {}, JSON if header is None else content_encoding(header) or JSON
    encoding = None if header is None else content_encoding(header)
    if encoding is None:
        raise HttpError(415, "unsupported content type", hint=_HINT)
    return decode_map(raw, encoding), encoding


def decode_map(raw: bytes, encoding: str) -> dict[str, Any]:
    """Bytes as a map with string keys. HttpError 400."""
    try:
        value = msgpack.unpackb(raw, strict_map_key=False) if encoding is MSGPACK else json.loads(raw)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        name = "msgpack" if encoding is MSGPACK else "JSON"
        raise HttpError(400, f"malformed {name} body", hint=_reason(error)) from error
    if type(value) is not dict:
        raise HttpError(400, f"the body must be a map (got {name_of(value)})", hint=_HINT)
    return value


def structure(value: Any, shape: type[T], encoding: str, *, at: str = "") -> T:
    """`value` as a `shape`. `at` is the path of the value in its body. HttpError 422 naming the field."""
    try:
        return _reader(shape, encoding)(value)  # type: ignore[no-any-return]  # a reader of `shape` makes a `shape`
    except (ValueError, TypeError, KeyError, AttributeError):  # no converter's error: the reader calls none
        pass
    try:
        return _converters[encoding].structure(value, shape)
    except Exception as error:
        path, why = _explain(error, at)
        raise HttpError(422, f"{path}: {why}" if path else why, field=path or None) from error


def bad_field(field: str, why: str, *, hint: str | None = None, status: int = 422) -> HttpError:
    """A refusal that names a field."""
    return HttpError(status, f"{field}: {why}", field=field, hint=hint)


# --- inside


def _reason(error: Exception) -> str:
    if isinstance(error, msgpack.ExtraData):
        return "there are bytes after the end of the map"
    text = str(error)
    return text[:200] if text else "it ends in the middle of a value, or nests too deeply"


# --- converters


def _converter(read_bytes: Callable[[Any, Any], bytes]) -> Converter:
    converter = Converter(detailed_validation=True)
    for kind, hook in ((str, a_str), (int, an_int), (float, a_float), (bool, a_bool), (bytes, read_bytes)):
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook_func(lambda kind: kind == dict[str, Any], a_map)
    converter.register_structure_hook_func(lambda kind: kind == dict[str, str], a_str_map)
    converter.register_structure_hook_func(lambda kind: kind == (str | float | None), text_or_number)

    def of_class(shape: type[Any]) -> Callable[[Any, Any], Any]:
        inner = make_dict_structure_fn(shape, converter)

        def hook(value: Any, kind: Any) -> Any:
            if type(value) is not dict:
                raise Wrong(f"must be a map (got {name_of(value)})")
            if None in value.values():
                value = {key: item for key, item in value.items() if item is not None}
            return inner(value, kind)

        return hook

    def of_tuple(kind: Any) -> Callable[[Any, Any], Any]:
        arguments = kind.__args__
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            inner = converter.get_structure_hook(list[arguments[0]])  # type: ignore[valid-type]  # a runtime type

            def many(value: Any, _: Any) -> tuple[Any, ...]:
                if type(value) is not list:
                    raise Wrong(f"must be an array (got {name_of(value)})")
                return tuple(inner(value, list[arguments[0]])) if value else ()  # type: ignore[valid-type]  # as above

            return many
        parts = [converter.get_structure_hook(part) for part in arguments]

        def few(value: Any, _: Any) -> tuple[Any, ...]:
            if type(value) is not list or len(value) != len(parts):
                raise Wrong(f"must be an array of {len(parts)}")
            return tuple(part(item, kind) for part, item, kind in zip(parts, value, arguments, strict=True))

        return few

    converter.register_structure_hook_factory(dataclasses.is_dataclass, of_class)
    converter.register_structure_hook_factory(lambda kind: getattr(kind, "__origin__", None) is tuple, of_tuple)
    return converter


_converters: Final = {MSGPACK: _converter(some_bytes), JSON: _converter(some_base64)}


# --- readers

_LOCALS: Final = {
    "_str": a_str,
    "_int": an_int,
    "_float": a_float,
    "_bool": a_bool,
    "_bytes": some_bytes,
    "_map": a_map,
}
_CHECKED: Final[dict[Any, str]] = {
    str: "{0} if type({0}) is str and {0}.isascii() else _str({0})",
    int: "_int({0})",
    float: "_float({0})",
    bool: "{0} if type({0}) is bool else _bool({0})",
    dict[str, Any]: "{0} if not {0} and type({0}) is dict else _map({0})",
    bytes: "{0} if type({0}) is bytes else _bytes({0})",
}
"""Expressions that are a value of this type, or raise."""

_readers: dict[tuple[type[Any], str], Callable[[Any], Any]] = {}


def _reader(shape: type[Any], encoding: str) -> Callable[[Any], Any]:
    known = _readers.get((shape, encoding))
    if known is None:
        known = _readers[shape, encoding] = _make_reader(shape, encoding)
    return known


def _make_reader(shape: type[Any], encoding: str) -> Callable[[Any], Any]:
    """A function that reads one shape, from source: a line or two per field, as dataclasses make their `__init__`.

    It raises whatever comes for a value that is wrong.
    """
    hints = typing.get_type_hints(shape)
    names: dict[str, Any] = {**_LOCALS, "_shape": shape}
    lines = ["def read(_value):", "    _get = _value.get"]
    fields = dataclasses.fields(shape)
    for field in fields:
        name, kind = f"its_{field.name}", _without_none(hints[field.name])  # a field may be called `type`, or `dict`
        lines.append(f"    {name} = _get({field.name!r})")
        lines.append(f"    if {name} is None: {_absent(field, names)}")
        if kind in _CHECKED and not (kind is bytes and encoding is JSON):
            lines.append(f"    else: {name} = {_CHECKED[kind].format(name)}")
        else:
            names[f"_read_{name}"] = _read_of(kind, encoding)
            lines.append(f"    else: {name} = _read_{name}({name})")
    lines.append(f"    return _shape({', '.join(f'{field.name}=its_{field.name}' for field in fields)})")
    exec("\n".join(lines), names)  # noqa: S102 - made of the names and types of our own classes alone
    return typing.cast("Callable[[Any], Any]", names["read"])


def _absent(field: dataclasses.Field[Any], names: dict[str, Any]) -> str:
    """The statement for a field that is not there."""
    if field.default_factory is not dataclasses.MISSING:
        names[f"_make_{field.name}"] = field.default_factory
        return f"its_{field.name} = _make_{field.name}()"
    if field.default is not dataclasses.MISSING:
        names[f"_default_{field.name}"] = field.default
        return f"its_{field.name} = _default_{field.name}"
    return f"raise KeyError({field.name!r})"


def _read_of(kind: Any, encoding: str) -> Callable[[Any], Any]:
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    if kind is bytes:
        return some_bytes if encoding is MSGPACK else some_base64
    if dataclasses.is_dataclass(kind):
        return _reader(typing.cast("type[Any]", kind), encoding)
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is not tuple:
        return text_or_number
    if arguments[1:] == (Ellipsis,):
        if (read := _read_simple_array(arguments[0], encoding)) is not None:
            return read
        one = _read_of(arguments[0], encoding)
        return lambda items: tuple([one(item) for item in _list(items)])
    parts = [_read_of(part, encoding) for part in arguments]
    return lambda items: tuple([part(item) for part, item in zip(parts, _list(items), strict=True)])


def _read_simple_array(kind: Any, encoding: str) -> Callable[[Any], Any] | None:
    """A function from source, as above, for many values of a primitive type or for many tuples of such."""
    parts = typing.get_args(kind) if typing.get_origin(kind) is tuple else (kind,)
    if not all(part in _CHECKED and not (part is bytes and encoding is JSON) for part in parts):
        return None
    checked = ", ".join(_CHECKED[part].format(f"its_{place}") for place, part in enumerate(parts))
    its = ", ".join(f"its_{place}" for place in range(len(parts)))
    one, each = (checked, "_list(_value)") if parts == (kind,) else (f"({checked})", "map(_list, _list(_value))")
    names: dict[str, Any] = {**_LOCALS, "_list": _list}
    exec(f"def read(_value): return tuple([{one} for {its} in {each}])", names)  # noqa: S102 - as above
    return typing.cast("Callable[[Any], Any]", names["read"])


_PRIMITIVES: Final[dict[Any, Callable[[Any], Any]]] = {
    str: a_str,
    int: an_int,
    float: a_float,
    bool: a_bool,
    dict[str, Any]: a_map,
    dict[str, str]: a_str_map,
}


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise Wrong(f"must be an array (got {name_of(value)})")
    return value


def _without_none(hint: Any) -> Any:
    arguments = [part for part in typing.get_args(hint) if part is not type(None)]
    is_optional = type(None) in typing.get_args(hint)
    return arguments[0] if is_optional and len(arguments) == 1 else hint


def _explain(error: BaseException, path: str) -> tuple[str, str]:
    """The path of the first thing that is wrong, and what is wrong with it."""
    while isinstance(error, ClassValidationError | IterableValidationError):
        error = error.exceptions[0]
        for note in getattr(error, "__notes__", ()):
            if isinstance(note, AttributeValidationNote):
                path = f"{path}.{note.name}" if path else note.name
            elif isinstance(note, _ItemNote):
                path = f"{path}[{note.index}]"
    if isinstance(error, KeyError):
        return path, "is required"
    return path, str(error) if isinstance(error, Wrong) else "is not valid"
