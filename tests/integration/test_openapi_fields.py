"""Every field of every body, with values that no encoding, no store and no answer could carry."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from served import ADMIN, JSON, MSGPACK, Served, running

from lakeshore.server.routes.stated import COMMON, Media, stated_of, statuses
from lakeshore.server.routes.table import TABLE
from lakeshore.server.shapes import fields_of

NS = "fields"
GOOD = {
    "name": "fresh",
    "label": "fresh",
    "kind": "opaque",
    "plaintext": "x",
    "launcher": "SSH",
    "machine_id": "m",
    "worker_id": "w",
    "tags": [],
    "capabilities": {"runners": ["process"]},
    "versions": {"daemon": "1", "protocol": "1"},
    "invocation_id": "i",
    "queue": "q",
    "function": {"module": "m", "qualname": "f"},
    "args_blob": "wA==",
    "command": "true",
    "paused": True,
    "olderThanHours": 1,
    "script": "x",
}
"""Something that each field takes, so that the one that is wrong is reached."""
DEEP: Any = "x"
for _ in range(200):
    DEEP = [DEEP]
IN_JSON: list[Any] = [
    *("\ud800", "\0", "", 2**70, True, [], DEEP, float("nan")),
    *({"a": "\ud800"}, {"\ud800": 1}, {"a": 2**70}, {"a": float("nan")}, {"$secret": "none"}),
]
IN_MSGPACK: list[Any] = [b"\xff", {1: 2}, {"a": b"\xff"}, {"a": msgpack.ExtType(5, b"x")}, float("inf")]
HELD = ("/await", "/poll")
"""They hold their answers."""
HOLDING = ("wait_s", "hold_s")
ROWS = [row for row in TABLE if any(not isinstance(one, Media) for one in stated_of(row.handler).body)]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("fields"), env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN) as served:
        assert served.post("/v1/admin/namespaces", {"name": NS}, encoding=JSON).status == 201
        yield served


def names_of(shape: Any) -> list[str]:
    return list(fields_of(shape)) if typing.is_typeddict(shape) else [part.name for part in dataclasses.fields(shape)]


def requests_of(row: Any) -> Iterator[tuple[str, Any, str, bytes]]:
    for shape in stated_of(row.handler).body:
        names = [] if isinstance(shape, Media) else names_of(shape)
        base = {name: GOOD[name] for name in names if name in GOOD and (name != "kind" or "plaintext" in names)}
        for name in (*names, "something_else"):
            if name in HOLDING:
                continue
            for value in IN_JSON:
                yield name, value, JSON, json.dumps({**base, name: value}).encode()
            for value in IN_MSGPACK:
                yield name, value, MSGPACK, msgpack.packb({**base, name: value})


@pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.pattern.endswith(HELD)], ids=lambda row: f"{row.method} {row.pattern}"
)
def test_a_value_that_nothing_could_carry_is_stored_or_refused_by_its_field(api: Served, row: Any) -> None:
    path = re.sub(r"\{\w+\}", "one", row.pattern.replace("{ns}", NS))
    wrong = []
    for name, value, encoding, body in requests_of(row):
        headers = {"Content-Type": encoding, "Accept": JSON, "X-LS-Namespace": NS}
        answer = api.raw(row.method, path, body, headers)
        unnamed = encoding == JSON and answer.status in (400, 413, 422) and not answer.body.get("field")
        if (answer.status >= 500 and answer.status != 501) or answer.status not in statuses(row) | COMMON or unnamed:
            wrong.append(f"{name}={value!r:.60} ({encoding}): {answer.status} {answer.raw!r:.200}")
    assert wrong == []


def test_what_was_stored_is_answered_in_both_encodings(api: Served) -> None:
    for place in ("queues", "modes", "providers", "secrets", "workers"):
        for encoding in (JSON, MSGPACK):
            assert api.get(f"/v1/namespaces/{NS}/{place}", Accept=encoding).status == 200
