"""A submit's body as the plane's Submission: what it names, how it runs, and its fingerprint (K-16).

The same call gives the same hash, whatever the encoding, the order of run_config's keys and the way of its arguments.

Most submits differ from earlier ones in their id and arguments alone. What the rest of a body means is kept, so that
only those two are looked at again.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from ..plane.contract import DEFAULT_MAX_ATTEMPTS, INLINE_BYTES, Payload, Submission
from ..plane.submits import fingerprint_frame, fingerprint_within
from ..wire.messages import NATIVE_FUNCTION, FunctionRef, SubmitItem
from ..wire.names import check_invocation_id, check_queue
from ..wire.run_configs import BadAsk, needs_of
from ..wire.values import value
from .blobs import BlobStore
from .structure import bad_field, structure

_MOST_ATTEMPTS: Final = 10_000
_LONGEST_KEY: Final = 1024
_LONGEST_SOURCE: Final = 64 * 1024
_LONGEST_DELAY_S: Final = 1e9
_EMPTY: Final = msgpack.packb({})
_KEPT: Final = 1024
_KEPT_SIZE: Final = 2048

_packer = msgpack.Packer(autoreset=True)


@value
class _Kind:
    """What calls of one kind have in common."""

    queue: str
    function: bytes
    run_config: bytes
    code: bytes
    prefix: str | None
    priority: float
    key: str | None
    max_attempts: int
    needs: str | None
    frame: tuple[bytes, bytes]


class Submissions:
    """Reads submits for one server."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._kinds: dict[bytes, _Kind] = {}

    async def read(self, ns: str, raw: Any, encoding: str) -> tuple[Submission, str | None, list[str]]:
        """What to insert, the watch that it names, and warnings. Large arguments are in their file when this returns.

        HttpError, NameError_.
        """
        known = self.known(ns, raw)
        if known is not None:
            return known, raw.get("watch"), []
        item = structure(raw, SubmitItem, encoding)
        check_invocation_id(item.invocation_id)
        if item.parent_invocation_id is not None:
            check_invocation_id(item.parent_invocation_id, "parent_invocation_id")
        warnings: list[str] = []
        kind = _kind_of(item, warnings)
        args = await self._arguments(ns, item)
        if not warnings:
            self._keep(raw, kind)
        due = _due(item)
        wanted = _submission(ns, item.invocation_id, args, kind, item.parent_invocation_id, item.retry_failed, due)
        return wanted, item.watch, warnings

    def known(self, ns: str, raw: Any) -> Submission | None:
        """The same for a call of a kind that was read before, with its arguments inside; None for any other."""
        if type(raw) is not dict:
            return None
        get = raw.get
        id_, args = get("invocation_id"), get("args_blob")
        if type(id_) is not str or type(args) is not bytes or len(args) >= INLINE_BYTES:
            return None
        for name in ("parent_invocation_id", "retry_failed", "watch"):
            text = get(name)
            if text is not None and type(text) is not str:
                return None
        if get("args_ref") is not None or "delay_s" in raw or "due" in raw:
            return None
        key = _key(raw)
        kind = None if key is None else self._kinds.get(key)
        if kind is None:
            return None
        check_invocation_id(id_)
        parent = get("parent_invocation_id")
        if parent is not None:
            check_invocation_id(parent, "parent_invocation_id")
        return _submission(ns, id_, args, kind, parent, get("retry_failed"))

    async def _arguments(self, ns: str, item: SubmitItem) -> Payload:
        if item.args_ref is not None:
            if item.args_blob is not None:
                raise bad_field("args_ref", "args_blob and args_ref exclude each other")
            ref = item.args_ref
            return await self._blobs.check(ns, ref.key, ref.size, ref.sha256, "args_ref")
        if item.args_blob is None:
            raise bad_field("args_blob", "is required (or args_ref)")
        return await self._blobs.keep(ns, item.invocation_id, "args", item.args_blob)

    def _keep(self, raw: Mapping[str, Any], kind: _Kind) -> None:
        key = _key(raw)
        if key is not None and len(key) <= _KEPT_SIZE:
            if len(self._kinds) >= _KEPT:
                self._kinds.clear()  # kinds that never come again (a key for each call) push the others out
            self._kinds[key] = kind


def _key(raw: Mapping[str, Any]) -> bytes | None:
    """What decides a call's kind, packed: equal bytes are equal values of equal types."""
    get = raw.get
    try:
        packed: bytes = _packer.pack((get("queue"), get("function"), get("run_config"), get("code_context")))
    except (ValueError, TypeError, OverflowError):
        return None
    return packed


def _kind_of(item: SubmitItem, warnings: list[str]) -> _Kind:
    check_queue(item.queue)
    config = {**item.run_config, "queue": item.queue}
    prefix = _text(config, "prefix", _LONGEST_KEY)
    priority = _priority(config.get("priority"), warnings)
    key = _text(config, "key", _LONGEST_KEY)
    attempts = _attempts(config.get("max_attempts"))
    _check_timeout(config.get("timeout_s"))
    try:
        needs = needs_of(config)
    except BadAsk as error:
        raise bad_field(error.field, error.problem) from None
    function, named = _packed_function(item.function)
    try:
        packed = msgpack.packb(dict(sorted(config.items())))
        code = msgpack.packb(item.code_context) if item.code_context else _EMPTY
    except (ValueError, TypeError, OverflowError) as error:
        raise bad_field("run_config", f"cannot be stored: {error}") from error
    return _Kind(
        queue=item.queue,
        function=function,
        run_config=packed,
        code=code,
        prefix=prefix,
        priority=priority,
        key=key,
        max_attempts=attempts,
        needs=needs,
        frame=fingerprint_frame(item.queue, named, packed),
    )


def _submission(
    ns: str, id_: str, args: Payload, kind: _Kind, parent: str | None, nonce: str | None, due: float | None = None
) -> Submission:
    return Submission(
        ns=ns,
        queue=kind.queue,
        id=id_,
        args=args,
        hash=fingerprint_within(kind.frame, args),
        function=kind.function,
        run_config=kind.run_config,
        code=kind.code,
        prefix=kind.prefix,
        priority=kind.priority,
        key=kind.key,
        parent=parent,
        max_attempts=kind.max_attempts,
        retry_nonce=nonce,
        due=due,
        needs=kind.needs,
    )


def _due(item: SubmitItem) -> float | None:
    """The instant that a submit waits for, in epoch seconds."""
    now = time.time()
    if item.delay_s is None:
        if item.due is not None and not (math.isfinite(item.due) and item.due <= now + _LONGEST_DELAY_S):
            raise bad_field("due", f"must be an instant in epoch seconds, at most {_LONGEST_DELAY_S:.0f} s away")
        return item.due
    if item.due is not None:
        raise bad_field("due", "delay_s and due exclude each other")
    if not 0 <= item.delay_s <= _LONGEST_DELAY_S:
        raise bad_field("delay_s", f"must be from 0 to {_LONGEST_DELAY_S:.0f} seconds")
    return now + item.delay_s


def _packed_function(function: FunctionRef | None) -> tuple[bytes, bytes]:
    """What its row keeps, and what of it decides whether two calls are the same."""
    function = function or NATIVE_FUNCTION
    if function.name is not None and not 0 < len(function.name) <= _LONGEST_KEY:
        raise bad_field("function.name", f"must have 1 to {_LONGEST_KEY} characters")
    named = _pack_function(function.module, function.qualname, function.version, function.name)
    if function.signature is None and function.source is None:  # as nearly always
        return named, named
    more = {}
    for name, text, longest in (
        ("signature", function.signature, _LONGEST_KEY),
        ("source", function.source, _LONGEST_SOURCE),
    ):
        if text is not None:
            if not 0 < len(text) <= longest:
                raise bad_field(f"function.{name}", f"must have 1 to {longest} characters")
            more[name] = text
    return msgpack.packb({**msgpack.unpackb(named), **more}), named


@functools.lru_cache(maxsize=4096)
def _pack_function(module: str, qualname: str, version: str, name: str | None) -> bytes:
    told = {"module": module, "qualname": qualname, "version": version}
    packed: bytes = msgpack.packb(told if name is None else {**told, "name": name})
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
