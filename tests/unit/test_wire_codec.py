"""The value codec: what goes in comes out as the same type, or is refused with the fix."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import math
import pathlib
import subprocess
import sys
import threading

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from lakeshore import wire
from lakeshore.wire import codec

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.builds(msgpack.ExtType, st.integers(64, 90), st.binary())
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text() | st.integers(-(2**63), 2**64 - 1) | st.binary(), inner, max_size=5)
    ),
    max_leaves=30,
)


def same(a: object, b: object) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(map(same, a.values(), b.values()))
    return repr(a) == repr(b)


def again(value: object) -> object:
    return wire.unpack(wire.pack(value))


@pytest.mark.inventory("P-170", "P-183", "P-433")
@settings(deadline=None)
@given(values)
def test_a_nested_value_comes_back_the_same(value: object) -> None:
    assert same(again(value), value)


@pytest.mark.inventory("P-171")
def test_a_dict_that_looks_like_a_marker_is_a_dict() -> None:
    value = {"ztype": "numpy.ndarray", "b": b"x"}
    assert again(value) == value


@pytest.mark.inventory("P-175", "P-178")
def test_a_tuple_is_ext_5_of_a_packed_list() -> None:
    assert wire.pack((1, "a")) == msgpack.packb(msgpack.ExtType(5, msgpack.packb([1, "a"])))
    assert same(again({"pair": (1, (2, [3]), ())}), {"pair": (1, (2, [3]), ())})


@pytest.mark.inventory("P-508")
def test_the_printed_example_works() -> None:
    back = again({"x": np.zeros(4), "pair": (1, 2)})
    assert repr(back) == "{'x': array([0., 0., 0., 0.]), 'pair': (1, 2)}"


ARRAYS = {
    "plain": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(12).reshape(3, 4).T,
    "strided": np.arange(20)[::-3],
    "big-endian": np.arange(5, dtype=">i4"),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "0-d": np.array(7.5),
    "empty": np.zeros((0, 3), np.uint8),
    "empty strings": np.array([""], dtype="<U1")[:0],
    "no-width strings": np.zeros(3, "<U0"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "half": np.array([0.5], np.float16),
    "strings": np.array(["a", "βγ"]),
    "bytes": np.array([b"ab", b"c"]),
    "dates": np.array(["2024-01-02", "NaT"], "M8[D]"),
    "spans": np.array([3], "m8[ns]"),
    "read-only": np.broadcast_to(np.int8(3), (2, 2)),
}


@pytest.mark.inventory("P-172", "P-430")
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_any_layout_comes_back_writable(name: str) -> None:
    array = ARRAYS[name]
    back = again([array])[0]  # type: ignore[index]
    assert same(back, np.array(array))
    assert back.flags.writeable
    assert back.flags.owndata


@pytest.mark.inventory("P-172")
def test_the_body_of_an_array_is_dtype_shape_and_bytes() -> None:
    ext = msgpack.unpackb(wire.pack(np.array([[1, 2]], "<i2")))
    assert ext.code == 1
    assert msgpack.unpackb(ext.data) == ["<i2", [1, 2], b"\1\0\2\0"]


@pytest.mark.parametrize(
    "value", [np.float64(1.5), np.float32(2), np.int8(-3), np.bool_(True), np.str_("é"), np.bytes_(b"x")]
)
def test_a_numpy_scalar_stays_one(value: np.generic) -> None:
    back = again({"loss": value})["loss"]  # type: ignore[index]
    assert type(back) is type(value)
    assert back == value
    date = np.datetime64("2024-01-02")
    assert again(date) == date


@pytest.mark.parametrize(
    ("array", "fix"),
    [
        (np.array([object()]), "tolist"),
        (np.array([1, "a", None], dtype=object), "tolist"),
        (np.zeros(2, "i4,f4"), "x[name]"),
        (np.zeros(2, "V3"), "view"),
        (np.ma.masked_array([1, 2], [0, 1]), "asarray"),
    ],
)
def test_an_array_that_would_need_pickle_is_refused(array: np.ndarray, fix: str) -> None:
    with pytest.raises(TypeError, match="wire: ") as raised:
        wire.pack({"x": array})
    assert fix in str(raised.value)


@pytest.mark.parametrize(
    "body",
    [
        ["O", [1], b"12345678"],
        ["i4,O", [1], b"123456789012"],
        ["|O", [1], b"12345678"],
        ["<i4", [2], b"1234"],
        ["<i4", [-1], b"1234"],
        ["<i4", [2**62, 2**62, 0], b""],
        ["<i4", [True], b"1234"],
        ["<i4", "ab", b"1234"],
        ["<i3", [1], b"123"],
        ["<i4", [1]],
        "x",
        7,
        ["<M8[zz]", [1], b"12345678"],
    ],
)
def test_a_forged_array_is_a_wire_error(body: object) -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(msgpack.packb(msgpack.ExtType(1, msgpack.packb(body))))


@pytest.mark.inventory("P-174", "P-432")
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F", "CMYK", "YCbCr", "LAB"])
def test_an_image_comes_back_pixel_by_pixel(mode: str) -> None:
    image = Image.new(mode, (3, 2))
    if mode in ("RGB", "RGBA", "CMYK", "YCbCr", "LAB"):
        image.putpixel((1, 1), (200, 3, 77, 9)[: len(image.getbands())])
    elif mode == "I":
        image.putpixel((1, 1), 1_000_000)
    elif mode == "F":
        image.putpixel((1, 1), 0.125)
    elif mode != "LA":
        image.putpixel((1, 1), 1)
    back = again(image)
    assert isinstance(back, Image.Image)
    assert (back.mode, back.size, back.tobytes()) == (mode, (3, 2), image.tobytes())


def test_an_image_that_no_lossless_format_keeps_is_refused() -> None:
    with pytest.raises(TypeError, match="convert"):
        wire.pack(Image.new("HSV", (2, 2)))
    with pytest.raises(TypeError, match="no pixels"):
        wire.pack(Image.new("L", (0, 2)))


@pytest.mark.parametrize("body", [["EPS", b"%!PS"], ["PNG", b"no png"], ["PNG"], 3])
def test_a_forged_image_is_a_wire_error(body: object) -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(msgpack.packb(msgpack.ExtType(3, msgpack.packb(body))))


@pytest.mark.inventory("P-173", "P-431")
def test_a_tensor_comes_back_detached_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("float32", "bfloat16", "int64", "bool", "complex64", "float16", "uint8"):
        tensor = torch.tensor([[0, 1, 2], [3, 4, 5]], dtype=getattr(torch, dtype)).T
        back = again({"t": tensor})["t"]  # type: ignore[index]
        assert back.dtype == tensor.dtype
        assert torch.equal(back, tensor)
    parameter = torch.nn.Parameter(torch.ones(2))
    assert type(again(parameter)) is torch.Tensor
    assert not again(parameter).requires_grad  # type: ignore[attr-defined]
    assert again(torch.tensor(3.5)).shape == ()  # type: ignore[attr-defined]
    assert again(torch.empty((0, 2))).shape == (0, 2)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="to_dense"):
        wire.pack(torch.eye(2).to_sparse())


class Colour(enum.IntEnum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Config:
    lr: float


@pytest.mark.inventory("P-177", "P-179", "P-434")
@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (object(), "wire.register"),
        ({1, 2}, "sorted"),
        (dt.datetime.now(dt.UTC), "isoformat"),
        (pathlib.Path("a"), "str(x)"),
        (Colour.RED, "x.value"),
        (Point(1, 2), "tuple(x)"),
        (collections.OrderedDict(a=1), "dict(x)"),
        (collections.defaultdict(list), "dict(x)"),
        (Config(0.1), "asdict"),
        ((n for n in [1]), "list(x)"),
        (iter([1]), "list(x)"),
        (lambda: 1, "wire.register"),
        (type("Text", (str,), {})("x"), "str(x)"),
    ],
)
def test_a_type_without_codec_is_refused_with_the_fix(value: object, fix: str) -> None:
    with pytest.raises(TypeError, match=r"wire\.register") as raised:
        wire.pack({"deep": [(value,)]})
    assert fix in str(raised.value)


def test_an_int_beyond_64_bits_is_refused_with_the_fix() -> None:
    assert again([2**64 - 1, -(2**63)]) == [2**64 - 1, -(2**63)]
    for n in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError, match=r"64 bits.*str\(x\)"):
            wire.pack([n])


def test_a_string_that_is_no_text_is_refused_with_the_fix() -> None:
    with pytest.raises(wire.WireError, match="fsencode"):
        wire.pack(["\udc80"])


def test_floats_keep_their_bits() -> None:
    assert math.isnan(again(math.nan))  # type: ignore[arg-type]
    assert str(again(-0.0)) == "-0.0"


def test_bytes_of_any_kind_arrive_as_bytes() -> None:
    assert same(again([bytearray(b"a"), memoryview(b"b")]), [b"a", b"b"])
    assert wire.unpack(memoryview(wire.pack(1))) == 1


def test_containers_that_nest_too_deeply_are_refused_at_both_ends() -> None:
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    assert wire.pack(again(deep)) == wire.pack(deep)
    for _ in range(600):
        deep = [deep]
    with pytest.raises(wire.NestingError):
        wire.pack(deep)
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(wire.NestingError, match="contains itself"):
        wire.pack(loop)
    with pytest.raises(wire.NestingError):
        wire.unpack(b"\x91" * 3000 + b"\x01")


def test_ext_values_nest_to_a_limit_that_no_peer_can_pass() -> None:
    deep: object = 1
    for _ in range(codec.MAX_EXT_DEPTH):
        deep = (deep,)
    assert same(again(deep), deep)
    with pytest.raises(wire.NestingError, match="use lists"):
        wire.pack((deep,))
    forged = wire.pack(1)
    for _ in range(2000):
        forged = msgpack.packb(msgpack.ExtType(5, msgpack.packb([1])[:1] + forged))
    with pytest.raises(wire.NestingError):
        wire.unpack(forged)
    assert again((1,)) == (1,), "the depth is counted down again after a failure"


@pytest.mark.inventory("P-176")
def test_codes_four_and_six_mean_nothing_of_ours() -> None:
    for code in (4, 6):
        assert wire.unpack(msgpack.packb(msgpack.ExtType(code, b"x"))) == msgpack.ExtType(code, b"x")
    with pytest.raises(ValueError, match="4"):
        wire.register(wire.Codec(4, Celsius, lambda v: b"", lambda b: b))


@pytest.mark.inventory("P-180", "P-194", "P-435")
def test_an_unknown_ext_code_passes_through_unharmed() -> None:
    blob = msgpack.packb([msgpack.ExtType(99, b"new"), {"k": msgpack.ExtType(4, b"")}])
    value = wire.unpack(blob)
    assert value == [msgpack.ExtType(99, b"new"), {"k": msgpack.ExtType(4, b"")}]
    assert wire.pack(value) == blob


@given(st.binary(max_size=200))
@settings(max_examples=400, deadline=None)
def test_garbage_raises_nothing_but_wire_error(data: bytes) -> None:
    for blob in (data, msgpack.packb(msgpack.ExtType(1, data)), msgpack.packb(msgpack.ExtType(5, data))):
        try:
            wire.unpack(blob)
        except wire.WireError as exc:
            assert str(exc)


@settings(deadline=None)
@given(values, st.data())
def test_a_damaged_value_raises_nothing_but_wire_error(value: object, data: st.DataObject) -> None:
    blob = bytearray(wire.pack([value, np.arange(3), (1, 2)]))
    blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    for bad in (bytes(blob), bytes(blob[: data.draw(st.integers(0, len(blob)))])):
        try:
            wire.unpack(bad)
        except wire.WireError as exc:
            assert str(exc)


def test_a_header_that_claims_more_than_it_has_is_a_wire_error() -> None:
    for blob in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"", b"\xc1", b"\x01\x01"):
        with pytest.raises(wire.WireError):
            wire.unpack(blob)
    with pytest.raises(wire.WireError, match="1 bytes follow"):
        wire.unpack(b"\x01\x01")
    with pytest.raises(wire.WireError):
        wire.unpack(msgpack.packb({1: 2}).replace(b"\x81\x01", b"\x81\x90"))  # a list as key
    with pytest.raises(TypeError, match="takes bytes"):
        wire.unpack("text")  # type: ignore[arg-type]


# ---- register


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class Kelvin(Celsius):
    pass


class Tree:
    def __init__(self, *children: object) -> None:
        self.children = children


@pytest.mark.inventory("P-181")
def test_a_registered_type_travels_and_so_does_a_type_named_only() -> None:
    wire.register(wire.Codec(100, Celsius, lambda v: wire.pack(v.degrees), lambda b: Celsius(wire.unpack(b))))
    back = again([(Celsius(21.5), Kelvin(3.0))])
    assert [t.degrees for t in back[0]] == [21.5, 3.0]  # type: ignore[index]
    name = f"{Tree.__module__}.Tree"
    wire.register(wire.Codec(101, name, lambda t: wire.pack(list(t.children)), lambda b: Tree(*wire.unpack(b))))
    assert isinstance(again(Tree(Tree(), 1)).children[0], Tree)  # type: ignore[attr-defined]
    deep = Tree()
    for _ in range(100):
        deep = Tree(deep)
    with pytest.raises(wire.NestingError):
        wire.pack(deep)


def test_a_registered_path_type_matches_its_concrete_class() -> None:
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pathlib; from lakeshore import wire\n"
            "wire.register(wire.Codec(6, 'pathlib.PurePath', lambda p: str(p).encode(),\n"
            "                         lambda b: pathlib.Path(b.decode())))\n"
            "print(wire.unpack(wire.pack([pathlib.Path('a/b')])))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "[PosixPath('a/b')]"


@pytest.mark.parametrize(
    ("code", "type_", "says"),
    [
        (3, Celsius, "Lakeshore's own"),
        (4, Celsius, "Lakeshore's own"),
        (-1, Celsius, "0 to 127"),
        (128, Celsius, "0 to 127"),
        (True, Celsius, "0 to 127"),
        (110, dict, "travels as it is"),
        (110, tuple, "travels as it is"),
        (110, "numpy.ndarray", "has the code 1"),
        (110, "Celsius", "dotted"),
        (110, "no good.X", "dotted"),
    ],
)
def test_a_codec_that_cannot_be_is_refused(code: int, type_: type | str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wire.register(wire.Codec(code, type_, lambda v: b"", lambda b: b))


def test_a_taken_code_is_refused_and_the_same_registration_again_replaces() -> None:
    wire.register(wire.Codec(102, "some.module.A", lambda v: b"", lambda b: 1))
    wire.register(wire.Codec(102, "some.module.A", lambda v: b"", lambda b: 2))
    assert wire.unpack(msgpack.packb(msgpack.ExtType(102, b""))) == 2
    with pytest.raises(ValueError, match=r"102 is taken by some\.module\.A"):
        wire.register(wire.Codec(102, "some.module.B", lambda v: b"", lambda b: b))


class Odd:
    pass


def test_a_codec_that_misbehaves_is_named() -> None:
    wire.register(wire.Codec(103, Odd, lambda v: "text", lambda b: 1 / 0))  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=r"Odd must encode to bytes, it returned str"):
        wire.pack(Odd())
    with pytest.raises(wire.WireError, match=r"103 .*Odd.*ZeroDivisionError") as raised:
        wire.unpack(msgpack.packb(msgpack.ExtType(103, b"")))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


# ---- threads and builds


def test_threads_pack_at_once_without_mixing_values() -> None:
    wrong: list[object] = []

    def work(n: int) -> None:
        for i in range(500):
            value = [n, i, (n, (i, "x" * (n + i % 7)))]
            if again(value) != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_pure_python_msgpack_gives_the_same_bytes_and_errors() -> None:
    value = {"a": [1, (2, "x", None)], 3: b"y"}
    code = (
        "import msgpack.fallback, msgpack; assert msgpack.Packer is msgpack.fallback.Packer\n"
        "from lakeshore import wire\n"
        f"value = {value!r}\n"
        "assert wire.unpack(wire.pack(value)) == value\n"
        "for bad in (2**64, {1}, '\\udc80', (n for n in [])):\n"
        "    try: wire.pack([bad])\n"
        "    except Exception as e: print(type(e).__name__)\n"
        "deep = []; deep.append(deep)\n"
        "try: wire.pack(deep)\n"
        "except wire.NestingError as e: print(type(e).__name__)\n"
        "for bad in (b'', b'\\xc1', b'\\x91' * 3000, b'\\x01\\x01', b'\\xdd\\xff\\xff\\xff\\xff', b'\\xa1\\xff'):\n"
        "    try: wire.unpack(bad); print('read', bad[:5])\n"
        "    except wire.WireError as e: pass\n"
        "r = wire.FrameReader()\n"
        "w = wire.FrameWriter()\n"
        "data = w.value((1, 2)) + b''.join(w.chunks(b'x' * 300_000)) + w.end()\n"
        "print(len([f for i in range(0, len(data), 1000) for f in r.feed(data[i:i + 1000])]))\n"
        "print(wire.pack(value).hex())"
    )
    import os

    env = {**os.environ, "MSGPACK_PUREPYTHON": "1"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert out.stderr == ""
    assert out.stdout.split() == [
        "OverflowError",
        "TypeError",
        "WireError",
        "TypeError",
        "NestingError",
        "5",
        wire.pack(value).hex(),
    ]
