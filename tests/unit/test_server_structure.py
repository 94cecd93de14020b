"""What is made to read a shape reads it, whatever its fields are called."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lakeshore.server import structure as made
from lakeshore.server.http import HttpError
from lakeshore.wire import messages
from lakeshore.wire.messages import JSON, MSGPACK
from lakeshore.wire.values import value

SHAPES = [shape for shape in vars(messages).values() if dataclasses.is_dataclass(shape) and isinstance(shape, type)]


@value
class Names:
    """Fields that are called as the words of the reader are."""

    type: str | None = None
    read: float = 0.0
    names: tuple[int, ...] = ()
    field: dict[str, Any] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize("encoding", [MSGPACK, JSON])
def test_a_field_may_be_called_as_a_builtin_is(encoding: str) -> None:
    read = made._reader(Names, encoding)({"type": "t", "read": 1.5, "names": [1, 2], "field": {"a": 1}})
    assert read == Names(type="t", read=1.5, names=(1, 2), field={"a": 1})
    assert made._reader(Names, encoding)({}) == Names()
    with pytest.raises(HttpError) as refused:
        made.structure({"type": 3}, Names, encoding)
    assert refused.value.field == "type"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_shape_of_the_protocol_is_read_without_the_slow_way(shape: type[Any]) -> None:
    samples = {"str": "x", "str | None": "x", "int": 1, "int | None": 1, "Blob": b"x", "Blob | None": b"x"}
    given = {field.name: samples[str(field.type)] for field in dataclasses.fields(shape) if str(field.type) in samples}
    required = {field.name for field in dataclasses.fields(shape) if field.default is field.default_factory}
    if required <= given.keys():
        made._reader(shape, MSGPACK)(given)


@value
class Arrays:
    """Arrays of primitives and of tuples of them."""

    held: tuple[messages.Held, ...] = ()
    ids: tuple[str, ...] = ()
    parts: tuple[tuple[str, bytes], ...] = ()


@pytest.mark.parametrize("encoding", [MSGPACK, JSON])
@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"held": [["a", 1, True], ["é", 2**63 - 1, False]], "ids": ["x"]}, None),
        ({"held": [], "ids": [], "parts": []}, None),
        ({"held": ["abc"]}, "held[0]"),
        ({"held": [["a", 1, True], ["a", 1]]}, "held[1]"),
        ({"held": [["a", 1, True, 1]]}, "held[0]"),
        ({"held": [["a", True, True]]}, "held[0]"),
        ({"held": [["a", 2**64, True]]}, "held[0]"),
        ({"held": [["a", 1, 1]]}, "held[0]"),
        ({"held": [["\ud800", 1, True]]}, "held[0]"),
        ({"held": {"a": 1}}, "held"),
        ({"ids": "ab"}, "ids"),
        ({"ids": ["a", None]}, "ids[1]"),
        ({"parts": [["a", 1]]}, "parts[0]"),
    ],
)
def test_an_array_has_what_it_says_or_the_element_is_named(
    given: dict[str, Any], where: str | None, encoding: str
) -> None:
    if where is None:
        read = made._reader(Arrays, encoding)(given)
        assert [list(map(list, read.held)), list(read.ids)] == [given["held"], given["ids"]]
        return
    with pytest.raises(HttpError) as refused:
        made.structure(given, Arrays, encoding)
    assert refused.value.field == where
