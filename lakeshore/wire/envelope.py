"""One remote invocation, as the bytes that a plane carries and never opens (api/function-protocol, "The Envelope").

    {"v": 1, "id": str, "fn": {"kind": "ref" | "pickle", ...}, "args": bytes, "kwargs": bytes,
     "prefix": str, "key": str | None, "cfg": {...}, "parent": str | None}

`args` is `pack(list(args))` and `kwargs` is `pack(dict(kwargs))`, packed before the rest: whoever routes reads the
header without touching a user's value. Keys that this version does not know, at the top and in `cfg`, survive a round
trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from lakeshore.wire.codec import pack, unpack
from lakeshore.wire.errors import EnvelopeError, WireError
from lakeshore.wire.values import value

WIRE_VERSION: Final = 1

_REQUIRED: Final = ("id", "fn", "args", "kwargs")
_NAMES: Final = ("v", "id", "fn", "args", "kwargs", "prefix", "key", "cfg", "parent")
_PACKED: Final = "packed bytes (Envelope.build packs values)"
_NO_ARGS: Final = pack([])
_NO_KWARGS: Final = pack({})


@value
class Envelope:
    """One remote invocation. `Envelope.build` packs the arguments; the constructor takes them packed.

    Raises EnvelopeError, naming the field, for parts of the wrong type. `extra` holds top-level keys of newer writers.
    """

    id: str
    fn: Mapping[str, Any]
    args: bytes = _NO_ARGS
    kwargs: bytes = _NO_KWARGS
    prefix: str = ""
    key: str | None = None
    cfg: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    v: int = WIRE_VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_version(self.v)
        if type(self.id) is not str or not self.id:
            raise _wrong("id", "a non-empty string", self.id)
        if not _is_map(self.fn) or type(self.fn.get("kind")) is not str:
            raise _wrong("fn", 'a map with a "kind"', self.fn)
        if type(self.args) is not bytes:
            raise _wrong("args", _PACKED, self.args)
        if type(self.kwargs) is not bytes:
            raise _wrong("kwargs", _PACKED, self.kwargs)
        if type(self.prefix) is not str:
            raise _wrong("prefix", "a string", self.prefix)
        if self.key is not None and type(self.key) is not str:
            raise _wrong("key", "a string or null", self.key)
        if self.parent is not None and type(self.parent) is not str:
            raise _wrong("parent", "a string or null", self.parent)
        if not _is_map(self.cfg):
            raise _wrong("cfg", "a map", self.cfg)

    @classmethod
    def build(
        cls,
        *,
        id: str,
        fn: Mapping[str, Any],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        prefix: str = "",
        key: str | None = None,
        cfg: Mapping[str, Any] | None = None,
        parent: str | None = None,
    ) -> Envelope:
        """An Envelope of plain values. Raises what `pack` raises for an argument that does not travel."""
        return cls(
            id=id,
            fn=fn,
            args=pack(list(args)),
            kwargs=pack(dict(kwargs)) if kwargs else _NO_KWARGS,
            prefix=prefix,
            key=key,
            cfg=cfg if cfg is not None else {},
            parent=parent,
        )

    def to_bytes(self) -> bytes:
        """The bytes that travel."""
        parts = {
            "v": self.v,
            "id": self.id,
            "fn": dict(self.fn),
            "args": self.args,
            "kwargs": self.kwargs,
            "prefix": self.prefix,
            "key": self.key,
            "cfg": dict(self.cfg),
            "parent": self.parent,
        }
        if self.extra:
            parts |= {name: value for name, value in self.extra.items() if name not in _NAMES}
        return pack(parts)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Envelope:
        """Read the header; `args` and `kwargs` stay packed. Raises EnvelopeError, also for a newer version."""
        try:
            raw = unpack(data)
        except WireError as exc:
            raise EnvelopeError(f"these bytes are no Envelope: {exc}") from exc
        if type(raw) is not dict:
            raise EnvelopeError(f"these bytes are no Envelope: a {type(raw).__name__}, not a map")
        # The version decides what the other keys mean, so it is looked at before them.
        if "v" not in raw:
            raise EnvelopeError("these bytes are no Envelope: the key v is missing", field="v")
        _check_version(raw["v"])
        for name in _REQUIRED:
            if name not in raw:
                raise EnvelopeError(f"the Envelope lacks {name}", field=name)
        extra = {name: value for name, value in raw.items() if name not in _NAMES} if len(raw) > len(_NAMES) else {}
        prefix, cfg = raw.get("prefix"), raw.get("cfg")
        return cls(
            id=raw["id"],
            fn=raw["fn"],
            args=raw["args"],
            kwargs=raw["kwargs"],
            prefix="" if prefix is None else prefix,
            key=raw.get("key"),
            cfg={} if cfg is None else cfg,
            parent=raw.get("parent"),
            v=raw["v"],
            extra=extra,
        )

    def unpack_args(self) -> tuple[Any, ...]:
        """The positional arguments. Raises EnvelopeError(field="args")."""
        value = self._unpacked("args", self.args)
        if type(value) not in (list, tuple):
            raise _wrong("args", "a packed list", value)
        return tuple(value)

    def unpack_kwargs(self) -> dict[str, Any]:
        """The keyword arguments. Raises EnvelopeError(field="kwargs")."""
        if self.kwargs == _NO_KWARGS:
            return {}
        value = self._unpacked("kwargs", self.kwargs)
        if type(value) is not dict or any(type(name) is not str for name in value):
            raise _wrong("kwargs", "a packed map with string keys", value)
        return value

    @staticmethod
    def _unpacked(name: str, data: bytes) -> Any:
        try:
            return unpack(data)
        except WireError as exc:
            raise EnvelopeError(f"Envelope.{name} cannot be read: {exc}", field=name) from exc


def _is_map(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def _check_version(v: Any) -> None:
    if type(v) is not int or v < 1:
        raise EnvelopeError(f"Envelope.v must be an int from 1 on (got {v!r:.80})", field="v")
    if v > WIRE_VERSION:
        raise EnvelopeError(
            f"this Envelope is version {v} and this reader knows versions up to {WIRE_VERSION}: "
            f"upgrade dreamlake-lakeshore here (pip install --upgrade dreamlake-lakeshore)",
            field="v",
        )


def _wrong(name: str, wanted: str, value: Any) -> EnvelopeError:
    return EnvelopeError(f"Envelope.{name} must be {wanted} (got {type(value).__name__})", field=name)
