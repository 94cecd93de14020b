"""What is short and comes again and again is read and rendered on a shorter way, and nobody can tell."""

from __future__ import annotations

import json
import math
from typing import Any, NotRequired, TypedDict

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.server.http import HttpError
from lakeshore.server.http.messages import Head, Request
from lakeshore.server.render import as_json, plain
from lakeshore.server.shapes import read_query


class Page(TypedDict):
    """A query of every kind."""

    wait_s: NotRequired[float]
    limit: NotRequired[int]
    all: NotRequired[bool]
    state: NotRequired[list[str]]


def asked(query: str) -> Request:
    head = Head()
    head.method, head.target, head.path, head.query_string = "GET", f"/x?{query}", "/x", query
    head.headers, head.memo = {}, {}
    return Request(head, None, connection=None, channel=None, max_body=0)  # type: ignore[arg-type]


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=3))
)
KEYS = st.text(max_size=3) | st.integers(0, 9) | st.binary(max_size=3)


@given(st.dictionaries(KEYS, LEAVES | st.lists(LEAVES, max_size=2), max_size=4))
def test_a_map_is_rendered_as_its_plain_values_are(value: dict[Any, Any]) -> None:
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    assert as_json(value) == text.encode("utf-8", "replace")


def test_what_json_cannot_say_is_said_as_ever() -> None:
    assert as_json({"a": math.nan, "b": b"\0"}) == b'{"a":null,"b":"AA=="}'
    assert as_json({1: "x", None: 2}) == b'{"1":"x","None":2}'
    assert as_json({"x": "\ud800"}) == b'{"x":"?"}'


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("wait_s=20", {"wait_s": 20.0}),
        ("limit=3&all=true", {"limit": 3, "all": True}),
        ("state=a,b&state=c", {"state": ["a", "b", "c"]}),
        ("", {}),
    ],
)
def test_a_query_is_read_the_same_each_time_and_belongs_to_its_request(query: str, found: dict[str, Any]) -> None:
    for _ in range(3):
        given = read_query(asked(query), Page)
        assert given == found
        for value in given.values():
            if isinstance(value, list):
                value.append("spoiled")
        given["spoiled"] = True


def test_a_query_that_is_refused_is_refused_each_time_with_the_status_of_its_route() -> None:
    for status in (422, 400, 422):
        with pytest.raises(HttpError, match="limit") as refused:
            read_query(asked("limit=many"), Page, status=status)
        assert refused.value.status == status
