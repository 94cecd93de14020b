"""What crosses a process boundary. No I/O, no loop, no clock, no hidden randomness.

    codec.py     values as bytes: pack, unpack, register, Codec          leaves.py   numpy, torch and PIL values
    envelope.py  one remote invocation                                   frames.py   the frames of a stream
    messages.py  the bodies of every route: THE statement of the protocol
    names.py     slugs, labels, queue names, ids, ULIDs                  states.py   every state machine, as data
    signing.py   how a daemon signs a request                      verification.py   whether it is let in
    daemon_keys.py   the life of a daemon's key: rotation, overlap, revocation
    errors.py    the tree of what can be wrong                     values.py   the decorator of such bodies

The names below are resolved when they are first used: `lakeshore.wire.names` and its like load no msgpack.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lakeshore.wire.codec import Codec, pack, register, unpack
    from lakeshore.wire.envelope import WIRE_VERSION, Envelope
    from lakeshore.wire.errors import EnvelopeError, FrameError, NestingError, RemoteFailure, WireError
    from lakeshore.wire.frames import Frame, FrameKind, FrameReader, FrameWriter, ValueReader

__all__ = [
    "WIRE_VERSION",
    "Codec",
    "Envelope",
    "EnvelopeError",
    "Frame",
    "FrameError",
    "FrameKind",
    "FrameReader",
    "FrameWriter",
    "NestingError",
    "RemoteFailure",
    "ValueReader",
    "WireError",
    "pack",
    "register",
    "unpack",
]

_HOMES: Final = {
    **dict.fromkeys(("Codec", "pack", "register", "unpack"), "codec"),
    **dict.fromkeys(("Envelope", "WIRE_VERSION"), "envelope"),
    **dict.fromkeys(("EnvelopeError", "FrameError", "NestingError", "RemoteFailure", "WireError"), "errors"),
    **dict.fromkeys(("Frame", "FrameKind", "FrameReader", "FrameWriter", "ValueReader"), "frames"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next look-up is a plain one
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
