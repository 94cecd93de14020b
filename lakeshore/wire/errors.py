"""The errors of the wire.

ValueError
└── WireError            these bytes are not what they should be: whoever sent them is at fault
    ├── NestingError     nested too deeply, found at pack (then the value is at fault) and at unpack
    ├── EnvelopeError    not an Envelope that this version can read; `.field` names the part
    ├── FrameError       not a frame, or a stream whose frames do not fit together
    └── NameError_       not a slug, label, queue, topic or id; `.field` names which
TypeError                pack: a value of a type that does not travel
OverflowError            pack: an int of more than 64 bits
Exception
└── RemoteFailure        a stream ended in ERROR: the producer raised
RuntimeError
└── IllegalTransition    states.py: a row was asked for what its state does not allow
"""

from __future__ import annotations


class WireError(ValueError):
    """Bytes that are not what they should be."""


class NestingError(WireError):
    """Containers nested more deeply than the wire carries."""


class _FieldError(WireError):
    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class EnvelopeError(_FieldError):
    """Not an Envelope that this version can read. `field` names the offending key, or is None."""


class FrameError(WireError):
    """Not a frame, or frames that do not fit together."""


class NameError_(_FieldError):  # noqa: N801 - `NameError` is taken, as `KeyError` is for the SDK's `KeyError_`
    """Not an acceptable name. `field` says which kind of name was asked for."""


class RemoteFailure(Exception):
    """The producer of a stream raised. `type` and `message` are its own; `meta` is the whole of the frame's."""

    def __init__(self, type: str, message: str, meta: dict[str, object] | None = None) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.meta = meta or {}
