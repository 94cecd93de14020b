"""scripts/install.sh when something is wrong: it says what, and what was there stays as it was."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installing import (
    PATH,
    SCRIPT,
    Web,
    alone,
    environment,
    install,
    installed,
    nobody_listens,
    program,
    publish,
    small_file,
    somebody,
    toolbox,
)

BOTH = ["lakeshore", "nymph"]
OLD, NEW = small_file("1.0.0"), small_file("2.0.0", padding=200_000)


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    """A destination with version 1.0.0 in it."""
    place = tmp_path / "bin"
    done = install(publish(tmp_path / "older", "1.0.0", OLD), place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return publish(tmp_path / "base", "2.0.0", NEW)


@pytest.fixture
def web(base: Path) -> Iterator[Web]:
    with Web(base) as served:
        yield served


def refused(done: subprocess.CompletedProcess[str], dest: Path, *, code: int = 1) -> str:
    """What it said, after a look at what it left."""
    assert (done.returncode, installed(dest)) == (code, BOTH), done.stderr
    assert (dest / "lakeshore").read_bytes() == OLD
    assert done.stdout == ""
    return done.stderr


# --- what is fetched


def wrong_checksum(web: Web) -> None:
    publish(web.root, "2.0.0", NEW, checksum="ab" * 32)


def no_checksum(web: Web) -> None:
    (web.root / "latest" / "lakeshore.sha256").unlink()


def empty_checksum(web: Web) -> None:
    (web.root / "latest" / "lakeshore.sha256").write_text("")


def no_file(web: Web) -> None:
    (web.root / "latest" / "lakeshore").unlink()


def truncated_file(web: Web) -> None:
    (web.root / "latest" / "lakeshore").write_bytes(NEW[:-1])


def a_page_for_everything(web: Web) -> None:
    web.spoil = {"/latest/lakeshore.sha256": "html", "/latest/lakeshore": "html"}


def a_page_for_the_file(web: Web) -> None:
    web.spoil = {"/latest/lakeshore": "html"}


def a_connection_that_breaks_off(web: Web) -> None:
    web.spoil = {"/latest/lakeshore": "short"}


def another_program(web: Web) -> None:
    publish(web.root, "2.0.0", b"#!/bin/sh\necho hello\n")


OVER_HTTP: dict[Callable[[Web], None], str] = {
    wrong_checksum: r"does not have its checksum, so it is not installed\.\n  expected abab.*\n  got      [0-9a-f]{64}",
    no_checksum: r"cannot get .*/latest/lakeshore\.sha256: .*404",
    empty_checksum: "holds no checksum",
    no_file: r"cannot get .*/latest/lakeshore: .*404",
    truncated_file: "does not have its checksum",
    a_page_for_everything: r"holds no checksum \(is it a web page\?\)",
    a_page_for_the_file: "does not have its checksum",
    a_connection_that_breaks_off: "cannot get .*/latest/lakeshore: ",
    another_program: "is not a Lakeshore file",
}


@pytest.mark.parametrize("spoil", OVER_HTTP, ids=lambda spoil: spoil.__name__)
@pytest.mark.inventory("N-301", "C-833")
def test_a_release_that_is_not_whole_leaves_the_old_version(web: Web, dest: Path, spoil: Callable[[Web], None]) -> None:
    spoil(web)
    said = refused(install(web.url, dest), dest)
    assert re.search(OVER_HTTP[spoil], said), said
    assert "Nothing was changed." in said or "try again" in said


@pytest.mark.parametrize("spoil", [wrong_checksum, no_checksum, empty_checksum, no_file, truncated_file])
def test_so_does_a_directory_that_is_not_whole(web: Web, dest: Path, spoil: Callable[[Web], None]) -> None:
    spoil(web)
    refused(install(web.root, dest), dest)


def test_a_version_that_does_not_exist_is_named_with_where_it_was_looked_for(web: Web, dest: Path) -> None:
    said = refused(install(web.url, dest, "--version", "7.7.7"), dest)
    assert f"{web.url}/7.7.7/lakeshore.sha256" in said
    assert "Is there a release '7.7.7'? LAKESHORE_BASE_URL says where to look." in said


def test_a_release_under_another_ones_name_is_refused(base: Path, dest: Path) -> None:
    shutil.copytree(base / "2.0.0", base / "2.1.0")
    said = refused(install(base, dest, "--version", "2.1.0"), dest)
    assert "says that it is version 2.0.0" in said


@pytest.mark.parametrize("downloader", ["curl", "wget"])
def test_a_base_that_nobody_serves_is_said_with_the_reason(tmp_path: Path, dest: Path, downloader: str) -> None:
    path = toolbox(tmp_path / "tools", downloader, "sha256sum", "python3")
    with nobody_listens() as url:
        said = refused(install(url, dest, shell=[shutil.which("sh") or "sh"], PATH=path), dest)
    assert url in said
    assert "refused" in said or "connect" in said


def test_a_proxy_that_is_set_is_mentioned_and_no_password_is_shown(dest: Path) -> None:
    with nobody_listens() as url:
        proxy, base = url.replace("//", "//me:open-sesame@"), url.replace("//", "//you:abracadabra@")
        said = refused(install(base, dest, http_proxy=proxy, no_proxy=""), dest)
    assert "a proxy is set in the environment" in said
    assert "sesame" not in said
    assert "abracadabra" not in said


@pytest.mark.parametrize("base", ["/no/such/place", "file:///no/such/place", "ftp://example.org/lakeshore"])
def test_a_base_that_is_none_is_said(dest: Path, base: str) -> None:
    said = refused(install(base, dest), dest, code=2 if base.startswith("ftp") else 1)
    assert base in said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupted_run_leaves_the_old_version(
    web: Web, dest: Path, tmp_path: Path, number: int, code: int
) -> None:
    web.spoil = {"/latest/lakeshore": "stall"}
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        ["sh", SCRIPT, "--dest", dest],
        env=environment(LAKESHORE_BASE_URL=web.url, TMPDIR=str(scratch)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert web.stalled.wait(60)
    os.killpg(process.pid, number)  # as a terminal does: the shell and its child
    process.communicate(timeout=60)
    assert process.returncode == code
    assert (dest / "lakeshore").read_bytes() == OLD
    assert installed(dest) == BOTH
    assert installed(scratch) == [] or number == signal.SIGKILL


# --- the machine


def test_what_a_killed_run_left_in_the_destination_is_removed_by_a_later_one(base: Path, dest: Path) -> None:
    left = dest / ".lakeshore.aB3dEf"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    assert install(base, dest).returncode == 0
    assert installed(dest) == BOTH


def test_a_full_destination_keeps_the_old_version(base: Path, tmp_path: Path) -> None:
    place = tmp_path / "small disk"
    place.mkdir()
    older = publish(tmp_path / "older", "1.0.0", OLD)
    see = (
        f"sh {SCRIPT} --dest '{place}' && export LAKESHORE_BASE_URL={base}; "
        f"sh {SCRIPT} --dest '{place}'; echo $?; ls -A '{place}'"
    )
    done = subprocess.run(
        [*alone(f"tmpfs size=64k {place}"), "sh", "-c", see],
        check=False,
        capture_output=True,
        text=True,
        env=environment(LAKESHORE_BASE_URL=str(older)),
    )
    assert done.stdout.split() == ["1", *BOTH], done.stderr
    assert "is the disk full?" in done.stderr


def test_a_full_temporary_directory_is_said(base: Path, dest: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    said = refused(install(base, dest, under=alone(f"tmpfs size=64k {scratch}"), TMPDIR=str(scratch)), dest)
    assert "No space left on device" in said
    said = refused(install(base, dest, TMPDIR=str(scratch / "missing")), dest)
    assert "set TMPDIR" in said


def test_a_temporary_directory_where_nothing_may_run_is_enough(base: Path, dest: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = install(base, dest, under=alone(f"tmpfs noexec {scratch}"), TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert (dest / "lakeshore").read_bytes() == NEW


def test_a_read_only_destination_is_said_and_sudo_is_not_tried_by_root(base: Path, tmp_path: Path) -> None:
    place = tmp_path / "read only"
    place.mkdir()
    done = install(base, place, under=alone(f"tmpfs ro {place}"))
    assert done.returncode == 1
    assert f"{place} cannot be written, not even by root" in done.stderr


def test_without_sudo_a_destination_that_is_not_writable_is_a_clear_error(public_place: Path) -> None:
    path = toolbox(public_place / "tools", "sha256sum")
    base = publish(public_place / "base", "2.0.0", NEW)
    shutil.copy(SCRIPT, public_place)
    done = subprocess.run(
        [*somebody(), shutil.which("sh") or "sh", public_place / "install.sh", "--dest", public_place / "bin"],
        check=False,
        capture_output=True,
        text=True,
        env=environment(LAKESHORE_BASE_URL=str(base), PATH=path),
    )
    if os.geteuid() != 0:
        pytest.skip("needs a directory of somebody else's")
    assert done.returncode == 1
    assert f"{public_place} is not writable by you, and there is no sudo" in done.stderr
    assert "--dest ~/.local/bin" in done.stderr
    assert not (public_place / "bin").exists()


def test_without_home_everything_works_but_a_tilde(base: Path, tmp_path: Path) -> None:
    assert install(base, tmp_path / "bin", HOME="unset").returncode == 0
    done = install(base, None, "--dest=~/bin", HOME="unset")
    assert done.returncode == 2
    assert "give --dest a full path" in done.stderr


@pytest.mark.inventory("N-299", "N-418")
@pytest.mark.parametrize(("system", "said"), [("MINGW64_NT-10.0", "WSL"), ("SunOS", "runs on Linux and macOS")])
def test_another_system_than_linux_and_macos_is_refused_before_anything_else(
    base: Path, dest: Path, tmp_path: Path, system: str, said: str
) -> None:
    program(tmp_path / "uname", f"#!/bin/sh\necho {system}\n")
    assert said in refused(install(base, dest, PATH=f"{tmp_path}:{PATH}"), dest)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64", "armv7l"])
def test_one_file_serves_every_machine(base: Path, tmp_path: Path, machine: str) -> None:
    program(tmp_path / "uname", f"#!/bin/sh\ncase $1 in -s) echo Linux ;; *) echo {machine} ;; esac\n")
    assert install(base, tmp_path / "bin", PATH=f"{tmp_path}:{PATH}").returncode == 0


# --- Python


def no_python(folder: Path) -> list[str]:
    return []


def an_old_python(folder: Path) -> list[str]:
    return [str(program(folder / "python3", "#!/bin/sh\necho 3.9\nexit 1\n"))]


def a_broken_python(folder: Path) -> list[str]:
    return [str(program(folder / "python3", "#!/bin/sh\nexit 127\n"))]


@pytest.mark.parametrize(
    ("have", "found"),
    [(no_python, "there is no python3"), (an_old_python, "{} 3.9"), (a_broken_python, "{} does not start")],
)
def test_without_a_python_the_file_is_installed_and_it_is_said_what_to_install(
    base: Path, tmp_path: Path, have: Callable[[Path], list[str]], found: str
) -> None:
    path = toolbox(tmp_path / "tools", "sha256sum")
    found = found.format(*have(tmp_path / "tools"))
    done = install(base, tmp_path / "bin", shell=[shutil.which("sh") or "sh"], PATH=path)
    assert done.returncode == 0
    assert installed(tmp_path / "bin") == BOTH
    assert f"Python 3.11 or newer is needed to run it, and was not found on PATH ({found}).\n" in done.stderr
    assert "Install one: " in done.stderr


def test_a_newer_python_beside_an_old_one_is_found(base: Path, tmp_path: Path) -> None:
    path = toolbox(tmp_path / "tools", "sha256sum")
    an_old_python(tmp_path / "tools")
    (tmp_path / "tools" / "python3.11").symlink_to(os.path.realpath(sys.executable))
    done = install(base, tmp_path / "bin", shell=[shutil.which("sh") or "sh"], PATH=path)
    assert done.returncode == 0, done.stderr
    assert "is needed" not in done.stderr


def test_a_file_that_does_not_start_is_a_failure(tmp_path: Path) -> None:
    body = b"#!/usr/bin/env python3\n# lakeshore 3.0.0\nraise SystemExit('no sqlite3 in this Python')\n"
    done = install(publish(tmp_path / "base", "3.0.0", body), tmp_path / "bin")
    assert done.returncode == 1
    assert "is in place but does not start" in done.stderr
    assert "no sqlite3 in this Python" in done.stderr


# --- what is there already


@pytest.mark.parametrize("kind", ["script", "dangling link"])
def test_a_lakeshore_that_is_not_ours_is_replaced_only_by_force(base: Path, tmp_path: Path, kind: str) -> None:
    dest = tmp_path / "bin"
    dest.mkdir()
    if kind == "script":
        program(dest / "lakeshore", "#!/bin/sh\necho the one of pip\n")
    else:
        (dest / "lakeshore").symlink_to("../lib/gone")
    done = install(base, dest)
    assert done.returncode == 1
    assert "add --force" in done.stderr
    assert installed(dest) == ["lakeshore"]
    assert install(base, dest, "--force").returncode == 0
    assert (dest / "lakeshore").read_bytes() == NEW


def test_a_nymph_that_is_not_ours_stays(base: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "nymph", "#!/bin/sh\n")
    done = install(base, tmp_path / "bin")
    assert done.returncode == 0
    assert "nymph is something else and stays" in done.stderr
    assert (tmp_path / "bin" / "nymph").read_text() == "#!/bin/sh\n"


def test_a_directory_of_that_name_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "lakeshore").mkdir(parents=True)
    done = install(base, tmp_path / "bin")
    assert done.returncode == 1
    assert "is a directory" in done.stderr


def test_it_is_said_when_the_path_leads_elsewhere(base: Path, dest: Path, tmp_path: Path) -> None:
    path = PATH
    assert "is not on your PATH" in install(base, tmp_path / "a b", PATH=path).stderr
    assert "note:" not in install(base, tmp_path / "a b", PATH=f"{tmp_path}/a b:{path}").stderr
    assert f"another lakeshore comes first on your PATH: {dest}" in (
        install(base, tmp_path / "a b", PATH=f"{dest}:{tmp_path}/a b:{path}").stderr
    )


# --- usage


@pytest.mark.parametrize(
    "arguments", [["--prefix", "/opt"], ["--version"], ["--version", "../1"], ["--version="], ["--dest="], ["now"]]
)
def test_what_is_not_understood_is_shown_the_usage_and_nothing_happens(
    base: Path, tmp_path: Path, arguments: list[str]
) -> None:
    done = install(base, tmp_path / "bin", *arguments)
    assert done.returncode == 2
    assert "Usage: install.sh" in done.stderr
    assert installed(tmp_path / "bin") == []


def test_help_is_data(tmp_path: Path) -> None:
    done = install("unset", None, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--uninstall" in done.stdout
    assert "LAKESHORE_BASE_URL" in done.stdout
