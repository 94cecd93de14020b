"""Archives of code: what is unpacked, what is refused, what a shelf keeps. No network, no server."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeshore.archives.errors import ArchiveError
from lakeshore.archives.shelf import UNUSED_S, Shelf
from lakeshore.archives.stamp import Stamp, key_of, read_stamp
from lakeshore.archives.trees import without_login
from lakeshore.archives.unpacking import unpack
from lakeshore.sdk.code_mount import static_hash
from lakeshore.sdk.transport import source_hash

COMMIT, SHA256 = "a" * 40, "b" * 64
STAMP = Stamp(remote="r", commit=COMMIT, key=key_of(COMMIT, SHA256), sha256=SHA256)


def member(name: str, data: bytes = b"", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


def into(tmp_path: Path) -> Path:
    place = tmp_path / "into"
    place.mkdir()
    return place


def test_files_directories_and_links_inside_are_unpacked(tmp_path: Path) -> None:
    made = archive(
        tmp_path / "a.tar.gz",
        member("pkg", type=tarfile.DIRTYPE, mode=0o755),
        member("pkg/a.py", b"a = 1\n", mode=0o644),
        member("run.sh", b"#!/bin/sh\n", mode=0o4777),
        member("deep/er/b.py", b""),
        member("link.py", type=tarfile.SYMTYPE, linkname="pkg/a.py"),
        member("pkg/up.py", type=tarfile.SYMTYPE, linkname="../run.sh"),
    )
    place = into(tmp_path)
    assert unpack(made, place).files == 5
    assert (place / "link.py").read_text() == "a = 1\n" and (place / "pkg" / "up.py").is_symlink()
    assert [oct((place / name).stat().st_mode & 0o7777) for name in ("run.sh", "pkg/a.py")] == ["0o755", "0o644"]


@pytest.mark.parametrize(
    "bad",
    [
        member("../out.py", b"x"),
        member("/tmp/out.py", b"x"),
        member("a/../../out.py", b"x"),
        member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("link", type=tarfile.SYMTYPE, linkname="../../etc"),
        member("deep/link", type=tarfile.SYMTYPE, linkname="../../out"),
        member("hard", type=tarfile.LNKTYPE, linkname="a.py"),
        member("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        member("disk", type=tarfile.BLKTYPE, devmajor=8),
        member("pipe", type=tarfile.FIFOTYPE),
        member("a.py", b"again"),
        member("a.py/b.py", b"x"),
        member("x" * 300, b"x"),
    ],
    ids=lambda one: f"{one[0].name[:20]} {one[0].type!r}",
)
def test_what_leads_out_of_an_archive_or_is_no_file_is_refused(tmp_path: Path, bad: Any) -> None:
    made = archive(tmp_path / "a.tar.gz", member("a.py", b"a = 1\n"), bad)
    outside = {path.name for path in tmp_path.iterdir()} | {"into"}
    with pytest.raises(ArchiveError):
        unpack(made, into(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == outside and not Path("/tmp/out.py").exists()


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    """A link inside, and a file below it: links come last, so that the file makes the directory first."""
    made = archive(
        tmp_path / "a.tar.gz",
        member("real/a.py", b"real"),
        member("link", type=tarfile.SYMTYPE, linkname="real"),
        member("link/a.py", b"through"),
    )
    with pytest.raises(ArchiveError):
        unpack(made, into(tmp_path))
    assert (tmp_path / "into" / "real" / "a.py").read_text() == "real"


def bomb_of_bytes(path: Path) -> None:
    info = tarfile.TarInfo("zeros.bin")
    info.size = 64 << 20
    with gzip.open(path, "wb", 9) as file:
        file.write(info.tobuf())
        for _ in range(64):
            file.write(bytes(1 << 20))


def bomb_of_files(path: Path) -> None:
    archive(path, *(member(f"f{number}") for number in range(200)))


def bomb_of_headers(path: Path) -> None:
    info = tarfile.TarInfo("a.py")
    info.pax_headers = {"comment": "x" * (8 << 20)}
    archive(path, (info, b""))


def bomb_that_lies(path: Path) -> None:
    info = tarfile.TarInfo("a.py")
    info.size = 1 << 40
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))


def cut_off(path: Path) -> None:
    archive(path, member("a.py", os.urandom(100_000)))
    path.write_bytes(path.read_bytes()[:50_000])


def no_archive(path: Path) -> None:
    path.write_bytes(b"<html>not found</html>")


def no_tar(path: Path) -> None:
    path.write_bytes(gzip.compress(b"hello" * 1000))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (bomb_of_bytes, "more than 16 MiB"),
        (bomb_of_files, "more than 100 files"),
        (bomb_of_headers, "headers"),
        (bomb_that_lies, "more than 16 MiB"),
        (cut_off, "damaged"),
        (no_archive, "damaged"),
        (no_tar, "damaged"),
    ],
)
def test_a_small_archive_of_much_and_a_damaged_one_end_in_a_sentence(
    tmp_path: Path, make: Callable[[Path], None], says: str
) -> None:
    make(tmp_path / "a.tar.gz")
    with pytest.raises(ArchiveError, match=says):
        unpack(tmp_path / "a.tar.gz", into(tmp_path), most_files=100, most_bytes=16 << 20)
    written = sum(path.stat().st_size for path in (tmp_path / "into").rglob("*") if path.is_file())
    assert written <= 16 << 20


def raw(name: str, data: bytes = b"", *, size: int | None = None, kind: bytes = b"0", link: str = "") -> bytes:
    """A member as no tar writes it: with any size in its header."""
    info, _ = member(name, data, type=kind, linkname=link)
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    if size is not None:
        header[124:136] = (256**12 + size).to_bytes(12 + 1, "big")[1:]
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + data + bytes(-len(data) % 512)


def said(**fields: str | bytes) -> bytes:
    """What is said of the next member beside its header."""
    lines = b""
    for key, text in fields.items():
        rest = f" {key.replace('_', '.')}=".encode() + (text if isinstance(text, bytes) else text.encode()) + b"\n"
        size = next(n for n in range(len(rest) + 8) if n == len(rest) + len(str(n)))
        lines += b"%d" % size + rest
    return raw("said", lines, kind=b"x")


@pytest.mark.parametrize(
    "tar",
    [
        raw("a", size=-1),
        raw("a", size=-511) + raw("b", b"abc"),
        raw("a", size=-(1 << 40)),
        said(size="-5") + raw("a"),
        said(comment="x") * 900 + raw("a"),
        raw("x", b"abc", kind=b"L") * 900 + raw("a"),
        said(path="a/" * 1900 + "b") + raw("a"),
        said(path="a/" * 9000 + "b") + raw("a"),
        said(path=b"a\0b") + raw("a"),
        said(linkpath=b"a\0b") + raw("a", kind=b"2", link="x"),
        said(GNU_sparse_map="1,x", GNU_sparse_size="5") + raw("a"),
        said(GNU_sparse_size="x") + raw("a"),
        said(GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize="-7") + raw("a", b"0\n"),
        said(GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize="7") + raw("a", b"q\n"),
        raw("d/e/up", kind=b"2", link="../..") + raw("out", kind=b"2", link="d/e/up/../outside"),
        raw("a", kind=b"7") + raw("b", kind=b"Z"),
    ],
)
def test_what_no_tar_writes_is_refused_in_a_sentence_and_by_nothing_else(tmp_path: Path, tar: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar + bytes(1024)))
    with pytest.raises(ArchiveError):
        unpack(tmp_path / "a.tar.gz", into(tmp_path))


def test_directories_and_headers_count_too(tmp_path: Path) -> None:
    """A small archive that names few files makes no million directories, and is not read for an hour."""
    for name, tar in (
        ("directories", b"".join(said(path=f"{n}/" + "a/" * 50 + "b") + raw("a") for n in range(10))),
        ("headers", (said(comment="x" * 1_000_000) + raw("a/", kind=b"5")) * 300),
    ):
        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar + bytes(1024), 1))
        place = tmp_path / name
        place.mkdir()
        with pytest.raises(ArchiveError, match="files" if name == "directories" else name):
            unpack(tmp_path / "a.tar.gz", place, most_files=400, most_bytes=1 << 20)
        assert sum(1 for _ in place.rglob("*")) <= 400


# -- the shelf


def shelved(shelf: Shelf, stamp: Stamp = STAMP, **more: Any) -> Path:
    file = archive(shelf.new_file(), member("a.py", b"a = 1\n"), member("sub/b.py", b"b = 2\n"))
    found = shelf.put(stamp, file, **more)
    found.close()
    return found.directory


@pytest.mark.inventory("P-363")
def test_a_commit_is_unpacked_once_and_found_again_by_others(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "code")
    assert shelf.find(STAMP) is None
    place = shelved(shelf)
    assert place == tmp_path / "code" / COMMIT / SHA256[:32]
    assert shelved(Shelf(tmp_path / "code")) == place, "who comes second uses what is there"
    found = Shelf(tmp_path / "code").find(STAMP)
    assert found is not None and (found.tree / "a.py").read_text() == "a = 1\n" and not found.archive.exists()
    found.close()
    assert [path.name for path in (tmp_path / "code").iterdir()] == [COMMIT]


def test_what_somebody_else_calls_this_commit_is_another_directory(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "code")
    shelved(shelf)
    assert shelf.find(Stamp(remote="r", commit=COMMIT, key=key_of(COMMIT, "c" * 64), sha256="c" * 64)) is None


@pytest.mark.parametrize("harm", ["emptied", "gone", "no mark", "half a mark"])
def test_a_half_one_is_not_trusted_and_made_anew(tmp_path: Path, harm: str) -> None:
    place = shelved(Shelf(tmp_path / "code"))
    if harm == "emptied":
        (place / "tree" / "a.py").write_bytes(b"")
    elif harm == "gone":
        (place / "tree" / "sub" / "b.py").unlink()
    elif harm == "no mark":
        (place / "whole.json").unlink()
    else:
        (place / "whole.json").write_text('{"fil')
    shelf = Shelf(tmp_path / "code")
    assert shelf.find(STAMP) is None
    assert shelved(shelf) == place and (place / "tree" / "a.py").read_text() == "a = 1\n"
    assert [path.name for path in (tmp_path / "code").iterdir()] == [COMMIT]


def test_a_bomb_leaves_nothing_on_the_shelf(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "code")
    file = shelf.new_file()
    no_tar(file)
    with pytest.raises(ArchiveError):
        shelf.put(STAMP, file)
    assert list((tmp_path / "code").iterdir()) == []


def test_what_nobody_uses_goes_and_what_somebody_imports_from_stays(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "code")
    stamps = [Stamp(remote="r", commit=f"{n:040x}", key="k", sha256=f"{n:064x}"[::-1]) for n in range(1, 4)]
    places = [shelved(shelf, stamp) for stamp in stamps]
    held = shelf.find(stamps[0])
    now = time.time()
    for place in places[:2]:
        os.utime(place / "whole.json", (now - UNUSED_S - 60,) * 2)
    shelf.prune(now)
    assert [place.exists() for place in places] == [True, False, True]
    assert held is not None
    held.close()
    shelf.prune(now)
    assert [place.exists() for place in places] == [False, False, True]
    os.utime(places[2] / "whole.json", (now - 7200,) * 2)
    shelf.prune(now, most=1)
    assert list((tmp_path / "code").iterdir()) == []


def test_code_is_run_from_no_directory_that_others_can_write_to(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "code")
    shelved(shelf)
    (tmp_path / "code").chmod(0o777)
    for use in (lambda: shelf.find(STAMP), shelf.new_file):
        with pytest.raises(ArchiveError, match="written by others"):
            use()


@pytest.mark.parametrize("first", [False, True], ids=["files first", "archive first"])
def test_who_wants_the_archive_itself_has_it_whoever_was_first(tmp_path: Path, first: bool) -> None:
    """A worker and a daemon of one account have one shelf."""
    place = shelved(Shelf(tmp_path / "code"), keep=first)
    assert shelved(Shelf(tmp_path / "code"), keep=not first) == place
    assert (place / "archive.tar.gz").exists()


def test_a_shelf_is_not_held_by_who_came_second(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "code")
    shelved(shelf)
    shelved(shelf)
    shelf.prune(time.time() + UNUSED_S + 60)
    assert list((tmp_path / "code").iterdir()) == []


# -- the tree


@pytest.mark.parametrize(
    ("remote", "told"),
    [
        ("https://u:p@h.example/x", "https://h.example/x"),
        ("https://token@h.example:8443/x", "https://h.example:8443/x"),
        ("https://u:p/w@h.example/x", "https://h.example/x"),
        ("https://u:p#w@h.example/x", "https://h.example/x"),
        ("https://u:p?w@h.example/x", "https://h.example/x"),
        ("https://h.example/x?access_token=secret#f", "https://h.example/x"),
        ("helper::https://u:p@h.example/x", "helper::https://h.example/x"),
        ("ssh://git:p@h.example/x", "ssh://git@h.example/x"),
        ("ssh://git@h.example/x", "ssh://git@h.example/x"),
        ("git@h.example:x", "git@h.example:x"),
        ("https://h.example:8443/a@b", "https://h.example:8443/a@b"),
        ("https://[bad/x", "https://[bad/x"),
        ("file:///a@b/c", "file:///a@b/c"),
        ("/a@b/c", "/a@b/c"),
    ],
)
def test_a_remotes_password_is_told_to_nobody(remote: str, told: str) -> None:
    assert without_login(remote) == told


# -- the stamp


@pytest.mark.inventory("P-364", "S-248", "P-191")
def test_a_stamp_travels_with_its_four_documented_keys() -> None:
    cfg = {"remote": "r", "commit": COMMIT, "archiveKey": key_of(COMMIT, SHA256), "storageName": None}
    found = read_stamp(cfg)
    assert found == STAMP
    assert {name: found.as_cfg()[name] for name in cfg} == cfg
    assert read_stamp(found.as_cfg()) == found


@pytest.mark.parametrize(
    "change",
    [
        {"commit": "../.."},
        {"commit": None},
        {"archiveKey": ""},
        {"archiveKey": "../../../v1/me"},
        {"sha256": "../../x"},
        {"size": -1},
        {"size": 1 << 40},
        {"storageName": 3},
        {"roots": ["/etc"]},
        {"roots": ["a/../../b"]},
        {"roots": []},
        {"roots": [1]},
    ],
)
def test_a_stamp_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ArchiveError):
        read_stamp({**STAMP.as_cfg(), **change})
    with pytest.raises(ArchiveError):
        read_stamp(json.dumps(STAMP.as_cfg()))


# -- looking without importing


SOURCE = '''
import functools

@functools.cache
def decorated(x):
    """Text
with no indent."""
    return x

async def later(x): return x

class Box:
    @staticmethod
    def of(x):
        return [
            x,
        ]

def last():
    pass  # with a comment
'''


@pytest.mark.parametrize("qualname", ["decorated", "later", "Box.of", "last"])
def test_a_source_is_hashed_as_if_it_had_been_imported(tmp_path: Path, qualname: str) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    path = tmp_path / "made_up.py"
    path.write_text(SOURCE)
    spec = spec_from_file_location("made_up", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part)
    found = getattr(found, "__wrapped__", found)
    assert static_hash(SOURCE, qualname) == source_hash(found) is not None


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return x",
        "\f\nY = 1\n\f\ndef f(x):\n    return x\n",
        "S = 'a\u2028b'\ndef f(x):\n    return x\n",
        "S = 'a\x85b\x1cc'\n\n\ndef f(x):\n    return 'a\x0bb'\n",
        "def f(x):\r\n    return x\r\n",
    ],
)
def test_lines_end_where_python_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    name = f"lines_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_bytes(source.encode())
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module(name).f
    del sys.modules[name]
    assert static_hash((tmp_path / f"{name}.py").read_text("utf-8"), "f") == source_hash(found) is not None


@pytest.mark.parametrize("qualname", ["nowhere", "Box", "Box.no"])
def test_what_only_running_it_would_tell_has_no_hash(qualname: str) -> None:
    assert static_hash(SOURCE, qualname) is None
    assert static_hash("def broken(", "broken") is None
