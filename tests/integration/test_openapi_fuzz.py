"""The OpenAPI document, held against a real server: what it allows is sent, and what it forbids.

Each route gets a few requests of one kind, by chance (SCHEMA_SEED); LONG=1 sends many, of both.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import hypothesis
import msgpack
import pytest

pytest.importorskip("schemathesis", reason="schemathesis is not installed: scripts/test --prepare-only installs it")

import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import ADMIN, JSON, MSGPACK, Served, new_id, running

from lakeshore.server.render import plain

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "60" if os.environ.get("LONG") else "2"))
NS = "fuzzed"
HEADERS = {"Authorization": f"Bearer {ADMIN}", "X-LS-Namespace": NS}
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
BRIEF = {"wait_s": 0.01, "hold_s": 0.01, "timeout_s": 0.01}
"""A server may hold an answer for so long; nothing here has to be waited for."""
ENDLESS = {"GET /v1/producer/invocations/{id}/result/stream", "GET /v1/namespaces/{ns}/exec/{id}/log/stream"}
"""Streams of what is there end when it ends: they are asked for what is not there."""
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
NOT_BUILT = 501


@schemathesis.serializer(MSGPACK)
def packed(_ctx: Any, value: Any) -> bytes:
    return bytes(msgpack.packb(value, default=str))


@schemathesis.deserializer(MSGPACK)
def unpacked(_ctx: Any, response: Any) -> Any:
    return plain(msgpack.unpackb(response.content, strict_map_key=False))


def built(ctx: Any, response: Any, case: Any) -> None:
    """No 5xx but the documented 501."""
    if response.status_code != NOT_BUILT:
        not_a_server_error(ctx, response, case)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with something of every kind, so that what is fuzzed is found."""
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN}
    with running(tmp_path_factory.mktemp("fuzzed"), env=env, token=ADMIN) as served:
        served.post("/v1/admin/namespaces", {"name": NS}, encoding=JSON)
        furnish(served)
        calls(served)
        yield served


def furnish(served: Served) -> None:
    """One of each, under the name `one`; what is there already stays."""
    for path, body in FURNITURE.items():
        assert served.post(f"/v1/namespaces/{NS}/{path}", body, encoding=JSON).status in (201, 409), path


def calls(served: Served) -> None:
    """A call and a worker that are there."""
    item = {"invocation_id": "one", "queue": "one", "function": {"module": "m", "qualname": "f"}, "args_blob": b"\xc0"}
    assert served.post("/v1/producer/submit", item, X_LS_Namespace=NS).status == 200
    hello: dict[str, Any] = {"machine_id": "one", "label": "one", "tags": [], "capabilities": {"runners": ["process"]}}
    hello["versions"] = {"daemon": "1", "protocol": "1"}
    assert served.post("/v1/daemon/hello", hello, X_LS_Namespace=NS).status == 200


FURNITURE: dict[str, dict[str, Any]] = {
    "queues": {"name": "one"},
    "modes": {"name": "one"},
    "secrets": {"name": "one", "kind": "opaque", "plaintext": "x"},
    "providers": {"name": "one", "launcher": "SSH", "kwargs": {"host": "h"}},
}


@pytest.fixture(scope="module")
def schema(api: Served) -> Any:
    found = schemathesis.openapi.from_dict(api.get("/v1/openapi.json").body)
    found.config.update(base_url=api.url)
    return found


def operations(schema: Any) -> list[Any]:
    return [found.ok() for found in schema.get_all_operations()]


def test_the_document_is_openapi_3_1(schema: Any) -> None:
    schema.validate()
    assert schema.raw_schema["openapi"] == "3.1.0"


def test_no_request_makes_an_error_of_the_server_or_an_answer_that_is_not_documented(api: Served, schema: Any) -> None:
    seed = os.environ.get("SCHEMA_SEED", new_id())
    chance, session = random.Random(seed), requests.Session()
    failures: list[str] = []
    for operation in operations(schema):
        for mode in MODES if os.environ.get("LONG") else [chance.choice(MODES)]:
            try:
                send(api, schema, operation, mode, session, chance)
            except (Exception, BaseExceptionGroup) as error:  # what schemathesis found is such a group
                failures.append(f"{operation.method.upper()} {operation.path} ({mode.value}): {told(error)}")
    assert failures == [], f"SCHEMA_SEED={seed}\n" + "\n\n".join(failures)


def told(error: BaseException) -> str:
    inner = getattr(error, "exceptions", ())
    return "\n".join([str(error), *(told(one) for one in inner)])


def send(api: Served, schema: Any, operation: Any, mode: Any, session: Any, chance: random.Random) -> None:
    label = f"{operation.method.upper()} {operation.path}"

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
        report_multiple_bugs=False,
    )
    @hypothesis.seed(chance.getrandbits(64))
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        found = chance.random() < 0.7
        for name in case.path_parameters or {}:
            if name == "ns" and chance.random() < 0.9:
                case.path_parameters[name] = NS
            elif found and label not in ENDLESS:
                case.path_parameters[name] = "one"
        if case.headers and chance.random() < 0.9:  # a part of a daemon's signature is a 401, whatever else is asked
            for name in [name for name in case.headers if name.lower().startswith("x-ls-")]:
                del case.headers[name]
        aim(case, label)
        response = case.call(
            session=session, headers={"Authorization": f"Bearer {ADMIN}", "X-LS-Namespace": NS}, timeout=30
        )
        case.validate_response(response, checks=(built, *CHECKS[1:]))
        if response.status_code < 300 and operation.method == "delete":
            furnish(api)

    try:
        one()
    except hypothesis.errors.Unsatisfiable:  # nothing can be wrong with a request that has no fields
        assert mode is schemathesis.GenerationMode.NEGATIVE, label


def aim(case: Any, label: str) -> None:
    """Nothing is held for long."""
    if "stream" in label or "timeout_s" in (case.query or {}):
        case.query = {**(case.query or {}), "timeout_s": "0"}
    for name in ("wait_s", "hold_s"):
        if name in (case.query or {}) or "changes" in label:
            case.query = {**(case.query or {}), name: "0"}
    if isinstance(case.body, dict):
        for name, brief in BRIEF.items():
            if name in case.body or label.endswith(("/await", "/poll")):
                case.body[name] = brief
