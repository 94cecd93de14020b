"""`dls.run`, `dls.scope` and RunContext: where keys resolve, and who sees which scope."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import dreamlake.lakeshore as dls
from lakeshore.sdk.context import RunContext, current, installed
from lakeshore.sdk.errors import KeyError_


@pytest.mark.inventory("P-104")
def test_the_surface_of_run_is_what_is_documented() -> None:
    public = {name for name in dir(dls.run) if not name.startswith("_")}
    assert public == {"read", "write", "read_all", "write_all", "prefix", "root"}


@pytest.mark.inventory("P-105", "P-772")
def test_calling_run_says_what_runs_things() -> None:
    with pytest.raises(TypeError) as caught:
        dls.run("gpu")
    for name in ("submit", "remote", "run_worker"):
        assert name in str(caught.value)


@pytest.mark.inventory("P-106", "P-107", "P-116")
def test_write_registers_the_key_and_makes_parents(tmp_path: Path) -> None:
    with dls.scope("scenes/0007", root=tmp_path) as ctx:
        path = dls.run.write("process/mesh.ply")
        assert path == tmp_path / "scenes/0007/process/mesh.ply"
        assert path.parent.is_dir()
        assert not path.exists()
        made = dls.run.write("images", dir=True)
        assert made.is_dir()
        assert list(ctx.writes) == ["process/mesh.ply", "images"]


@pytest.mark.inventory("P-108", "P-692")
def test_read_gives_the_path_or_says_where_it_looked(tmp_path: Path) -> None:
    with dls.scope("s", root=tmp_path):
        dls.run.write("a.txt").write_text("x")
        assert dls.run.read("a.txt").read_text() == "x"
        with pytest.raises(KeyError_) as caught:
            dls.run.read("b.txt")
    assert 'not found under prefix "s"' in str(caught.value)
    assert str(tmp_path / "s/b.txt") in str(caught.value)


@pytest.mark.inventory("P-109", "P-110", "P-440")
def test_read_all_and_write_all_mirror_shapes(tmp_path: Path) -> None:
    with dls.scope(root=tmp_path):
        assert dls.run.write_all("a") == tmp_path / "a"
        assert dls.run.write_all(["a", "b"]) == [tmp_path / "a", tmp_path / "b"]
        assert dls.run.write_all({"x": "c"}, dir=True) == {"x": tmp_path / "c"}
        assert (tmp_path / "c").is_dir()
        (tmp_path / "a").write_text("")
        assert dls.run.read_all("a") == tmp_path / "a"
        assert dls.run.read_all(["a", "c"]) == [tmp_path / "a", tmp_path / "c"]
        assert dls.run.read_all(("a",)) == (tmp_path / "a",)
        assert dls.run.read_all({"k": "a"}) == {"k": tmp_path / "a"}
        with pytest.raises(TypeError, match="got set"):
            dls.run.read_all({"a"})


@pytest.mark.inventory("P-726", "P-439")
def test_write_all_may_make_directories_and_reading_finds_them(tmp_path: Path) -> None:
    with dls.scope("scenes", root=tmp_path):
        made = dls.run.write_all(["rgb", "depth"], dir=True)
        assert [path.is_dir() for path in made] == [True, True]
        assert not dls.run.write_all("later").exists()
        dls.run.write("rgb/0.png").write_text("x")
        assert dls.run.read("rgb/0.png").read_text() == "x"
        assert dls.run.read_all(["rgb", "depth"]) == [tmp_path / "scenes/rgb", tmp_path / "scenes/depth"]


@pytest.mark.inventory("P-419")
def test_every_breach_of_the_key_rules_is_one_exception(tmp_path: Path) -> None:
    @dls.udf
    def wrote(*returned: Any) -> Any:
        dls.run.write("k").write_text("x")
        return returned[0]

    with dls.scope("s", root=tmp_path):
        for breach in (
            lambda: wrote(3),
            lambda: wrote(["other"]),
            lambda: dls.run.write("../../outside"),
            lambda: dls.run.write("/absolute"),
            lambda: dls.run.read("missing"),
        ):
            with pytest.raises(KeyError_):
                breach()


@pytest.mark.inventory("P-111", "P-117", "P-123")
def test_outside_every_scope_the_prefix_is_empty_and_the_root_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dls.run.prefix == ""
    monkeypatch.chdir(tmp_path)
    assert dls.run.root == Path.cwd()
    with dls.scope("s") as ctx:  # no root was named: it stays lazy
        (tmp_path / "deeper").mkdir()
        monkeypatch.chdir(tmp_path / "deeper")
        assert ctx.root == dls.run.root == Path.cwd()


@pytest.mark.inventory("P-113")
@pytest.mark.parametrize("key", ["/etc/passwd", "", "a\0b"])
def test_absolute_and_malformed_keys_are_refused(key: str, tmp_path: Path) -> None:
    with dls.scope("s", root=tmp_path), pytest.raises(KeyError_):
        dls.run.write(key)
    with pytest.raises(KeyError_), dls.scope("/abs"):
        pass


def test_a_key_that_is_no_string_is_a_type_error(tmp_path: Path) -> None:
    with dls.scope(root=tmp_path), pytest.raises(TypeError, match="a key is a str"):
        dls.run.read(Path("a"))  # type: ignore[arg-type]


@pytest.mark.inventory("P-114", "P-115", "P-441")
def test_a_key_may_climb_to_a_parent_scope_and_not_out_of_the_run(tmp_path: Path) -> None:
    with dls.scope("scan-17", root=tmp_path):
        dls.run.write("crops/00.txt").write_text("cat")
        with dls.scope("objects/00"):
            assert dls.run.read("../../crops/00.txt").read_text() == "cat"
        for verb in (dls.run.read, dls.run.write):
            with pytest.raises(KeyError_) as caught:
                verb("../../outside")
            assert str(caught.value) == (
                "key '../../outside' escapes the run root from prefix \"scan-17\"; "
                "../ may climb to a parent scope, not out of the run"
            )
        with pytest.raises(KeyError_, match="escapes"), dls.scope("../.."):
            pass
    assert not (tmp_path.parent / "outside").exists()


@pytest.mark.inventory("P-118", "P-119", "P-120")
def test_nested_scopes_join_and_root_re_anchors(tmp_path: Path) -> None:
    with dls.scope("dataset-v2", root=tmp_path):
        with dls.scope("scenes/0002"):
            assert dls.run.prefix == "dataset-v2/scenes/0002"
            assert dls.run.root == tmp_path
        with dls.scope():
            assert dls.run.prefix == "dataset-v2"
        with dls.scope("x", root=str(tmp_path / "other")):
            assert dls.run.root == tmp_path / "other"
        assert dls.run.prefix == "dataset-v2"
    assert dls.run.prefix == ""


@pytest.mark.inventory("P-121", "P-122")
def test_a_scope_has_its_own_ledger_that_calls_do_not_touch(tmp_path: Path) -> None:
    @dls.udf
    def stamp(name: str) -> str:
        dls.run.write(f"out/{name}.txt").write_text(name)
        return f"out/{name}.txt"

    with dls.scope("batch", root=tmp_path) as ctx:
        assert [stamp(n) for n in "abc"] == ["out/a.txt", "out/b.txt", "out/c.txt"]
        assert ctx.writes == {}
        dls.run.write("by-hand")
        assert list(ctx.writes) == ["by-hand"]


def test_a_scope_ends_with_its_block_even_when_it_raises(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), dls.scope("s", root=tmp_path):
        raise RuntimeError
    assert dls.run.prefix == ""


def test_threads_do_not_share_scopes(tmp_path: Path) -> None:
    seen: list[str] = []
    with dls.scope("mine", root=tmp_path):
        thread = threading.Thread(target=lambda: seen.append(dls.run.prefix))
        thread.start()
        thread.join()
    assert seen == [""]


def test_asyncio_tasks_keep_their_own_scopes(tmp_path: Path) -> None:
    async def one(name: str, turn: asyncio.Barrier) -> str:
        with dls.scope(name):
            await turn.wait()
            assert dls.run.prefix == f"top/{name}"
            await turn.wait()
        return dls.run.prefix

    async def main() -> list[str]:
        turn = asyncio.Barrier(3)
        with dls.scope("top", root=tmp_path):
            return await asyncio.gather(*(one(n, turn) for n in "abc"))

    assert asyncio.run(main()) == ["top"] * 3


def test_trio_tasks_keep_their_own_scopes(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    async def one(name: str) -> None:
        with dls.scope(name):
            await trio.lowlevel.checkpoint()
            seen[name] = dls.run.prefix

    async def main() -> None:
        with dls.scope("top", root=tmp_path):
            async with trio.open_nursery() as nursery:
                for name in "abc":
                    nursery.start_soon(one, name)
            assert dls.run.prefix == "top"

    trio.run(main)
    assert seen == {n: f"top/{n}" for n in "abc"}


@pytest.mark.inventory("P-069")
def test_a_fork_keeps_places_and_ids_and_starts_an_empty_ledger(tmp_path: Path) -> None:
    context = RunContext(root=tmp_path, prefix="p", storage=None, invocation_id="01J")
    context.write("k")
    child = context.fork()
    assert (child.root, child.prefix, child.invocation_id) == (tmp_path, "p", "01J")
    assert child.writes == {}
    assert list(context.writes) == ["k"]


@pytest.mark.inventory("P-124", "P-125")
def test_an_installed_context_is_where_keys_resolve(tmp_path: Path) -> None:
    with installed(RunContext(root=tmp_path, prefix="jobs/1")) as context:
        assert current() is context
        assert dls.run.write("k") == tmp_path / "jobs/1/k"
    assert dls.run.prefix == ""
    with pytest.raises(KeyError_):
        RunContext(prefix="../x")


class Shelf:
    def __init__(self, **objects: bytes) -> None:
        self.objects = objects

    def get(self, key: str, /) -> bytes:
        return self.objects[key]


@pytest.mark.inventory("P-124")
def test_a_bound_storage_serves_a_read_that_is_not_here(tmp_path: Path) -> None:
    with installed(RunContext(root=tmp_path, storage=Shelf(k=b"far"))):
        assert dls.run.read("k").read_bytes() == b"far"
    assert [p.name for p in tmp_path.iterdir()] == ["k"]


def test_run_pickles_as_the_proxy_of_the_process_that_reads_it() -> None:
    assert pickle.loads(pickle.dumps(dls.run)) is dls.run


def test_a_generators_scope_does_not_leak_into_its_consumer(tmp_path: Path) -> None:
    @dls.udf
    def walk() -> Iterator[str]:
        with dls.scope("inside"):
            yield dls.run.prefix
            yield dls.run.prefix
        yield dls.run.prefix

    with dls.scope("outer", root=tmp_path):
        steps = walk()
        seen = []
        for prefix in steps:
            seen.append(prefix)
            assert dls.run.prefix == "outer"
    assert seen == ["outer/inside", "outer/inside", "outer"]
