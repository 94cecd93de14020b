"""What another version of a peer would say: bodies with more in them than anybody here knows, or with less.

A newer one adds keys to any map, and commands of a kind that is new. An older one leaves out what it need not say.
"""

from __future__ import annotations

from typing import Any

from lakeshore.wire.messages import FunctionRef, PollRequest

NEW = "of_a_later_version"
_OPEN = frozenset({"run_config", "env", "labels", "payload"})
"""Maps of the user's own, which no version adds to."""
NEW_COMMAND = {"id": f"cmd-{NEW}", "kind": NEW, "body": {NEW: [1, {"a": None}]}}
_NEEDED = {
    "/v1/daemon/hello": frozenset({"worker_id", "reject", "session_token", "session_ttl_s", "config", "cursor"}),
    "/v1/daemon/poll": frozenset({"commands", "acks", "lost", "lease_s", "status"}),
}
"""What answers had in the first version; every answer that is not named here is what it was."""
_FIRST_BODY = frozenset(
    {"invocation_id", "claim", "attempt", "first_seq", "queue", "function", "run_config", "args_blob", "payload_ref"}
)


def more(value: Any, *, at: str = "") -> Any:
    """The same with a new key in every map."""
    if isinstance(value, dict):
        if at in _OPEN:
            return value
        return {NEW: {"list": [1, None], "map": {}}, **{key: more(inner, at=key) for key, inner in value.items()}}
    return [more(inner, at=at) for inner in value] if isinstance(value, list) else value


def newer_request(_path: str, body: Any) -> Any:
    """As a later version of the daemon says it."""
    return more(body)


def newer_answer(_path: str, body: Any) -> Any:
    """As a later version of the server says it; commands come in the company of one of a new kind."""
    body = more(body)
    if body.get("commands"):
        body["commands"] = [NEW_COMMAND, *body["commands"], {"id": "x", "kind": NEW}]
    return body


def older_request(path: str, body: Any) -> Any:
    """As an earlier version of the daemon says it: what is null, empty or as it is anyway is not said at all."""
    body = _without_nothing(body)
    body["acks"] = [_without_nothing(ack) for ack in body["acks"]] if body.get("acks") else None
    body = _without_nothing(body)
    if path.endswith("/poll"):
        body.pop("seen", None)
        if body.get("queue") == PollRequest(worker_id="").queue:
            del body["queue"]
    return body


def _without_nothing(body: dict[str, Any]) -> dict[str, Any]:
    nothing = (None, [], {})
    return {key: inner for key, inner in body.items() if inner is not False and inner not in nothing}


def older_answer(path: str, body: Any) -> Any:
    """As the first version of the server says it."""
    needed = _NEEDED.get(path)
    if needed is None or "error" in body:
        return body
    body = {key: inner for key, inner in body.items() if key in needed}
    for command in body.get("commands", ()):
        if command["kind"] == "run":
            command["body"] = {key: inner for key, inner in command["body"].items() if key in _FIRST_BODY}
            function = command["body"].get("function")
            if function is not None:
                command["body"]["function"] = {key: function[key] for key in FIRST_FUNCTION if key in function}
    return body


FIRST_FUNCTION = tuple(name for name in FunctionRef.__dataclass_fields__ if name != "name")
