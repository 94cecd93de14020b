"""The Envelope: opaque to routers, strict about its own fields, kind to newer writers."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore import wire
from lakeshore.wire import Envelope, EnvelopeError

FN = {"kind": "ref", "module": "user_pkg.search", "qualname": "topk", "src_hash": None}


def raw(**changes: Any) -> dict[str, Any]:
    body = {
        "v": 1,
        "id": "01HX",
        "fn": FN,
        "args": wire.pack([1]),
        "kwargs": wire.pack({}),
        "prefix": "",
        "key": None,
        "cfg": {},
        "parent": None,
    }
    return {name: value for name, value in {**body, **changes}.items() if value is not ...}


@pytest.mark.inventory("P-184", "P-188", "P-509")
def test_the_map_on_the_wire_is_the_documented_one() -> None:
    envelope = Envelope.build(
        id="01HX", fn=FN, args=(1, (2, 3)), kwargs={"k": b"v"}, prefix="scenes/0007", parent="01HW"
    )
    assert msgpack.unpackb(envelope.to_bytes()) == {
        "v": 1,
        "id": "01HX",
        "fn": FN,
        "args": wire.pack([1, (2, 3)]),
        "kwargs": wire.pack({"k": b"v"}),
        "prefix": "scenes/0007",
        "key": None,
        "cfg": {},
        "parent": "01HW",
    }
    assert list(msgpack.unpackb(envelope.to_bytes())) == [
        "v",
        "id",
        "fn",
        "args",
        "kwargs",
        "prefix",
        "key",
        "cfg",
        "parent",
    ]


@pytest.mark.inventory("P-185", "P-187", "P-190")
@settings(deadline=None)
@given(st.text(min_size=1), st.lists(st.integers() | st.text(), max_size=3), st.text(), st.none() | st.text())
def test_an_envelope_comes_back_the_same(id: str, args: list[Any], prefix: str, key: str | None) -> None:
    args = [a for a in args if not isinstance(a, int) or -(2**63) <= a < 2**64]
    envelope = Envelope.build(
        id=id, fn=FN, args=args, kwargs={"a": 1}, prefix=prefix, key=key, cfg={"code": {"commit": "c"}}
    )
    back = Envelope.from_bytes(envelope.to_bytes())
    assert back == envelope
    assert (back.v, back.unpack_args(), back.unpack_kwargs()) == (wire.WIRE_VERSION, tuple(args), {"a": 1})


@pytest.mark.inventory("P-186", "P-436")
@pytest.mark.parametrize("v", [0, -1, True, "1", None, 1.0])
def test_a_version_that_never_was_is_refused(v: object) -> None:
    with pytest.raises(EnvelopeError, match=r"Envelope\.v") as raised:
        Envelope.from_bytes(wire.pack(raw(v=v)))
    assert raised.value.field == "v"


@pytest.mark.inventory("P-186", "P-436")
@pytest.mark.inventory("S-672")
def test_a_newer_version_is_refused_before_anything_else_with_the_fix() -> None:
    with pytest.raises(EnvelopeError, match="upgrade dreamlake-lakeshore"):
        Envelope.from_bytes(wire.pack({"v": 2, "everything": "else changed"}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 7),
        ("id", ...),
        ("fn", "topk"),
        ("fn", {"module": "m"}),
        ("fn", ...),
        ("args", [1]),
        ("args", ...),
        ("kwargs", {}),
        ("kwargs", "x"),
        ("prefix", 3),
        ("key", 3),
        ("cfg", []),
        ("parent", 3),
        ("v", ...),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(EnvelopeError, match=field) as raised:
        Envelope.from_bytes(wire.pack(raw(**{field: value})))
    assert raised.value.field == field


def test_optional_fields_may_be_absent() -> None:
    back = Envelope.from_bytes(wire.pack(raw(prefix=..., key=..., cfg=..., parent=...)))
    assert (back.prefix, back.key, back.cfg, back.parent) == ("", None, {}, None)


@pytest.mark.inventory("P-194", "P-191")
def test_what_a_newer_writer_adds_survives() -> None:
    blob = wire.pack(raw(cfg={"code": {}, "gpu": msgpack.ExtType(99, b"x")}, trace={"span": 1}))
    back = Envelope.from_bytes(blob)
    assert back.extra == {"trace": {"span": 1}}
    assert wire.unpack(back.to_bytes()) == wire.unpack(blob)


@pytest.mark.inventory("P-193")
def test_the_header_reads_without_the_arguments() -> None:
    back = Envelope.from_bytes(wire.pack(raw(args=b"\xc1 never packed", kwargs=b"")))
    assert back.id == "01HX"
    with pytest.raises(EnvelopeError, match="args") as raised:
        back.unpack_args()
    assert raised.value.field == "args"
    with pytest.raises(EnvelopeError, match="kwargs"):
        back.unpack_kwargs()


@pytest.mark.parametrize(("name", "value"), [("args", {"a": 1}), ("kwargs", [1]), ("kwargs", {1: 2})])
def test_arguments_of_the_wrong_shape_are_named(name: str, value: object) -> None:
    back = Envelope.from_bytes(wire.pack(raw(**{name: wire.pack(value)})))
    with pytest.raises(EnvelopeError, match=name):
        getattr(back, f"unpack_{name}")()


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_garbage_is_an_envelope_error(data: bytes) -> None:
    with pytest.raises(EnvelopeError):
        Envelope.from_bytes(data)


def test_an_argument_that_does_not_travel_fails_where_it_is_packed() -> None:
    with pytest.raises(TypeError, match=r"wire\.register"):
        Envelope.build(id="a", fn=FN, args=(object(),))
    with pytest.raises(EnvelopeError, match=r"Envelope\.build packs"):
        Envelope(id="a", fn=FN, args=[1])  # type: ignore[arg-type]
