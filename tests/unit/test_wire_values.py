"""`value`: equal and hashed by its fields, with no room for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeshore.wire.values import value


@value
class Point:
    x: int
    y: int = 0


def test_a_value_is_what_its_fields_are() -> None:
    assert Point(x=1) == Point(x=1, y=0) != Point(x=1, y=2)
    assert len({Point(x=1), Point(x=1), replace(Point(x=1), y=2)}) == 2
    assert repr(Point(x=1)) == "Point(x=1, y=0)"
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]  # the call is the test
    with pytest.raises(AttributeError):
        Point(x=1).z = 3  # type: ignore[attr-defined]  # the assignment is the test
