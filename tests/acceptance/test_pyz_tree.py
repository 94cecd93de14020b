"""The unpacked tree over its life: who wrote it, when, for which Pythons, and who still uses it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from one_file import build, copy_checkout
from starting import CLEAN, ENTER, TREE, VERSION, environment, inside, mounted, trees, version

from lakeshore._start import BOOT

STRANGER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
needs_boots = pytest.mark.skipif(not os.path.exists(BOOT), reason="the system does not name its boots")


def system_python() -> str:
    """One that every user may run; else the test is skipped."""
    path = shutil.which("python3", path="/usr/bin:/bin")
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    if path is None or subprocess.run([path, "-c", probe], check=False).returncode:
        pytest.skip("no Python 3.11 or newer in /usr/bin")
    return path


def another_python() -> str:
    """One of another version than ours; else the test is skipped."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}."
    for path in sorted(versions.glob("3.1[1-5].*/bin/python")):
        if not path.parts[-3].startswith(ours):
            return str(path)
    pytest.skip("no other Python here")


def marker(tree: Path) -> list[str]:
    return (tree / ".lakeshore").read_text().split("\n")


def rewrite(tree: Path, lines: list[str]) -> None:
    (tree / ".lakeshore").write_text("\n".join(lines))


# --- other users


@needs_root
def test_root_with_a_users_home_takes_nothing_from_it_and_leaves_nothing_in_it(
    pyz: Path, warm_cache: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)
    (tree,) = trees(warm_cache)
    planted = home / ".cache" / "lakeshore" / tree.name
    planted.parent.mkdir()
    shutil.copytree(tree, planted)
    (planted / "lakeshore" / "_version.py").write_text('__version__ = "evil"\n')
    shutil.rmtree(planted / "lakeshore" / "__pycache__")
    for path in (home, *home.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    before = sorted(home.rglob("*"))
    own = Path(pwd.getpwuid(0).pw_dir) / ".cache"
    own.mkdir(exist_ok=True)
    done = mounted("mode=755", own, *CLEAN, str(pyz), "--version", XDG_CACHE_HOME="", HOME=str(home))
    assert VERSION.fullmatch(done.stdout), done.stderr
    assert done.stderr == ""  # its own cache served
    assert sorted(home.rglob("*")) == before
    assert {path.lstat().st_uid for path in home.rglob("*")} == {STRANGER}


@needs_root
def test_a_user_with_roots_home_starts_and_leaves_nothing(pyz: Path, public_place: Path) -> None:
    home, scratch, copy = (public_place / name for name in ("home", "scratch", "lakeshore"))
    home.mkdir()
    scratch.mkdir(mode=0o700)
    os.chown(scratch, STRANGER, STRANGER)
    shutil.copy(pyz, copy)
    done = subprocess.run(
        [system_python(), "-S", str(copy), "--version"],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(scratch)},
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
    )
    assert VERSION.fullmatch(done.stdout), done.stderr
    assert list(home.iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_nothing_is_created_where_it_would_not_be_trusted(pyz: Path, private_cache: Path, tmp_path: Path) -> None:
    private_cache.chmod(0o777)
    done = version(pyz, private_cache / "deeper", TMPDIR=str(tmp_path))
    assert f"{private_cache} is writable by others" in done.stderr
    assert list(private_cache.iterdir()) == []


def test_a_home_in_a_sticky_directory_such_as_tmp_has_its_cache(pyz: Path, private_cache: Path, tmp_path: Path) -> None:
    private_cache.chmod(0o1777)
    done = version(pyz, private_cache / "deeper", TMPDIR=str(tmp_path))
    assert VERSION.fullmatch(done.stdout)
    assert done.stderr == ""
    assert [path.name for path in private_cache.iterdir()] == ["deeper"]


# --- a tree that is not whole


def half(lines: list[str]) -> list[str]:
    return lines[: len(lines) // 2]


def emptied(_lines: list[str]) -> list[str]:
    return [""]


def of_an_earlier_form(lines: list[str]) -> list[str]:
    return [lines[0], *lines[3:]]


@pytest.mark.parametrize("spoil", [half, emptied, of_an_earlier_form])
def test_a_marker_that_is_not_whole_has_the_tree_compared_with_the_archive(
    pyz: Path, filled_cache: Path, spoil: Callable[[list[str]], list[str]]
) -> None:
    (tree,) = trees(filled_cache)
    (tree / "lakeshore" / "_self.py").write_text("half of a fi")
    rewrite(tree, spoil(marker(tree)))
    assert inside(pyz, filled_cache, "print(lakeshore._self.program()[1])") == [str(pyz)]
    assert marker(tree)[-1] == "end"


@needs_boots
def test_a_first_run_waits_for_no_disk_and_after_a_restart_the_tree_is_checked_and_synced_once(
    pyz: Path, private_cache: Path, tmp_path: Path
) -> None:
    if not shutil.which("strace"):
        pytest.skip("no strace here")

    def syncs() -> int:
        log = tmp_path / "syncs"
        traced = ["strace", "-f", "-e", "trace=fsync,fdatasync,sync,syncfs", "-o", str(log)]
        done = subprocess.run(
            [*traced, *CLEAN, pyz, "--version"],
            check=False,
            capture_output=True,
            text=True,
            env=environment(private_cache),
        )
        assert VERSION.fullmatch(done.stdout), done.stderr
        return log.read_text().count("sync(")

    assert syncs() == 0
    (tree,) = trees(private_cache)
    lines = marker(tree)
    rewrite(tree, [lines[0], "another-boot", *lines[2:]])
    (tree / "lakeshore" / "_self.py").write_bytes(b"\0" * 100)  # what a power cut leaves of a file
    (compiled,) = (tree / "lakeshore" / "__pycache__").glob("_vendored.*.pyc")
    compiled.write_bytes(compiled.read_bytes()[:40])
    assert syncs() > 100
    assert marker(tree)[1] == ""
    assert syncs() == 0
    assert b"\0" not in (tree / "lakeshore" / "_self.py").read_bytes()


def test_where_python_may_not_write_bytecode_our_modules_and_what_commands_load_are_compiled_ahead(
    pyz: Path, private_cache: Path
) -> None:
    version(pyz, private_cache, PYTHONDONTWRITEBYTECODE="1")
    (tree,) = trees(private_cache)
    assert list((tree / "lakeshore" / "sdk" / "__pycache__").glob("functions.*.pyc"))
    assert list((tree / "lakeshore" / "_vendor" / "click" / "__pycache__").glob("core.*.pyc"))


# --- for which Python


def test_a_second_python_completes_the_tree_with_its_own_compiled_modules(pyz: Path, filled_cache: Path) -> None:
    other = another_python()
    (tree,) = trees(filled_cache)
    inode = tree.stat().st_ino
    native = tree / "lakeshore" / "_vendor" / "_native"
    if not native.is_dir():
        pytest.skip("no published wheels for this platform")
    ours = {path.name for path in native.glob("*/*")}
    program = ENTER.format(pyz=str(pyz)) + "import msgpack\nprint(msgpack.Packer.__module__)"
    done = subprocess.run(
        [other, "-S", "-c", program], check=False, capture_output=True, text=True, env=environment(filled_cache)
    )
    assert done.stdout.splitlines()[1:] == ["msgpack._cmsgpack"], done.stderr
    assert tree.stat().st_ino == inode
    assert len({path.name for path in native.glob("*/*")} - ours) == 1
    assert len(marker(tree)[2].split()) == 2
    done = subprocess.run([*CLEAN, pyz, "--version"], check=True, capture_output=True, env=environment(filled_cache))
    assert len(marker(tree)[2].split()) == 2


def test_a_python_without_a_gil_is_not_given_modules_of_the_stable_abi(pyz: Path, warm_cache: Path) -> None:
    code = (
        "import sys; from lakeshore._vendored import _HERE, _native\n"
        "sys.abiflags = 't'\n"
        "print(_native(_HERE + '/_vendor'))"
    )
    assert inside(pyz, warm_cache, code) == ["[]"]


# --- on PYTHONPATH


@pytest.mark.parametrize("place", ["the file", "its tree", "the file, not unpacked"])
def test_in_a_checkout_the_file_on_the_path_brings_what_the_checkout_has_not(
    pyz: Path, warm_cache: Path, tmp_path: Path, place: str
) -> None:
    for name in ("lakeshore", "dreamlake"):
        shutil.copytree(Path(__file__).parents[2] / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "jobs.py").write_text(
        "import dreamlake.lakeshore as dls\n\n\n@dls.udf(queue='cpu')\ndef square(x):\n    return x * x\n"
    )
    cache = tmp_path / "nothing" if place.endswith("not unpacked") else warm_cache
    on_path = trees(warm_cache)[0] if place == "its tree" else pyz
    there = environment(cache, PYTHONPATH=str(on_path), LAKESHORE_HOME=str(tmp_path / "home"), LAKESHORE_QUEUE="cpu")
    started = {"cwd": tmp_path, "env": there, "check": True, "capture_output": True, "text": True}
    subprocess.run([*CLEAN, "-c", "from jobs import square; square.submit(7, _key='seven')"], **started)
    subprocess.run([*CLEAN, "-m", "dreamlake.lakeshore.daemon", "--once"], **started)
    asked = "from jobs import square; import lakeshore; print(square(7, _key='seven'), lakeshore.__file__)"
    done = subprocess.run([*CLEAN, "-c", asked], **started)
    assert done.stdout == f"49 {tmp_path}/lakeshore/__init__.py\n"


def test_an_import_from_pythonpath_goes_on_in_the_unpacked_tree(pyz: Path, warm_cache: Path) -> None:
    (tree,) = trees(warm_cache)
    code = (
        "import dreamlake.lakeshore as dls\n"
        "print(dls.udf.__module__, __import__('sys').modules['lakeshore.sdk.functions'].__file__)\n"
        "import msgpack; print(msgpack.__file__)"
    )
    done = subprocess.run(
        [*CLEAN, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env=environment(warm_cache, PYTHONPATH=str(pyz)),
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    functions, theirs = done.stdout.splitlines()
    assert functions == f"lakeshore.sdk.functions {tree}/lakeshore/sdk/functions.py"
    assert theirs.startswith(f"{tree}/lakeshore/_vendor/")


def test_an_import_from_pythonpath_neither_unpacks_nor_trusts_what_the_program_would_not(
    pyz: Path, private_cache: Path, filled_cache: Path
) -> None:
    code = "import lakeshore.sdk.functions as f; print(f.__file__)"
    (tree,) = trees(filled_cache)
    tree.chmod(0o755)
    for cache in (filled_cache, filled_cache / "none"):
        done = subprocess.run(
            [*CLEAN, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env=environment(cache, PYTHONPATH=str(pyz)),
            cwd="/",
        )
        assert done.stdout.startswith(f"{pyz}/lakeshore/")
    assert not (filled_cache / "none").exists()


# --- pruning


@contextlib.contextmanager
def running(command: list[str], **more: str):  # type: ignore[no-untyped-def]
    """A process that has said `ready` and runs until the block ends."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **more}, cwd="/"
    ) as process:
        assert process.stdout is not None
        while (line := process.stdout.readline()) and line != "ready\n":
            pass
        assert line == "ready\n"
        yield
        process.communicate("")


@pytest.mark.parametrize("way", ["program", "import"])
def test_a_new_version_prunes_an_old_one_only_when_nobody_runs_it(
    pyz: Path, filled_cache: Path, tmp_path: Path, way: str
) -> None:
    (old,) = trees(filled_cache)
    (old.parent / ("f" * 32 + "-linux_x86_64")).mkdir(mode=0o700)  # not ours to judge: it has no marker yet
    checkout = copy_checkout(tmp_path / "checkout")
    newer = []
    for name in ("second", "third"):
        (checkout / "lakeshore" / f"{name}.py").touch()
        build(tmp_path / name, checkout=checkout)
        newer.append(tmp_path / name)

    wait = "print('ready', flush=True); import sys; sys.stdin.read()"
    if way == "program":
        command, more = [*CLEAN, "-c", ENTER.format(pyz=str(pyz)) + wait], {"XDG_CACHE_HOME": str(filled_cache)}
    else:
        command = [*CLEAN, "-c", "import dreamlake.lakeshore\n" + wait]
        more = {"XDG_CACHE_HOME": str(filled_cache), "PYTHONPATH": str(pyz)}
    long_ago = time.time() - 40 * 86400
    with running(command, **more):
        os.utime(old / ".lakeshore", (long_ago, long_ago))
        version(newer[0], filled_cache)
        assert old.is_dir()
    version(newer[1], filled_cache)
    assert not old.exists()
    assert len([path for path in trees(filled_cache) if TREE.fullmatch(path.name)]) == 3
