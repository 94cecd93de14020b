"""Where a request may name a resource: every parameter of a path, and every field of a query or a body, placed.

A field is placed by its name (`FIELDS`), or by its route and its name where the name alone says too little (`AT`).
What holds text and names nothing is in `PLAIN`. `unplaced` has the rest, and must stay empty.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from served import new_id
from two_worlds import CALL, FRAME, HOUR, b64, fill, hello, parameters

from lakeshore.server.openapi import document
from lakeshore.server.routes.stated import stated_of
from lakeshore.server.routes.table import TABLE, Row
from lakeshore.server.shapes import is_closed

Has = Mapping[str, Any]
Wrap = Callable[[Any], Any]


def many(value: Any) -> Any:
    return [value]


def secret_in(value: Any) -> Any:
    return {"key": {"$secret": value}}


def keyed(name: str) -> Wrap:
    return lambda value: {name: value}


def pairs(value: Any) -> Any:
    return [[value, 1, True]]


def ends(value: Any) -> Any:
    return [{"exec_id": value, "exit_code": 0}]


FIELDS: dict[str, tuple[str, Wrap | None]] = {
    "invocation_id": ("invocation", None),
    "parent_invocation_id": ("invocation", None),
    "job_id": ("invocation", None),
    "jobId": ("invocation", None),
    "invocation": ("invocation", None),
    "held": ("invocation", pairs),
    "adopted": ("invocation", lambda value: [[value, 1]]),
    "drop": ("invocation", many),
    "worker_id": ("worker", None),
    "worker": ("worker", None),
    "workerId": ("worker", None),
    "machine_id": ("machine", None),
    "session": ("session", None),
    "watch": ("watch", None),
    "public_key": ("public key", None),
    "queue": ("queue", None),
    "queues": ("queue", many),
    "lanes": ("queue", many),
    "provider": ("provider", None),
    "providerRef": ("provider", None),
    "tunnel": ("tunnel", None),
    "storageName": ("storage", None),
    "kwargs": ("secret", secret_in),
    "config": ("secret", secret_in),
    "env": ("secret", secret_in),
    "resources": ("secret", secret_in),
    "creds": ("secret", keyed("$secret")),
    "results": ("exec", ends),
    "remote": ("remote", None),
    "commit": ("commit", None),
    "archiveKey": ("archive", None),
    "ref": ("ref", None),
    "compose_project": ("project", None),
    "tags": ("tag", many),
    "retry_failed": ("nonce", None),
    "nonce": ("nonce", None),
    "run_config": ("key", keyed("key")),
    "module": ("function", None),
    "namespace": ("ns", None),
    "orgId": ("org", None),
    "id": ("order", None),
    "since": ("number", None),
    "before": ("event", None),
    "after": ("event", None),
}
AT: dict[tuple[str, str], tuple[str, Wrap | None] | None] = {
    # Nothing is named by the number of a write, the variables of a command, the key of an object in somebody's bucket,
    # and by what is refused wherever it stands. A storage's config is changed by its creds.
    ("PATCH /v1/namespaces/{ns}/storages/{name}", "config"): None,
    ("POST /v1/namespaces/{ns}/storages/{name}/presign", "key"): None,
    ("POST /v1/producer/queues/{queue}/topics/{name}", "nonce"): None,
    ("POST /v1/namespaces/{ns}/exec", "env"): None,
    ("POST /v1/namespaces/{ns}/workers/{id}/exec", "env"): None,
    ("POST /v1/namespaces/{ns}/queues", "runConfig.queue"): None,
    ("PATCH /v1/namespaces/{ns}/queues/{name}", "runConfig.queue"): None,
    ("POST /v1/producer/await", "add"): ("invocation", many),
    ("GET /v1/namespaces/{ns}/invocations", "idPrefix"): ("invocation", None),
    ("POST /v1/namespaces/{ns}/workers/{id}/queues", "add"): ("queue", many),
    ("POST /v1/namespaces/{ns}/workers/{id}/queues", "remove"): ("queue", many),
    ("POST /v1/namespaces/{ns}/payloads/presign", "key"): ("payload", None),
    ("GET /v1/namespaces/{ns}/queues", "cursor"): ("queue cursor", None),
    ("GET /v1/namespaces/{ns}/tunnels", "cursor"): ("tunnel", None),
    ("GET /v1/namespaces/{ns}/mounts", "cursor"): ("mount", None),
    ("GET /v1/namespaces/{ns}/storages", "cursor"): ("storage", None),
    ("GET /v1/namespaces/{ns}/code-repos", "cursor"): ("repo", None),
    ("GET /v1/namespaces/{ns}/providers", "cursor"): ("provider", "{}/x".format),
    ("GET /v1/admin/invocations", "cursor"): ("number", None),
    **{
        (f"POST /v1/namespaces/{{ns}}/{made}s", "name"): (made, None)
        for made in ("secret", "provider", "mode", "tunnel", "mount", "storage", "schedule", "queue")
    },
    ("POST /v1/admin/namespaces", "name"): ("ns", None),
}
PLAIN = frozenset(
    re.findall(
        r"\w+",
        """
        arch args_blob backend bootstrap_script bucket bytes capacity cloud_tags code_context command content_type cpu
        cron cursor daemon description distro docker endpoint envelope error frames gpu image image_id
        instance_type kernel key kind label labels message name newKey op parts payload payload_inline
        plaintext plaintext_b64 prefix priority_field protocol python qualname region result_blob
        result_inline runner runners runsc s3Options script server sha256 signal signature source started_at startup
        state stderr stdin stdin_b64 stdout stdout_tail target traceback type tz until updated_capabilities url
        version why workdir
        """,
    )
)
"""Text that names no resource of a namespace. `key` is so but for args_ref.key and the like (`REFERENCES`), `cursor`
is what a poll echoes, or a place in time."""
REFERENCES = ("args_ref.key", "result_ref.key", "payload_ref.key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a request names something. `field` is dotted; `kind` is of what is named."""

    where: str
    field: str
    kind: str
    wrap: Wrap | None = None

    def __str__(self) -> str:
        return f"{self.where} {self.field}"


def named(row: Row) -> str:
    return f"{row.method} {row.pattern}"


def placed(row: Row, where: str, field: str) -> Place | None:
    leaf = field.rpartition(".")[2]
    if field.replace("acks[].", "").replace("invocations[].", "") in REFERENCES:
        return Place(where=where, field=field, kind="payload")
    found = AT.get((named(row), field), FIELDS.get(leaf))
    return None if found is None else Place(where=where, field=field, kind=found[0], wrap=found[1])


# --- what the document says


@functools.cache
def described() -> dict[str, Any]:
    return document(TABLE, "0")


def operation(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = described()["paths"][row.pattern.replace("...}", "}")][row.method.lower()]
    return found


def fields_of(row: Row) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(query or body, the field, its schema): bodies with what is within them."""
    for parameter in operation(row).get("parameters", ()):
        if parameter.get("in") == "query":
            yield "query", parameter["name"], parameter["schema"]
    content = operation(row).get("requestBody", {}).get("content", {})
    for said in {json.dumps(one.get("schema", {})): one.get("schema", {}) for one in content.values()}.values():
        yield from (("body", field, schema) for field, schema in _within(said, "", ()))


def _within(schema: dict[str, Any], at: str, through: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    if (name := schema.get("$ref", "").rpartition("/")[2]) and name not in through:
        yield from _within(described()["components"]["schemas"][name], at, (*through, name))
    for word in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(word, ()):
            yield from _within(one, at, through)
    if isinstance(schema.get("items"), dict):
        yield from _within(schema["items"], f"{at}[]", through)
    for field, said in schema.get("properties", {}).items():
        path = f"{at}.{field}" if at else field
        yield path, said
        yield from _within(said, path, through)


def holds_text(schema: dict[str, Any]) -> bool:
    """Whether a value of it may be a text that is free, or hold one that no schema knows."""
    if "enum" in schema or "const" in schema or "$ref" in schema:
        return False
    inner = [one for word in ("anyOf", "oneOf", "allOf") for one in schema.get(word, ())]
    if any(map(holds_text, inner)):
        return True
    types = schema.get("type", [] if inner or "not" in schema else ["string"])
    types = [types] if isinstance(types, str) else types
    if "object" in types and not schema.get("properties"):
        return True
    return "string" in types or ("array" in types and holds_text(schema.get("items", {})))


@functools.cache
def places_of(row: Row) -> list[Place]:
    """Every place of a route."""
    found = [
        Place(where="path", field=name, kind=kind) for name, kind in parameters(row.pattern).items() if name != "ns"
    ]
    seen = {}
    for where, field, _schema in fields_of(row):
        if (place := placed(row, where, field)) is not None:
            seen[str(place)] = place
    return [*found, *seen.values()]


def unplaced() -> list[str]:
    """Fields that may hold a text, and are neither in a table nor said to name nothing."""
    return [
        f"{named(row)} {where} {field}"
        for row in TABLE
        for where, field, schema in fields_of(row)
        if holds_text(schema)
        and placed(row, where, field) is None
        and (named(row), field) not in AT
        and field.rpartition(".")[2] not in PLAIN
    ]


# --- requests


def bodies(row: Row, has: Has) -> Any:
    """A body of this route that is taken, of somebody who has these; everything in it is new."""
    made = BODIES.get(named(row))
    if made is not None:
        return made(has)
    return {} if row.method in ("POST", "PATCH", "PUT") else None


def _fresh(**more: Any) -> Callable[[Has], Any]:
    return lambda _has: {"name": f"n{new_id()}", **more}


def _submit(has: Has) -> Any:
    return {"invocation_id": new_id(), "queue": has["queue"], "args_blob": b64("x")}


def _ack(has: Has) -> Any:
    return {"invocation_id": has["invocation"], "claim": 10**6, "state": "succeeded", "result_blob": b64("forged")}


def _poll(has: Has) -> Any:
    asked = {"worker_id": f"w{new_id()}", "queue": has["queue"], "session": new_id()}
    return {**asked, "n": 1, "timeout_s": 0, "capacity": 0}


def _launch(has: Has) -> Any:
    return {"provider": has["provider"]}


_EVENT = {"worker_id": "w", "kind": "invocation.event", "type": "setup", "id": "none", "payload": {"exit_code": 0}}
_S3 = "s3"
_NS = "/v1/namespaces/{ns}"
BODIES: dict[str, Callable[[Has], Any]] = {
    "POST /v1/producer/submit": _submit,
    "POST /v1/producer/submit/delayed": lambda has: {**_submit(has), "delay_s": HOUR},
    "POST /v1/producer/await": lambda has: {"invocation_id": has["ended"], "timeout_s": 0},
    "POST /v1/producer/queues/{queue}/topics/{name}": lambda _has: {"bytes": b64(b"\x05"), "final": False},
    "POST /v1/daemon/hello": lambda has: hello(f"m{new_id()}", "l", []),
    "POST /v1/daemon/poll": _poll,
    "POST /v1/daemon/ack": _ack,
    "POST /v1/daemon/result-chunk": lambda has: {
        "invocation_id": has["invocation"],
        "claim": 10**6,
        "seq": 0,
        "bytes": b64(FRAME),
    },
    "POST /v1/daemon/log-chunk": lambda has: {
        "invocation_id": has["invocation"],
        "claim": 10**6,
        "attempt": 1,
        "parts": [["stdout", 0, b64("x")]],
    },
    "POST /v1/daemon/event": lambda _has: copy.deepcopy(_EVENT),
    "POST /v1/daemon/keys": lambda has: {"worker_id": has["worker"], "public_key": b64(b"k" * 32)},
    "POST /v1/daemon/exec/results": lambda _has: {"results": []},
    "POST /v1/daemon/exec/{id}/result": lambda _has: {"exit_code": 0},
    "POST /v1/daemon/exec/{id}/chunk": lambda _has: b"raw",
    f"POST {_NS}/workers/{{worker}}/exec/{{id}}/result": lambda _has: {"exit_code": 0},
    f"POST {_NS}/exec": lambda has: {"command": "true", "queue": has["queue"]},
    f"POST {_NS}/workers/{{id}}/exec": lambda _has: {"command": "true"},
    f"POST {_NS}/payloads": lambda _has: b"raw",
    f"POST {_NS}/code-archives": lambda _has: b"raw",
    f"POST {_NS}/payloads/presign": lambda has: {"op": "put", "size": 1, "job_id": new_id(), "kind": "args"},
    f"POST {_NS}/invocations/prune": lambda _has: {"olderThanHours": 0, "dryRun": False, "queue": "nobodys"},
    f"POST {_NS}/tokens": _fresh(),
    f"POST {_NS}/schedules": lambda has: {
        "name": f"n{new_id()}",
        "queue": has["queue"],
        "every": HOUR,
        "envelope": b64(CALL.to_bytes()),
    },
    f"PATCH {_NS}/schedules/{{name}}": lambda _has: {"paused": False},
    f"POST {_NS}/secrets": _fresh(kind="opaque", plaintext="p"),
    f"PUT {_NS}/secrets/{{name}}": lambda _has: {"plaintext": "rotated"},
    f"POST {_NS}/providers": _fresh(launcher="SSH", kwargs={"host": "h"}),
    f"PATCH {_NS}/providers/{{name}}": lambda _has: {"hidden": False},
    f"POST {_NS}/daemons/launch": _launch,
    f"POST {_NS}/modes": _fresh(),
    f"PATCH {_NS}/modes/{{name}}": lambda _has: {"timeout_s": 5},
    f"POST {_NS}/tunnels": _fresh(kind="wireguard", config={"interface": "x"}),
    f"POST {_NS}/mounts": _fresh(kind="s3", config={"bucket": "b"}),
    f"POST {_NS}/storages": lambda _has: {"name": f"n{new_id()}", "kind": _S3, "config": {"bucket": f"b{new_id()}"}},
    f"PATCH {_NS}/storages/{{name}}": lambda _has: {"description": "d"},
    f"POST {_NS}/storages/{{name}}/presign": lambda _has: {"key": "k"},
    f"POST {_NS}/code-repos": lambda has: {
        "remote": f"r{new_id()}",
        "commit": "0" * 40,
        "archiveKey": "a",
        "storageName": has["storage"],
    },
    f"POST {_NS}/queues": _fresh(),
    f"PATCH {_NS}/queues/{{name}}": lambda _has: {"description": "d"},
    f"POST {_NS}/workers/cleanup": lambda _has: {"olderThanHours": 100},
    f"POST {_NS}/workers/{{id}}/setup": lambda _has: {"script": "true"},
    f"POST {_NS}/workers/{{id}}/hibernate": lambda _has: {"until_epoch_s": 4e9},
    f"POST {_NS}/enroll-tokens": lambda _has: {"label": "l"},
    f"POST {_NS}/workers/{{id}}/update": lambda _has: {"url": "https://h/x", "sha256": "0" * 64},
    f"PUT {_NS}/nymph-target": lambda _has: {"version": "1"},
    "POST /v1/admin/nymph-releases": lambda _has: b"raw",
    "POST /v1/admin/namespaces": _fresh(),
    "PATCH /v1/admin/namespaces/{slug}": lambda _has: {"orgId": None},
}
ITEMS: dict[str, Callable[[Has], Any]] = {
    "acks": _ack,
    "chunks": BODIES["POST /v1/daemon/result-chunk"],
    "events": BODIES["POST /v1/daemon/event"],
    "invocations": _submit,
    "setup_commands": lambda _has: {"script": "true"},
}
BESIDE: dict[str, dict[str, Any]] = {
    "args_ref.key": {"args_ref.size": 9, "args_blob": None},
    "result_ref.key": {"result_ref.size": 9, "result_blob": None},
    "payload_ref.key": {"payload_ref.size": 9, "payload_ref.sha256": "0" * 64},
    "module": {"function.qualname": "f"},
    "worker_id": {"queue": None},
    "adopted": {"session": "s"},
    "key": {"op": "get"},
}
"""What must stand beside a field; null takes away."""
AT_ONCE = ("timeout_s=0", "hold_s=0", "wait_s=0")
REQUIRED = {f"POST {_NS}/code-archives": {"remote": new_id, "commit": lambda: "0" * 40}}
"""What a query must say."""


def request(row: Row, own: Has, other: Has, asked: list[Place], ns: str) -> tuple[str, Any, list[str]]:
    """(the path with its query, the body, the texts that were put in): all of `own`, but for what is asked for.

    `claim` is the other's wherever the other's call is named.
    """
    taken = [str(other[place.kind]) for place in asked]
    fields = {**own, "invocation": own["ended"]}  # which has no more to tell, and nothing to lose
    fields |= {place.kind: other[place.kind] for place in asked if place.where == "path"}
    path = fill(row.pattern, {**fields, "ns": ns})
    query = [] if is_closed(stated_of(row.handler).query) else [*AT_ONCE]
    query += [f"{place.field}={_text(place, other)}" for place in asked if place.where == "query"]
    said = {place.field for place in asked if place.where == "query"}
    query += [f"{name}={text()}" for name, text in REQUIRED.get(named(row), {}).items() if name not in said]
    path += "?" + "&".join(query)
    body = bodies(row, own)
    if isinstance(body, dict):
        for place in asked:
            if place.where == "body":
                value = other[place.kind]
                _put(body, place.field, value if place.wrap is None else place.wrap(value), own, other)
    return path, body, taken


def _text(place: Place, other: Has) -> str:
    value = other[place.kind]
    return str(value if place.wrap is None or place.wrap is many else place.wrap(value))


def _put(body: dict[str, Any], field: str, value: Any, own: Has, other: Has) -> None:
    at, _, leaf = field.rpartition(".")
    twice = ".".join(field.split(".")[-2:])
    for beside, said in (BESIDE.get(twice) or BESIDE.get(leaf) or {}).items():
        base = at.rpartition(".")[0] if twice in BESIDE or leaf == "module" else at
        if leaf != "worker_id" or "command" in body:
            _set(body, f"{base}.{beside}".lstrip("."), said, own)
    _set(body, field, value, own)
    if leaf == "invocation_id" and "claim" in (holder := _holder(body, field, own)):
        holder["claim"] = other["claim"]


def _holder(body: dict[str, Any], field: str, own: Has) -> dict[str, Any]:
    holder = body
    for step in field.split(".")[:-1]:
        name = step.removesuffix("[]")
        if step.endswith("[]"):
            items = holder.setdefault(name, [])
            if not items:
                items.append(ITEMS[name](own))
            holder = items[0]
        else:
            holder = holder.setdefault(name, {})
    return holder


def _set(body: dict[str, Any], field: str, value: Any, own: Has) -> None:
    holder, leaf = _holder(body, field, own), field.rpartition(".")[2]
    if value is None:
        holder.pop(leaf, None)
    else:
        holder[leaf] = value
