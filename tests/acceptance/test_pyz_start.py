"""The one file as a user starts it: the unpacked tree, what is trusted, and every way in which a machine says no."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from one_file import build, copy_checkout
from starting import CLEAN, ENTER, VERSION, environment, inside, mounted, trees, version

# --- the usual way


def test_the_first_run_unpacks_once_into_a_private_tree_and_imports_from_there_only(
    pyz: Path, private_cache: Path
) -> None:
    origins = inside(
        pyz,
        private_cache,
        "import click, msgpack\nfor m in (lakeshore, click, msgpack): print(m.__file__)\nprint(sys.path)",
    )
    (tree,) = trees(private_cache)
    assert tree.stat().st_mode & 0o777 == 0o700
    assert all(origin.startswith(f"{tree}/lakeshore/") for origin in origins[:3])
    assert str(pyz) not in origins[3]
    inode = tree.stat().st_ino
    assert version(pyz, private_cache).stderr == ""
    assert [path.stat().st_ino for path in trees(private_cache)] == [inode]
    assert [path.name for path in (private_cache / "lakeshore").iterdir()] == [tree.name]


def test_a_warm_start_imports_nothing_that_is_slow(pyz: Path, warm_cache: Path) -> None:
    done = subprocess.run(
        [*CLEAN, "-X", "importtime", pyz, "--version"],
        check=True,
        capture_output=True,
        text=True,
        env=environment(warm_cache),
    )
    loaded = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not loaded & {"zipfile", "hashlib", "pathlib", "tempfile", "shutil", "subprocess", "argparse", "click"}


def test_compiled_modules_come_from_the_archive_for_this_python(pyz: Path, warm_cache: Path) -> None:
    if not trees(warm_cache)[0].joinpath("lakeshore/_vendor/_native").is_dir():
        pytest.skip("no published wheels for this platform")
    lines = inside(
        pyz, warm_cache, "import msgpack, nacl.bindings\nprint(msgpack.Packer.__module__)\nprint(nacl.__file__)"
    )
    assert lines[0] == "msgpack._cmsgpack"
    assert "/_native/" in lines[1]


def test_without_a_matching_wheel_msgpack_is_pure_and_nothing_else_is_lost(private_cache: Path, tmp_path: Path) -> None:
    archive = tmp_path / "lakeshore"
    checkout = copy_checkout(tmp_path / "checkout")
    code = f"import build_pyz, pathlib; build_pyz.build(pathlib.Path({str(archive)!r}), [])"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=checkout)
    lines = inside(
        archive,
        private_cache,
        "import msgpack, importlib.util as u\nprint(msgpack.Packer.__module__, u.find_spec('nacl'))\n"
        "print(msgpack.unpackb(msgpack.packb([1])))",
    )
    assert lines == ["msgpack.fallback None", "[1]"]


def test_of_many_first_runs_at_once_one_unpacks_and_all_use_its_tree(pyz: Path, private_cache: Path) -> None:
    started = [
        subprocess.Popen([*CLEAN, pyz, "--version"], stdout=subprocess.PIPE, text=True, env=environment(private_cache))
        for _ in range(8)
    ]
    seen = set()
    while any(process.poll() is None for process in started):
        with contextlib.suppress(FileNotFoundError):
            seen |= {name for name in os.listdir(private_cache / "lakeshore") if re.fullmatch(r"\.\w{32}\.\w{8}", name)}
    assert all(VERSION.fullmatch(process.communicate()[0]) for process in started)
    assert len(seen) == 1
    assert [path.name for path in (private_cache / "lakeshore").iterdir()] == [trees(private_cache)[0].name]


def test_children_run_the_same_lakeshore(pyz: Path, warm_cache: Path) -> None:
    code = (
        "import subprocess\n"
        "from lakeshore._self import program, python_path\n"
        "print(program()[1]); print(*python_path())\n"
        "print(subprocess.check_output([*program(), '--version'], text=True), end='')\n"
        "import lakeshore._self as s; s._started = None\n"
        "print(program()[1])\n"
        "print(subprocess.check_output([*program(), '--version'], text=True), end='')\n"
    )
    lines = inside(pyz, warm_cache, code)
    (tree,) = trees(warm_cache)
    assert lines[:2] == [str(pyz), str(tree)]
    assert lines[3] == f"{tree}/lakeshore/__main__.py"
    assert lines[2] == lines[4]


@pytest.mark.parametrize("name", ["a link", "a copy"])
def test_started_as_nymph_its_children_are_not_taken_for_another_daemon(
    pyz: Path, warm_cache: Path, tmp_path: Path, name: str
) -> None:
    nymph = tmp_path / "nymph"
    if name == "a link":
        nymph.symlink_to(pyz)
    else:
        shutil.copy(pyz, nymph)
    code = (
        "import subprocess, lakeshore._self as s\n"
        f"s.started_from({str(nymph)!r})\n"  # as `__main__` does for the path that it was started by
        "print(s.program()[1])\n"
        "print(subprocess.check_output([*s.program(), 'jobs', '--help'], text=True).split()[0])\n"
    )
    path, first = inside(pyz, warm_cache, code)
    assert path == (str(pyz) if name == "a link" else f"{trees(warm_cache)[0]}/lakeshore/__main__.py")
    assert first == "Usage:"


# --- on PYTHONPATH


def test_on_pythonpath_the_archive_imports_and_shadows_nothing(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "h11.py").write_text("mine = True")
    code = (
        "import dreamlake.lakeshore as dls, lakeshore, sys\n"
        "import msgpack, httpx, cloudpickle, yaml, h11\n"
        "print(lakeshore.__file__); print(msgpack.__file__); print(h11.mine)"
    )
    done = subprocess.run(
        [*CLEAN, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env=environment(None, HOME=str(tmp_path), PYTHONPATH=f"{pyz}{os.pathsep}{tmp_path}"),
        cwd="/",  # not the checkout: `python -c` and `-m` look there first
    )
    assert done.returncode == 0, done.stderr
    ours, theirs, mine = done.stdout.splitlines()
    assert ours.startswith(f"{pyz}/lakeshore/")
    assert theirs.startswith(f"{pyz}/lakeshore/_vendor/")
    assert mine == "True"


def test_python_m_lakeshore_with_the_archive_on_pythonpath_starts_it(pyz: Path, warm_cache: Path) -> None:
    done = subprocess.run(
        [*CLEAN, "-m", "lakeshore", "--version"],
        check=True,
        capture_output=True,
        text=True,
        env=environment(warm_cache, PYTHONPATH=str(pyz)),
        cwd="/",  # not the checkout: `python -c` and `-m` look there first
    )
    assert VERSION.fullmatch(done.stdout)


# --- what is not trusted


def loosen(tree: Path) -> None:
    tree.chmod(0o755)


def link(tree: Path) -> None:
    tree.rename(tree.with_name("real"))
    tree.symlink_to("real")


def link_above(tree: Path) -> None:
    tree.parent.rename(tree.parent.with_name("real"))
    tree.parent.symlink_to("real")


def open_above(tree: Path) -> None:
    tree.parent.chmod(0o777)


def open_for_the_group(tree: Path) -> None:
    tree.parent.parent.chmod(0o770)


def give_away(tree: Path) -> None:
    os.chown(tree, 12345, -1)


@pytest.mark.parametrize("spoil", [loosen, link, link_above, open_above, open_for_the_group, give_away])
def test_a_tree_that_somebody_else_could_have_written_is_never_imported(
    pyz: Path, filled_cache: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    (tree,) = trees(filled_cache)
    (tree / "lakeshore" / "_version.py").write_text('__version__ = "evil"\n')
    (tree / "lakeshore" / "__pycache__").joinpath(f"_version.{sys.implementation.cache_tag}.pyc").unlink()
    try:
        spoil(tree)
    except PermissionError:
        pytest.skip("needs root")
    done = version(pyz, filled_cache, TMPDIR=str(tmp_path))
    assert "temporary directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


# --- what machines refuse


def test_without_a_usable_home_a_private_directory_serves_and_is_removed(pyz: Path, tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert version(pyz, None, HOME=str(occupied / "home"), TMPDIR=str(scratch)).stderr == ""
    assert list(scratch.iterdir()) == []


def test_a_read_only_home_is_no_obstacle(pyz: Path, private_cache: Path) -> None:
    done = mounted("ro,mode=700", private_cache, *CLEAN, str(pyz), "--version")
    assert VERSION.fullmatch(done.stdout), done.stderr


def test_where_nothing_may_be_executed_compiled_modules_come_from_elsewhere(pyz: Path, private_cache: Path) -> None:
    program = ENTER.format(pyz=str(pyz)) + "import msgpack\nprint(msgpack.Packer.__module__, lakeshore.__file__)"
    done = mounted("noexec,mode=700", private_cache, *CLEAN, "-c", program)
    assert done.returncode == 0, done.stderr
    assert str(private_cache) not in done.stdout


def test_a_full_disk_is_said_and_the_program_starts_all_the_same(pyz: Path, private_cache: Path) -> None:
    done = mounted("size=512k,mode=700", private_cache, *CLEAN, str(pyz), "--version")
    assert VERSION.fullmatch(done.stdout), done.stderr
    assert "no room to unpack" in done.stderr


def test_where_nothing_can_be_written_at_all_it_runs_from_the_archive_itself(
    pyz: Path, private_cache: Path, tmp_path: Path
) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = version(pyz, private_cache, before=small_files_only, TMPDIR=str(tmp_path))
    assert "running from the archive itself" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert list((private_cache / "lakeshore").iterdir()) == []


def test_a_tree_that_lost_files_is_completed_in_place(pyz: Path, filled_cache: Path) -> None:
    (tree,) = trees(filled_cache)
    inode = tree.stat().st_ino
    (tree / "lakeshore" / "_self.py").unlink()
    shutil.rmtree(tree / "lakeshore" / "_vendor" / "click")
    assert inside(pyz, filled_cache, "import click, lakeshore._self; print('whole')") == ["whole"]
    assert tree.stat().st_ino == inode
    assert (tree / "lakeshore" / "_self.py").exists()


def test_what_a_killed_unpacking_left_is_not_used_and_goes_away(pyz: Path, filled_cache: Path) -> None:
    (tree,) = trees(filled_cache)
    left = tree.with_name(f".{tree.name[:32]}.abcd_123")
    tree.rename(left)
    (left / ".lakeshore").unlink()
    long_ago = time.time() - 86400
    os.utime(left, (long_ago, long_ago))
    version(pyz, filled_cache)
    assert [path.name for path in tree.parent.iterdir()] == [tree.name]


def test_an_old_version_is_pruned_unless_somebody_uses_it(pyz: Path, filled_cache: Path) -> None:
    (tree,) = trees(filled_cache)
    used, unused, recent = (tree.with_name(letter * 32 + "-linux_x86_64") for letter in "abc")
    long_ago = time.time() - 40 * 86400
    for path in (used, unused, recent):
        path.mkdir(mode=0o700)
        (path / ".lakeshore").write_text("end")
        if path != recent:
            os.utime(path / ".lakeshore", (long_ago, long_ago))
    shutil.rmtree(tree)
    with open(used / ".lakeshore") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        version(pyz, filled_cache)
    assert {path.name for path in tree.parent.iterdir()} == {tree.name, used.name, recent.name}


def test_a_damaged_file_is_named_and_nothing_of_it_is_kept(pyz: Path, private_cache: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "lakeshore"
    body = bytearray(pyz.read_bytes())
    at = body.index(b"__version__ = ")
    body[at + 15] ^= 1
    damaged.write_bytes(body)
    done = subprocess.run(
        [*CLEAN, damaged, "--version"], check=False, capture_output=True, text=True, env=environment(private_cache)
    )
    assert done.returncode == 1
    assert "is damaged" in done.stderr
    assert list((private_cache / "lakeshore").iterdir()) == []


def test_the_tree_is_named_by_content_not_by_the_time_of_packing(private_cache: Path, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    paths = [tmp_path / name for name in ("first", "later", "other")]
    build(paths[0], checkout=checkout)
    build(paths[1], checkout=checkout, SOURCE_DATE_EPOCH="1700000000")
    (checkout / "lakeshore" / "another.py").touch()
    build(paths[2], checkout=checkout)
    counts = []
    for path in paths:
        version(path, private_cache)
        counts.append(len(trees(private_cache)))
    assert counts == [1, 1, 2]


@pytest.mark.skipif(importlib.util.find_spec("lakeshore.cli.main") is None, reason="the CLI is not there yet")
def test_help_from_a_warm_cache_comes_from_the_tree_and_loads_nothing_heavy(pyz: Path, warm_cache: Path) -> None:
    done = subprocess.run(
        [*CLEAN, "-X", "importtime", pyz, "--help"],
        check=False,
        capture_output=True,
        text=True,
        env=environment(warm_cache),
    )
    assert done.returncode == 0, done.stderr
    assert "lakeshore" in done.stdout
    loaded = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not loaded & {"httpx", "trio", "textual", "rich", "cattrs", "zipfile", "sqlite3", "ssl"}


# --- old interpreters


OLD = ("2.7.18", "3.6.15", "3.10.13")


def old_python(version: str) -> str:
    """One that pyenv has; else the test is skipped."""
    path = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions" / version / "bin" / "python"
    if not os.access(path, os.X_OK):
        pytest.skip(f"no Python {version} here")
    return str(path)


@pytest.mark.parametrize("old", OLD)
def test_an_old_python_hands_over_to_a_newer_one_on_path(pyz: Path, warm_cache: Path, tmp_path: Path, old: str) -> None:
    shim = tmp_path / "python3.14"
    shim.write_text("#!/bin/sh\nexit 127\n")  # a version manager's shim with nothing behind it
    shim.chmod(0o755)
    (tmp_path / "python3.11").symlink_to(os.path.realpath(sys.executable))
    done = subprocess.run(
        [old_python(old), pyz, "--version"],
        check=False,
        capture_output=True,
        text=True,
        env=environment(warm_cache, PATH=str(tmp_path)),
    )
    assert VERSION.fullmatch(done.stdout), done.stderr


@pytest.mark.parametrize("old", OLD)
def test_an_old_python_alone_is_told_what_was_found_and_what_to_install(
    pyz: Path, warm_cache: Path, tmp_path: Path, old: str
) -> None:
    done = subprocess.run(
        [old_python(old), pyz, "--version"],
        check=False,
        capture_output=True,
        text=True,
        env=environment(warm_cache, PATH=str(tmp_path)),
    )
    assert done.returncode == 2
    assert "needs Python 3.11 or newer. Found: " in done.stderr
    assert "apt install python3.11" in done.stderr
    assert "Traceback" not in done.stderr
