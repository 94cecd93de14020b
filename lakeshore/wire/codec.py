"""The value codec: msgpack with integer ExtType codes (api/function-protocol, "Value codec").

    1 numpy.ndarray and numpy scalars    2 torch.Tensor    3 PIL.Image    4 not assigned    5 tuple: pack(list(t))

What goes in comes out as the same type, or `pack` refuses it: a tuple stays a tuple; a subclass of a native type
(namedtuple, IntEnum, defaultdict, OrderedDict) is a TypeError whose message says what to pass. `bytearray` and
`memoryview` are the exception: they arrive as `bytes`. Map keys may be anything hashable. An ext code that nobody
registered is kept as `msgpack.ExtType` and packs back to the same bytes. numpy, torch and PIL are imported by the
values that need them, never by this module.

Errors: errors.py draws the tree. `pack` raises TypeError, OverflowError or WireError, `unpack` WireError and, for what
is not bytes at all, TypeError.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgpack
from msgpack import ExtType, Packer, unpackb

from lakeshore.wire import leaves
from lakeshore.wire.errors import NestingError, WireError

# msgpack's C reader takes 40 kB of stack for each value inside an ext value; 250 of them end the process. Native
# containers nest as deeply as msgpack takes them: 511 levels in older versions, about 1,000 in newer ones.
MAX_EXT_DEPTH: Final = 64
_TUPLE: Final = 5
_OWN_CODES: Final = range(1, 6)
_KEEP_BUFFER: Final = (
    1 << 21
)  # a packer keeps its buffer, for a new one costs ten times the copy; a huge one is not kept
_NATIVE: Final = (
    *(str, bytes, bytearray, memoryview, int, float, bool, type(None), list, dict, tuple),
    *(ExtType, msgpack.Timestamp),
)


@dataclass(frozen=True, slots=True)
class Codec:
    """How one type travels.

    `code`: 0 or 6…127 (1…5 are Lakeshore's own). `type`: the class, or its dotted name ("pkg.mod.Class"), with which
    the class is matched without importing it; subclasses match too, the nearest registered base wins.
    `encode(value) -> bytes`, which may use `wire.pack`; `decode(bytes) -> value`.
    """

    code: int
    type: type | str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    @property
    def name(self) -> str:
        """The dotted name of the type."""
        return self.type if isinstance(self.type, str) else f"{self.type.__module__}.{self.type.__qualname__}"


class _Depth(threading.local):
    packing = 0
    unpacking = 0


_depth = _Depth()
_lock = threading.Lock()
_by_code: dict[int, Codec] = {}
_by_name: dict[str, Codec] = {}
_by_type: dict[type, Codec] = {}
_found: WeakKeyDictionary[type, Codec] = WeakKeyDictionary()  # what a class matched last time
_packers: list[Packer] = []  # idle ones. One packer serves one call at a time; list.pop and append are atomic


# ---- public


def pack(value: Any) -> bytes:
    """The bytes of a value.

    Raises TypeError for a type that has no codec, OverflowError for an int of more than 64 bits, WireError for a string
    that is not Unicode and for containers nested too deeply (cycles included).
    """
    try:
        packer = _packers.pop()
    except IndexError:
        packer = Packer(default=_default, strict_types=True)
    try:
        data: bytes = packer.pack(value)
    except (ValueError, RecursionError) as exc:
        raise _pack_error(exc) from exc
    if len(data) < _KEEP_BUFFER:
        _packers.append(packer)
    return data


def unpack(data: bytes | bytearray | memoryview) -> Any:
    """The value of bytes that `pack` made. Raises WireError for anything else, with the reason."""
    try:
        return unpackb(data, ext_hook=ext_hook, strict_map_key=False)
    except WireError:
        raise
    except (ValueError, TypeError, RecursionError, MemoryError) as exc:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"wire.unpack takes bytes, got {type(data).__name__}") from exc
        raise reading_error(exc) from exc


def register(codec: Codec) -> None:
    """Add a codec, for this process; both ends of a call need it.

    The same code for the same type name again replaces it (a notebook's cell run twice). ValueError for a code or a
    type that is taken.
    """
    code, name = codec.code, codec.name
    if type(code) is not int or not 0 <= code <= 127:
        raise ValueError(f"wire.register: code {code!r} is not an int from 0 to 127")
    if code in _OWN_CODES:
        raise ValueError(
            f"wire.register: codes 1 to 5 are Lakeshore's own, {code} cannot be used for {name}: take 6…127"
        )
    if isinstance(codec.type, str):
        if not all(part.isidentifier() or part == "<locals>" for part in name.split(".")) or "." not in name:
            raise ValueError(f'wire.register: {name!r} is not a dotted type name like "package.module.Class"')
    elif codec.type in _NATIVE:
        raise ValueError(f"wire.register: {name} travels as it is, a codec for it would never be called")
    with _lock:
        holder = _by_code.get(code)
        if holder is not None and holder.name != name:
            raise ValueError(f"wire.register: code {code} is taken by {holder.name}: take another for {name}")
        other = _by_name.get(name)
        if other is not None and other.code != code:
            raise ValueError(f"wire.register: {name} has the code {other.code} already")
        _install(codec)


# ---- inside


def reading_error(exc: Exception) -> WireError:
    """What a failure of msgpack means to whoever reads. Also for frames.py."""
    if isinstance(exc, WireError):
        return exc
    if isinstance(exc, (msgpack.StackError, RecursionError)):
        return NestingError("wire: the bytes nest containers more deeply than any value that pack() makes")
    if isinstance(exc, msgpack.ExtraData):
        return WireError(f"wire: {len(exc.extra)} bytes follow the value")
    if isinstance(exc, UnicodeDecodeError):
        return WireError(f"wire: a string is not UTF-8 ({exc.reason})")
    return WireError(f"wire: not a packed value ({str(exc) or type(exc).__name__})")


def _install(codec: Codec, *names: str) -> None:
    _by_code[codec.code] = codec
    for name in (codec.name, *names):
        _by_name[name] = codec
    if isinstance(codec.type, type):
        _by_type[codec.type] = codec
    _found.clear()


def _lookup(cls: type) -> Codec | None:
    codec = _found.get(cls)
    if codec is None:
        for base in cls.__mro__:
            if base is tuple:
                continue  # a namedtuple is no tuple: it would come back without its names
            codec = _by_type.get(base) or _by_name.get(_public_name(base))
            if codec is not None:
                _found[cls] = codec
                break
    return codec


def _public_name(cls: type) -> str:
    """The dotted name that people import a class by: CPython keeps some in private modules (`pathlib._local`)."""
    public = ".".join(part for part in cls.__module__.split(".") if not part.startswith("_"))
    found: Any = sys.modules.get(public)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return f"{public if found is cls else cls.__module__}.{cls.__qualname__}"


def _default(value: Any) -> ExtType:
    """What msgpack calls for every value whose exact type is not its own."""
    cls = type(value)
    codec = _by_code[_TUPLE] if cls is tuple else _lookup(cls)
    if codec is None:
        if cls is int:
            raise OverflowError(
                "wire: an int must fit in 64 bits (-2**63 … 2**64 - 1): pass str(x), or x.to_bytes(…) for its bytes"
            )
        raise TypeError(_refusal(value, cls))
    if _depth.packing >= MAX_EXT_DEPTH:
        raise NestingError(
            f"wire: tuples (and other ext values) nest to {MAX_EXT_DEPTH} levels: use lists for deep trees"
        )
    _depth.packing += 1
    try:
        body = codec.encode(value)
    finally:
        _depth.packing -= 1
    if type(body) is not bytes:
        raise TypeError(f"wire: the codec of {codec.name} must encode to bytes, it returned {type(body).__name__}")
    return ExtType(codec.code, body)


def ext_hook(code: int, data: bytes) -> Any:
    """What msgpack calls for every ext value that it reads."""
    codec = _by_code.get(code)
    if codec is None:
        return ExtType(code, data)
    if _depth.unpacking >= MAX_EXT_DEPTH:
        raise NestingError(f"wire: tuples (and other ext values) nest to {MAX_EXT_DEPTH} levels, these bytes go deeper")
    _depth.unpacking += 1
    try:
        return codec.decode(data)
    except WireError as exc:
        if code == _TUPLE or isinstance(exc, NestingError):
            raise
        raise WireError(f"wire: ext code {code} ({codec.name}): {exc}") from exc
    except Exception as exc:
        raise WireError(f"wire: ext code {code} ({codec.name}): {type(exc).__name__}: {exc}") from exc
    finally:
        _depth.unpacking -= 1


def _decode_tuple(body: bytes) -> tuple[Any, ...]:
    items = unpack(body)
    if type(items) is not list:
        raise WireError(f"wire: ext code {_TUPLE} (tuple): the body is no list")
    return tuple(items)


def _encode_tuple(value: tuple[Any, ...]) -> bytes:
    return pack(list(value))


def _pack_error(exc: Exception) -> Exception:
    if isinstance(exc, WireError):
        return exc
    if isinstance(exc, UnicodeEncodeError):
        return WireError(
            f"wire: a str holds {exc.object[exc.start]!r}, which is no Unicode text (a file name?): pass os.fsencode(x)"
        )
    if isinstance(exc, RecursionError) or "recursion" in str(exc):
        return NestingError("wire: containers nest too deeply, or one contains itself")
    if "too large" in str(exc):
        return WireError(
            f"wire: one value of 4 GiB or more does not travel ({exc}): pass it in parts, or as a stored key"
        )
    return exc


_HINTS: Final[dict[str, str]] = {
    "builtins.set": "pass sorted(x) or list(x)",
    "builtins.frozenset": "pass sorted(x) or list(x)",
    "builtins.complex": "pass [x.real, x.imag]",
    "builtins.range": "pass list(x)",
    "builtins.generator": "pass list(x): an iterator stays in its process",
    "builtins.async_generator": "collect it first: an iterator stays in its process",
    "datetime.datetime": "pass x.isoformat() or x.timestamp()",
    "datetime.date": "pass x.isoformat()",
    "datetime.timedelta": "pass x.total_seconds()",
    "decimal.Decimal": "pass str(x)",
    "uuid.UUID": "pass str(x)",
    "pathlib.PurePath": "pass str(x); a path means something only where that file system is, a key travels",
    "enum.Enum": "pass x.value or x.name",
}


def _refusal(value: Any, cls: type) -> str:
    name = _public_name(cls).removeprefix("builtins.")
    hint = next((h for base in cls.__mro__ if (h := _HINTS.get(_public_name(base)))), None)
    native = next((base for base in cls.__mro__[1:] if base in _NATIVE), None)
    if hint is None and native is not None:
        hint = f"it would come back as a plain {native.__name__}: pass {native.__name__}(x)"
    if hint is None and hasattr(cls, "__dataclass_fields__"):
        hint = "pass dataclasses.asdict(x)"
    if hint is None and hasattr(cls, "__next__"):
        hint = "pass list(x): an iterator stays in its process"
    advice = "register one with wire.register(wire.Codec(code, type, encode, decode))"
    return f"wire: no codec for {name}: {hint}, or {advice}" if hint else f"wire: no codec for {name}: {advice}"


_install(Codec(1, "numpy.ndarray", leaves.encode_numpy, leaves.decode_numpy), "numpy.generic")
_install(Codec(2, "torch.Tensor", leaves.encode_torch, leaves.decode_torch))
_install(Codec(3, "PIL.Image.Image", leaves.encode_image, leaves.decode_image))
_install(Codec(_TUPLE, tuple, _encode_tuple, _decode_tuple))
