"""The statuses that a handler's source answers with, read without running it: what it raises, what its layers do."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def statuses_of_source(row: Any) -> frozenset[int]:
    """What the sources of the row's handler say that it answers with, besides what HTTP itself does."""
    found = _of_source(inspect.unwrap(row.handler))
    if row.tier not in ("open", "signed"):
        found |= {401, 403}
    if row.tier == "named":
        found |= {404}
    if row.tier == "plain":
        found |= {422}  # the namespace's name
    return frozenset(found)


def _of_source(function: Callable[..., Any]) -> set[int]:
    found: set[int] = set()
    seen: set[Any] = set()
    todo: list[Any] = [function]
    while todo:
        now = todo.pop()
        if now in seen:
            continue
        seen.add(now)
        tree = ast.parse(textwrap.dedent(inspect.getsource(now)))
        here = vars(inspect.getmodule(now))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found |= _of_call(node)
            if isinstance(node, ast.Name | ast.Attribute):
                name = node.id if isinstance(node, ast.Name) else node.attr
                other = here.get(name) if isinstance(node, ast.Name) else None
                if name in ("read_map", "structure") and other is not None:
                    found |= {400, 413, 415} if name == "read_map" else {422}
                elif getattr(other, "__module__", None) == now.__module__:
                    todo += [other] if inspect.isroutine(other) or inspect.isclass(other) else []
    return found


_PLANE = {  # how a verb of the layers below may be refused; `lakeshore.server.refusals` says with what
    "submit": {409, 413, 422, 429, 507},
    "submit_many": set(),  # each item is answered by itself
    "append_many": {404, 409, 507},
    "append_run": {404, 409, 507},
    "topic_post": {409, 507},
    "hello": {507},
    "poll": {409, 507},
    "poll_foreign": {507},
    "report_many": {404, 409, 507},
    "cancel": {404},
    "retry": {404, 409, 507},
    "cancel_queued": set(),
    "trim": {404, 409},
    "verify": {403},
    "receive": {409, 413, 422, 507},
    "check_key": {403, 422},
    "check_invocation_id": {422},
    "check_queue": {422},
    "check_topic": {422},
    "too_large": {413},
}


def _of_call(node: ast.Call) -> set[int]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    given = {word.arg: word.value for word in node.keywords}
    found = set(_PLANE.get(name, ()))
    status = given.get("status")
    numbers = {inner.value for inner in ast.walk(status) if isinstance(inner, ast.Constant)} if status else set()
    found |= {number for number in numbers if isinstance(number, int) and 200 <= number < 600}
    if name == "HttpError" and node.args and isinstance(node.args[0], ast.Constant):
        found.add(node.args[0].value)
    if name == "bad_field" and "status" not in given:
        found.add(422)
    return found
