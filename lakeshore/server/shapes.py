"""What a body or a query may hold, said once: a `TypedDict` whose fields are types, `Annotated` with rules.

The same class is read here and told as JSON Schema by `schemas.py`, so what is documented is what is checked.

    Rules       a rule judges a value alone and says what is allowed; `Annotated[list[str], …]` is read first as it is
    absent      `NotRequired`. Null is absent too, but where the type says `| None`: there it is null ("clear this")
    unknown     a key that the class does not name is left out; `open_shape` classes keep it, `closed_shape` ones refuse
    refusals    HttpError with the path of the field (`admission.max_depth`), in the status of the route (422 by custom)
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypeAlias, TypeVar

from ..wire.errors import NameError_
from ..wire.names import check_invocation_id, check_label, check_namespace, check_queue, check_slug, check_subscription
from .http import HttpError, Request
from .primitives import Wrong, a_bool, a_float, a_map, a_str, an_int, name_of, size_as_json

T = TypeVar("T")
Read = Callable[[Any, str], Any]
"""(value, its path) -> the value as it is used. `_At`."""

_known_queries: dict[tuple[Hashable, str], dict[str, Any]] = {}
"""Short ones come again and again (`wait_s=20`), and to take one apart costs as much as to answer it."""
_SHORT_QUERY: Final = 64
_MOST_QUERIES: Final = 256
_TRUE: Final = ("true", "1")
_FALSE: Final = ("false", "0", "")
_OPEN: Final[set[type[Any]]] = set()
_CLOSED: Final[set[type[Any]]] = set()


class _At(Exception):
    """What is wrong with the field at `path`; `status` where it is another than the route's."""

    def __init__(self, path: str, why: str, status: int | None = None, hint: str | None = None) -> None:
        super().__init__(why)
        self.path, self.why, self.status, self.hint = path, why, status, hint


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """`says` are keywords of JSON Schema; `check(value)` gives the value as it is used, or raises Wrong."""

    says: Mapping[str, Any]
    check: Callable[[Any], Any]


def open_shape(shape: type[T]) -> type[T]:
    """Class decorator: keys that the class does not name are kept as they are."""
    _OPEN.add(shape)
    return shape


def closed_shape(shape: type[T]) -> type[T]:
    """Class decorator: a key that the class does not name is refused."""
    _CLOSED.add(shape)
    return shape


def is_open(shape: Any) -> bool:
    """Whether `open_shape` was said of it."""
    return shape in _OPEN


def is_closed(shape: Any) -> bool:
    """Whether `closed_shape` was said of it."""
    return shape in _CLOSED


# --- rules


def one_of(*words: str) -> Rule:
    """One of these strings."""

    def check(value: Any) -> str:
        if type(value) is not str or value not in words:
            raise Wrong(f"must be one of {', '.join(words)}")
        return value

    return Rule({"enum": list(words)}, check)


def whole(least: int, most: int) -> Rule:
    """An integer in these bounds, both included."""

    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Wrong(f"must be an integer from {least} to {most}")
        return value

    return Rule({"minimum": least, "maximum": most}, check)


def above(least: float, most: float, unit: str = "a number") -> Rule:
    """A number above `least` and at most `most`."""

    def check(value: Any) -> float:
        if type(value) not in (int, float) or not least < value <= most:
            raise Wrong(f"must be {unit} above {least:g}, at most {most:.12g}")
        return float(value)

    return Rule({"exclusiveMinimum": least, "maximum": most}, check)


def between(least: float, most: float, unit: str = "a number") -> Rule:
    """A number in these bounds, both included."""

    def check(value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most:
            raise Wrong(f"must be {unit} from {least:g} to {most:.12g}")
        return float(value)

    return Rule({"minimum": least, "maximum": most}, check)


def waiting(longest_s: float) -> Rule:
    """Seconds to wait: a number; what is more than may be waited is cut."""

    def check(value: Any) -> float:
        if type(value) not in (int, float) or math.isnan(value):
            raise Wrong("must be a number of seconds")
        return min(max(float(value), 0.0), longest_s)

    return Rule({}, check)


def printable(least: int, most: int) -> Rule:
    """Text of so many characters, all of them printable."""

    def check(value: Any) -> str:
        if type(value) is not str or not least <= len(value) <= most or not value.isprintable():
            raise Wrong(f"must be {least} to {most} printable characters" if least else _at_most(most))
        return value

    return Rule({"minLength": least, "maxLength": most, "format": "printable"}, check)


def _at_most(most: int) -> str:
    return f"must be one line of at most {most} printable characters"


def length(least: int, most: int) -> Rule:
    """Text of so many characters."""

    def check(value: Any) -> str:
        if type(value) is not str or not least <= len(value) <= most:
            raise Wrong(f"must be {least} to {most} characters")
        return value

    return Rule({"minLength": least, "maxLength": most}, check)


def longest(most: int) -> Rule:
    """So many characters or items at most."""

    def check(value: Any) -> Any:
        if type(value) in (str, list) and len(value) > most:
            raise Wrong(f"must have at most {most} {'characters' if type(value) is str else 'items'}")
        return value

    return Rule({"maxLength": most, "maxItems": most}, check)


def like(pattern: str, says: str) -> Rule:
    """Text that the whole pattern fits; it is one that JSON Schema reads alike."""
    compiled = re.compile(pattern)

    def check(value: Any) -> str:
        if type(value) is not str or not compiled.fullmatch(value):
            raise Wrong(says)
        return value

    return Rule({"pattern": f"^(?:{pattern})$"}, check)


def named(check_name: Callable[[object, str], str], says: Mapping[str, Any]) -> Rule:
    """A name that `wire/names` knows."""

    def check(value: Any) -> str:
        try:
            return check_name(value, "")
        except NameError_ as error:
            raise Wrong(str(error).removeprefix(": ")) from error

    return Rule(says, check)


def limited(kib: int) -> Rule:
    """A tree that both encodings can say, in at most so much JSON: 413 beyond it."""

    def check(value: Any) -> Any:
        if size_as_json(value) > kib * 1024:
            raise Wrong(f"must have at most {kib} KiB", status=413)
        return value

    return Rule({}, check)


def checked(check: Callable[[Any], Any], **says: Any) -> Rule:
    """Any other rule: `check` raises Wrong."""
    return Rule(says, check)


def refused(why: str, *, hint: str | None = None) -> Rule:
    """A field that this route does not take, though another does."""

    def check(value: Any) -> Any:
        raise Wrong(why, hint=hint)

    return Rule({"not": {}}, check)


Time: TypeAlias = Annotated[str, checked(a_str, format="date-time")]
"""An instant in ISO 8601."""
SLUG: Final = named(check_slug, {"pattern": "^[a-z0-9][a-z0-9-]*$"})
NAMESPACE: Final = named(check_namespace, {"pattern": "^[a-z0-9][a-z0-9-]{0,63}$"})
LABEL: Final = named(check_label, {"pattern": "^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$"})
SUBSCRIPTION: Final = named(check_subscription, {"minLength": 1, "maxLength": 200, "format": "subscription"})
INVOCATION: Final = named(check_invocation_id, {"pattern": "^[A-Za-z0-9_-]{1,64}$"})
QUEUE: Final = named(check_queue, {"minLength": 1, "maxLength": 200, "format": "queue"})


# --- reading


def read_shape(
    value: Any, shape: Hashable, *, at: str = "", status: int = 422, apart: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """`value` as a `shape`, a TypedDict. HttpError `status` (a field's of `apart`, a rule's own), naming it."""
    try:
        return typing.cast("dict[str, Any]", _reader(shape)(value, at))
    except _At as error:
        raise _refusal(error, status, apart or {}) from error


def read_query(
    request: Request, shape: Hashable, *, status: int = 422, apart: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A request's query as a `shape`: numbers and truth values from their text, lists from repeated names and commas.

    HttpError as above; an item of a list is named as its field.
    """
    known = _known_queries.get((shape, request.query_string))
    if known is not None:
        return dict(known)
    query = request.query
    try:
        kinds = {name: field.kind for name, field in fields_of(shape).items() if name in query}
        given: dict[str, Any] = dict(query) if is_closed(shape) else {}
        given |= {
            name: [part for said in request.query_values(name) for part in said.split(",") if part]
            if typing.get_origin(kind) is list
            else _from_text(query[name], kind, name)
            for name, kind in kinds.items()
        }
        found = typing.cast("dict[str, Any]", _reader(shape)(given, ""))
    except _At as error:
        error.path = error.path.partition("[")[0]
        raise _refusal(error, status, apart or {}) from error
    if len(request.query_string) <= _SHORT_QUERY and not any(isinstance(value, list) for value in found.values()):
        if len(_known_queries) >= _MOST_QUERIES:
            _known_queries.clear()
        _known_queries[shape, request.query_string] = dict(found)
    return found


def _refusal(error: _At, status: int, apart: Mapping[str, int]) -> HttpError:
    said = f"{error.path}: {error.why}" if error.path else error.why
    top = re.split(r"[.[]", error.path, maxsplit=1)[0]
    return HttpError(error.status or apart.get(top, status), said, field=error.path or None, hint=error.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a shape: its type without NotRequired."""

    kind: Any
    required: bool
    nullable: bool


@cache
def fields_of(shape: Any) -> Mapping[str, Field]:
    """The fields of a TypedDict, as they are written."""
    found = {}
    for name, hint in typing.get_type_hints(shape, include_extras=True).items():
        origin, required = typing.get_origin(hint), name in shape.__required_keys__  # by the class that says it
        if origin is NotRequired or origin is Required:
            required, hint = origin is Required, typing.get_args(hint)[0]
        found[name] = Field(kind=hint, required=required, nullable=is_nullable(hint))
    return found


def is_nullable(hint: Any) -> bool:
    """Whether a type has None among its values."""
    bare, _rules = unannotated(hint)
    return bare is Any or bare is type(None) or type(None) in _choices(bare)


def unannotated(hint: Any) -> tuple[Any, tuple[Rule, ...]]:
    """A type, and the rules that it is annotated with."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint, ()
    bare, *rules = typing.get_args(hint)
    return bare, tuple(rule for rule in rules if isinstance(rule, Rule))


def _choices(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else ()


def without_none(hint: Any) -> Any:
    """A type without its None: `X` of `X | None`."""
    left = [choice for choice in _choices(hint) if choice is not type(None)]
    return left[0] if len(left) == 1 else hint


def _from_text(text: str, hint: Any, name: str) -> Any:
    bare = without_none(unannotated(without_none(hint))[0])
    if bare is bool:
        said = text.lower()
        if said not in (*_TRUE, *_FALSE):
            raise _At(name, "must be true or false")
        return said in _TRUE
    if bare in (int, float):
        try:
            return bare(text)
        except ValueError:
            return text  # the type, or the rule, says what is wrong with it
    return text


@cache
def _reader(hint: Any) -> Read:
    bare, rules = unannotated(hint)
    if rules:
        return _with_rules(bare, rules)
    if typing.is_typeddict(bare):
        return _of_shape(bare)
    if bare in _PRIMITIVES:
        return _leaf(_PRIMITIVES[bare])
    if bare is Any:
        return lambda value, _at: value
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if choices := _choices(bare):
        if type(None) not in choices or len(choices) != 2:
            raise TypeError(f"{bare}: of unions only X | None is read")
        inner = _reader(without_none(bare))
        return lambda value, at: None if value is None else inner(value, at)
    if origin is Literal:
        return _leaf(one_of(*arguments).check)
    if origin is list:
        item = _reader(arguments[0])

        def array(value: Any, at: str) -> list[Any]:
            if type(value) is not list:
                raise _At(at, f"must be an array (got {name_of(value)})")
            return [item(one, f"{at}[{index}]") for index, one in enumerate(value)]

        return array
    if origin is dict and arguments[0] is str:
        inner = _reader(arguments[1])

        def mapping(value: Any, at: str) -> dict[str, Any]:
            read = _leaf(a_map)(value, at)
            return {a_key(key, at): inner(one, f"{at}.{key}") for key, one in read.items()}

        return mapping
    raise TypeError(f"{bare}: no such type is read")


def a_key(key: str, at: str) -> str:
    """A key that can be stored."""
    return typing.cast("str", _leaf(a_str)(key, at))


_PRIMITIVES: Final[dict[Any, Callable[[Any], Any]]] = {str: a_str, int: an_int, float: a_float, bool: a_bool}


def _leaf(check: Callable[[Any], Any]) -> Read:
    def read(value: Any, at: str) -> Any:
        try:
            return check(value)
        except Wrong as error:
            raise _At(f"{at}{error.below}", str(error), error.status, error.hint) from error

    return read


def _with_rules(bare: Any, rules: tuple[Rule, ...]) -> Read:
    if (inner := without_none(bare)) is not bare:
        told = _with_rules(inner, rules)
        return lambda value, at: None if value is None else told(value, at)
    steps = [_leaf(rule.check) for rule in rules]
    # A rule says best what is wrong with a single value; what has parts is read first.
    steps.insert(len(steps) if bare in _PRIMITIVES else 0, _reader(bare))

    def read(value: Any, at: str) -> Any:
        for step in steps:
            value = step(value, at)
        return value

    return read


def _of_shape(shape: Any) -> Read:
    fields = fields_of(shape)
    readers = {name: _reader(field.kind) for name, field in fields.items()}

    def read(value: Any, at: str) -> dict[str, Any]:
        given = _leaf(a_map)(value, at)
        below = f"{at}." if at else ""
        if is_closed(shape):
            for name in given:
                if name not in fields:
                    raise _At(f"{below}{name:.80}", "is no field of it")
        found = {name: said for name, said in given.items() if name not in fields} if is_open(shape) else {}
        for name, field in fields.items():
            said = given.get(name)
            if said is None and not (field.nullable and name in given):
                if field.required:
                    raise _At(f"{below}{name}", "is required")
                continue
            found[name] = readers[name](said, f"{below}{name}")
        return found

    return read


def is_finite(value: Any) -> bool:
    """Whether it is a number that JSON has a word for."""
    return type(value) in (int, float) and math.isfinite(value)


def is_shape(hint: Any) -> bool:
    """Whether a type has named fields: a TypedDict, or one of the wire's dataclasses."""
    return typing.is_typeddict(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))
