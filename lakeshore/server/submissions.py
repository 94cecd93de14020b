"""A submit's body as the plane's Submission: what it names, how it runs, and its fingerprint (K-16).

The same call gives the same hash, whatever the encoding, the order of run_config's keys and the way of its arguments.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import msgpack

from ..plane.contract import DEFAULT_MAX_ATTEMPTS, Payload, Submission
from ..plane.submits import fingerprint
from ..wire.messages import NATIVE_FUNCTION, FunctionRef, SubmitItem
from ..wire.names import check_invocation_id, check_queue
from .app import App
from .structure import bad_field

_MOST_ATTEMPTS: Final = 10_000
_LONGEST_KEY: Final = 1024
_EMPTY: Final = msgpack.packb({})


async def submission_of(app: App, ns: str, item: SubmitItem) -> tuple[Submission, list[str]]:
    """What to insert, and warnings. Large arguments are in their file when this returns. HttpError, NameError_."""
    check_invocation_id(item.invocation_id)
    check_queue(item.queue)
    if item.parent_invocation_id is not None:
        check_invocation_id(item.parent_invocation_id, "parent_invocation_id")
    warnings: list[str] = []
    config = {**item.run_config, "queue": item.queue}
    priority = _priority(config.get("priority"), warnings)
    key = _text(config, "key", _LONGEST_KEY)
    prefix = _text(config, "prefix", _LONGEST_KEY)
    attempts = _attempts(config.get("max_attempts"))
    _check_timeout(config.get("timeout_s"))
    args = await _arguments(app, ns, item)
    function = _packed_function(item.function)
    try:
        packed = msgpack.packb(dict(sorted(config.items())))
        code = msgpack.packb(item.code_context) if item.code_context else _EMPTY
    except (ValueError, TypeError, OverflowError) as error:
        raise bad_field("run_config", f"cannot be stored: {error}") from error
    return (
        Submission(
            ns=ns,
            queue=item.queue,
            id=item.invocation_id,
            args=args,
            hash=fingerprint(item.queue, function, args, packed),
            function=function,
            run_config=packed,
            code=code,
            prefix=prefix,
            priority=priority,
            key=key,
            parent=item.parent_invocation_id,
            max_attempts=attempts,
            retry_nonce=item.retry_failed,
        ),
        warnings,
    )


async def _arguments(app: App, ns: str, item: SubmitItem) -> Payload:
    if item.args_ref is not None:
        if item.args_blob is not None:
            raise bad_field("args_ref", "args_blob and args_ref exclude each other")
        ref = item.args_ref
        return await app.blobs.check(ns, ref.key, ref.size, ref.sha256, "args_ref")
    if item.args_blob is None:
        raise bad_field("args_blob", "is required (or args_ref)")
    return await app.blobs.keep(ns, item.invocation_id, "args", item.args_blob)


def _packed_function(function: FunctionRef | None) -> bytes:
    function = function or NATIVE_FUNCTION
    return _pack_function(function.module, function.qualname, function.version)


@functools.lru_cache(maxsize=4096)
def _pack_function(module: str, qualname: str, version: str) -> bytes:
    packed: bytes = msgpack.packb({"module": module, "qualname": qualname, "version": version})
    return packed


def _priority(value: Any, warnings: list[str]) -> float:
    if value is None:
        return 0.0
    if type(value) in (int, float) and math.isfinite(value):
        return float(value)
    warnings.append("run_config.priority is not a finite number: 0 is used")
    return 0.0


def _text(config: dict[str, Any], name: str, longest: int) -> str | None:
    value = config.get(name)
    if value is None:
        return None
    if type(value) is not str:
        raise bad_field(f"run_config.{name}", "must be a string")
    if not 0 < len(value) <= longest:
        raise bad_field(f"run_config.{name}", f"must have 1 to {longest} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad_field(f"run_config.{name}", "must be Unicode text (got a lone surrogate)") from None
    return value


def _attempts(value: Any) -> int:
    if value is None:
        return DEFAULT_MAX_ATTEMPTS
    if type(value) is not int or not 1 <= value <= _MOST_ATTEMPTS:
        raise bad_field("run_config.max_attempts", f"must be an integer from 1 to {_MOST_ATTEMPTS}")
    return value


def _check_timeout(value: Any) -> None:
    if value is not None and (type(value) not in (int, float) or not math.isfinite(value) or value <= 0):
        raise bad_field("run_config.timeout_s", "must be a number of seconds above 0")
