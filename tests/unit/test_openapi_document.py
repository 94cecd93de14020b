"""The OpenAPI document, the table of routes and the sources of the handlers say the same."""

from __future__ import annotations

import json
import sys
import typing
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from source_statuses import statuses_of_source  # the path above

from lakeshore.server.http import HttpError
from lakeshore.server.openapi import document
from lakeshore.server.routes.namespaces import NamespaceAdd, TokenAdd
from lakeshore.server.routes.queue_fields import QueueAdd
from lakeshore.server.routes.stated import COMMON, MEANINGS, UNSAID, OneOf, stated_of, statuses
from lakeshore.server.routes.table import TABLE
from lakeshore.server.schemas import Schemas
from lakeshore.server.shapes import (
    SLUG,
    above,
    closed_shape,
    fields_of,
    limited,
    one_of,
    open_shape,
    printable,
    read_shape,
    whole,
)

DOCUMENT = document(TABLE, "1")
OF_A_BODY = {"POST /v1/daemon/poll": {410}}
"""What a source names as `status` and sends within a 200."""


def named(row: Any) -> str:
    return f"{row.method} {row.pattern}"


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_route_states_itself_with_every_status_of_its_source(row: Any) -> None:
    assert stated_of(row.handler) is not UNSAID
    missing = statuses_of_source(row) - statuses(row) - COMMON - OF_A_BODY.get(named(row), set())
    assert not missing, f"{missing} are not stated: refuses=(…)"
    assert statuses(row) <= set(MEANINGS)


def test_every_route_is_an_operation_and_every_operation_a_route() -> None:
    told = {f"{method.upper()} {path}" for path, of_path in DOCUMENT["paths"].items() for method in of_path}
    assert told == {named(row).replace("...}", "}") for row in TABLE}


def test_an_operation_has_the_statuses_the_tier_and_the_summary_of_its_route() -> None:
    for row in TABLE:
        told = DOCUMENT["paths"][row.pattern.replace("...}", "}")][row.method.lower()]
        assert {int(status) for status in told["responses"]} == statuses(row) | COMMON
        schemes = {name for one in told["security"] for name in one}
        assert schemes >= ({"admin"} if row.tier in ("admin", "named", "plain") else set())
        assert ("bearer" in schemes) == (row.tier in ("named", "plain") and not row.is_admin)
        assert ("X-LS-Signature" in schemes) == ("daemon" in row.scopes and row.tier not in ("open", "signed", "admin"))
    ids = [one["operationId"] for of_path in DOCUMENT["paths"].values() for one in of_path.values()]
    assert len(ids) == len(set(ids))


def test_every_reference_of_the_document_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    for part in ("schemas", "responses", "parameters"):
        wanted = {one.split('"')[0] for one in text.split(f'"#/components/{part}/')[1:]}
        assert wanted <= set(DOCUMENT["components"][part])


def test_every_shape_can_be_read_and_told() -> None:
    for row in TABLE:
        stated = stated_of(row.handler)
        for shape in (*stated.body, *([stated.query] if stated.query else [])):
            if typing.is_typeddict(shape):
                Schemas().of(shape, asked=True)
                try:
                    read_shape({}, shape)
                except HttpError as error:
                    assert error.field in fields_of(shape)


class Inner(TypedDict, total=False):
    size: Annotated[int, whole(1, 9)] | None


@closed_shape
class Closed(TypedDict, total=False):
    only: str


@open_shape
class Outer(TypedDict):
    name: Annotated[str, SLUG]
    kind: NotRequired[Annotated[str, one_of("a", "b")]]
    line: NotRequired[Annotated[str, printable(0, 5)]]
    seconds: NotRequired[Annotated[float, above(0, 10)]]
    items: NotRequired[list[Annotated[str, printable(1, 3)]]]
    inner: NotRequired[Inner]
    closed: NotRequired[Closed]
    any: NotRequired[Annotated[dict[str, Any], limited(1)]]
    flag: NotRequired[bool]


WRONG = [
    ({}, "name"),
    ({"name": None}, "name"),
    ({"name": "Big"}, "name"),
    ({"name": 1}, "name"),
    ({"name": "a", "kind": "c"}, "kind"),
    ({"name": "a", "line": "a\nb"}, "line"),
    ({"name": "a", "line": "\ud800"}, "line"),
    ({"name": "a", "seconds": 0}, "seconds"),
    ({"name": "a", "seconds": True}, "seconds"),
    ({"name": "a", "seconds": float("nan")}, "seconds"),
    ({"name": "a", "items": "xyz"}, "items"),
    ({"name": "a", "items": ["x", ""]}, "items[1]"),
    ({"name": "a", "inner": []}, "inner"),
    ({"name": "a", "inner": {"size": 10}}, "inner.size"),
    ({"name": "a", "closed": {"other": 1}}, "closed.other"),
    ({"name": "a", "any": {"x": float("inf")}}, "any"),
    ({"name": "a", "any": {"x": b"bytes"}}, "any"),
    ({"name": "a", "any": {"x": "y" * 2000}}, "any"),
    ({"name": "a", "flag": "true"}, "flag"),
]


@pytest.mark.parametrize(("value", "field"), WRONG)
def test_a_field_that_is_wrong_is_named_by_its_path(value: dict[str, Any], field: str) -> None:
    with pytest.raises(HttpError) as refused:
        read_shape(value, Outer)
    assert refused.value.field == field
    assert refused.value.error.startswith(f"{field}: ")
    assert refused.value.status == (413 if value.get("any") == {"x": "y" * 2000} else 422)


def test_null_is_absent_unless_the_type_has_it_and_an_open_shape_keeps_what_it_does_not_know() -> None:
    given = {"name": "a", "kind": None, "inner": {"size": None, "more": 1}, "more": {"x": [1]}}
    assert read_shape(given, Outer) == {"name": "a", "inner": {"size": None}, "more": {"x": [1]}}
    told = Schemas()
    assert told.of(Outer, asked=True) == {"$ref": "#/components/schemas/Outer"}
    schema = told.components["Outer"]
    assert schema["required"] == ["name"]
    assert schema["properties"]["seconds"] == {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 10}
    assert told.components["Closed"]["additionalProperties"] is False


@pytest.mark.inventory("S-650", "S-651", "S-652")
def test_the_names_of_the_document_are_those_that_are_taken() -> None:
    found = DOCUMENT["components"]["schemas"]
    assert found["QueueAdd"]["properties"]["name"]["pattern"] == "^[a-z0-9][a-z0-9-]*$"
    assert found["NamespaceAdd"]["properties"]["name"]["pattern"] == "^[a-z0-9][a-z0-9-]{0,63}$"
    assert found["TokenAdd"]["properties"]["name"]["pattern"] == "^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$"
    for shape, right, wrong in ((QueueAdd, "a-1", "A"), (NamespaceAdd, "a" * 64, "a" * 65), (TokenAdd, "A_b-1", "_b")):
        assert read_shape({"name": right}, shape)["name"] == right
        with pytest.raises(HttpError) as refused:
            read_shape({"name": wrong}, shape)
        assert refused.value.field == "name"


def test_two_classes_of_one_name_are_told_apart_at_once() -> None:
    schemas = Schemas()
    schemas.of(Inner, asked=True)
    with pytest.raises(TypeError, match="Inner"):
        schemas.of(Inner, asked=False)


def test_an_answer_of_one_kind_or_another_says_both() -> None:
    stated = stated_of(next(row.handler for row in TABLE if row.pattern == "/v1/producer/submit"))
    assert isinstance(stated.answers[200], OneOf)
