"""The return-your-keys contract: what a manifest is, each way to break it, word for word, and what yields add up to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dreamlake.lakeshore as dls
from lakeshore.sdk.errors import KeyError_, LakeshoreError
from lakeshore.sdk.keys import join, keys_in, manifest_of

NOT_RETURNED = (
    "UDF wrote 1 file(s) via dls.run.write (process/mesh.ply) but did not return their keys; return the key string(s) "
    "— str, list[str], or dict[str, str] — so the outputs are wired into the graph"
)
LEFT_OUT = (
    "UDF wrote key(s) it did not return: ['process/mesh.ply']; "
    "include them in the returned manifest (or don't write them)"
)


@pytest.fixture(autouse=True)
def scoped(tmp_path: Path) -> Iterator[None]:
    with dls.scope("s", root=tmp_path):
        yield


def mesh() -> str:
    dls.run.write("process/mesh.ply").write_text("x")
    return "process/mesh.ply"


def wrote_and_returned(result: object) -> Callable[[], Any]:
    @dls.udf
    def body() -> object:
        mesh()
        return result

    return body


@pytest.mark.inventory("P-052", "P-135")
def test_the_key_error_is_a_value_error_and_no_builtin_key_error() -> None:
    assert issubclass(KeyError_, ValueError)
    assert issubclass(KeyError_, LakeshoreError)
    assert not issubclass(KeyError_, KeyError)


@pytest.mark.inventory("P-127", "P-128")
@pytest.mark.parametrize(
    "manifest",
    [
        "process/mesh.ply",
        ["process/mesh.ply"],
        ("process/mesh.ply", "upstream/key"),
        {"mesh": "process/mesh.ply"},
        "./process/mesh.ply",
        "process//mesh.ply",
    ],
)
def test_a_manifest_that_names_what_was_written_passes(manifest: object) -> None:
    assert wrote_and_returned(manifest)() == manifest


@pytest.mark.inventory("P-129", "P-442")
@pytest.mark.parametrize("result", [None, 3, 2.5, [1], ["a", 1], {"mesh": 1}, {1: "process/mesh.ply"}, b"bytes", {"k"}])
def test_a_result_that_is_no_manifest_is_told_the_accepted_shapes(result: object) -> None:
    with pytest.raises(KeyError_) as caught:
        wrote_and_returned(result)()
    assert str(caught.value) == NOT_RETURNED


@pytest.mark.inventory("P-130", "P-133")
@pytest.mark.parametrize("result", ["done", "process/mash.ply", [], (), {}, ["other"], {"mesh": "other"}])
def test_a_manifest_without_a_written_key_is_told_which(result: object) -> None:
    with pytest.raises(KeyError_) as caught:
        wrote_and_returned(result)()
    assert str(caught.value) == LEFT_OUT


@pytest.mark.inventory("P-131", "P-132", "P-727")
@pytest.mark.parametrize("result", ["never/written", ["a"], {"a": "b"}, None, 3, {"mean": 1.0}])
def test_a_body_that_wrote_nothing_may_return_anything(result: object) -> None:
    assert dls.udf(lambda: result)() == result


@pytest.mark.inventory("P-138")
def test_a_directory_is_returned_by_its_key() -> None:
    @dls.udf
    def views() -> dict[str, str]:
        (dls.run.write("images/rgb", dir=True) / "0.png").write_text("x")
        return {"rgb": "images/rgb"}

    assert views() == {"rgb": "images/rgb"}


@pytest.mark.inventory("P-134", "P-070")
def test_each_call_answers_for_its_own_writes_only() -> None:
    @dls.udf
    def inner() -> str:
        return mesh()

    @dls.udf
    def outer() -> str:
        inner()
        dls.run.write("outer.txt")
        return "outer.txt"

    assert outer() == "outer.txt"
    assert outer() == "outer.txt"


def test_a_body_that_raised_is_not_asked_for_keys() -> None:
    @dls.udf
    def body() -> None:
        mesh()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()


def test_the_check_holds_for_coroutines() -> None:
    @dls.udf
    async def body(result: object) -> object:
        mesh()
        return result

    assert asyncio.run(body("process/mesh.ply")) == "process/mesh.ply"
    with pytest.raises(KeyError_) as caught:
        asyncio.run(body(None))
    assert str(caught.value) == NOT_RETURNED


@dls.udf
def yields(*items: Any) -> Iterator[Any]:
    for item in items:
        if item == "process/mesh.ply" or item == {"plain": True}:
            mesh()
        yield item


@dls.udf
async def ayields(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        if item == "process/mesh.ply" or item == {"plain": True}:
            mesh()
        yield item


def drain(*items: Any) -> list[Any]:
    return list(yields(*items))


def adrain(*items: Any) -> list[Any]:
    async def main() -> list[Any]:
        return [item async for item in ayields(*items)]

    return asyncio.run(main())


@pytest.mark.inventory("P-085", "P-448")
@pytest.mark.parametrize("run", [drain, adrain])
def test_yields_together_are_the_manifest(run: Callable[..., list[Any]]) -> None:
    assert run("a", "process/mesh.ply") == ["a", "process/mesh.ply"]
    assert run(0.5, "process/mesh.ply", {"progress": 1.0}) == [0.5, "process/mesh.ply", {"progress": 1.0}]


@pytest.mark.inventory("P-136")
@pytest.mark.parametrize("run", [drain, adrain])
def test_a_plain_stream_that_wrote_nothing_passes(run: Callable[..., list[Any]]) -> None:
    assert run(1, {"x": 2}, None) == [1, {"x": 2}, None]


@pytest.mark.inventory("P-137", "P-768", "P-717")
@pytest.mark.parametrize("run", [drain, adrain])
def test_a_plain_stream_that_wrote_files_fails(run: Callable[..., list[Any]]) -> None:
    with pytest.raises(KeyError_) as caught:
        run({"plain": True}, 2)
    assert str(caught.value) == NOT_RETURNED
    with pytest.raises(KeyError_) as caught:
        run({"plain": True}, "other")
    assert str(caught.value) == LEFT_OUT


def test_a_stream_that_is_abandoned_is_not_checked() -> None:
    stream = yields({"plain": True}, 2)
    next(stream)
    stream.close()


@pytest.mark.inventory("P-706", "P-469")
@pytest.mark.parametrize(
    ("items", "written", "value"),
    [
        ([], [], []),
        ([1, 2], [], [1, 2]),
        (["a", 1], ["a"], ["a", 1]),
        (["a", "b"], [], ["a", "b"]),
        ([["a"], ("b", "c"), "d"], [], ["a", "b", "c", "d"]),
        ([{"token": "x"}, {"token": "y"}], [], [{"token": "x"}, {"token": "y"}]),
        ([{"rgb": "a"}, {"depth": "b"}], ["a", "b"], {"rgb": "a", "depth": "b"}),
        ([{"rgb": "a"}, {"rgb": "b"}], ["a", "b"], ["a", "b"]),
        ([{"rgb": "a"}, "b"], ["a"], ["a", "b"]),
    ],
)
def test_what_a_stream_is_as_one_value(items: list[Any], written: list[str], value: object) -> None:
    assert manifest_of(iter(items), written) == value


parts = st.lists(st.sampled_from(["a", "b.c", "..", ".", "é"]), min_size=1, max_size=8).map("/".join)


@pytest.mark.inventory("P-112", "P-114")
@given(prefix=parts, key=parts)
def test_no_key_ever_leaves_the_root(prefix: str, key: str) -> None:
    try:
        base = join("", prefix)
        joined = join(base, key)
    except KeyError_:
        return
    assert ".." not in joined.split("/")
    assert not joined.startswith("/")


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda leaf: st.lists(leaf) | st.dictionaries(st.text(), leaf))
)
def test_a_manifest_is_made_of_strings_only(value: object) -> None:
    keys = keys_in(value)
    assert keys is None or all(isinstance(key, str) for key in keys)
