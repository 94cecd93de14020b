"""scripts/install.sh as it is documented: in every shell, from every kind of base, and again for the next version."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from installing import (
    SCRIPT,
    Web,
    alone,
    busybox_tools,
    copy_with_libraries,
    environment,
    install,
    installed,
    program,
    publish,
    small_file,
    somebody,
    toolbox,
)
from one_file import load_build

BOTH = ["lakeshore", "nymph"]
SHELLS = {"dash": ["dash"], "bash": ["bash"], "bash-posix": ["bash", "--posix"], "busybox": ["busybox", "sh"]}


@pytest.fixture(scope="session")
def release(pyz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built file, laid out as `build_pyz.py --release` does."""
    folder = tmp_path_factory.mktemp("released") / "the release"
    load_build().release(pyz, folder)
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory with releases 1.0.0 and 2.0.0, which is the latest."""
    publish(tmp_path / "base", "1.0.0", small_file("1.0.0"))
    return publish(tmp_path / "base", "2.0.0", small_file("2.0.0"))


@pytest.fixture
def web(base: Path) -> Iterator[Web]:
    with Web(base) as served:
        yield served


# --- the built file, in every shell


@pytest.mark.inventory("N-009")
def test_a_release_is_one_file_with_its_checksum_by_version_and_as_the_latest(release: Path, pyz: Path) -> None:
    body, version = pyz.read_bytes(), load_build().version()
    digest = hashlib.sha256(body).hexdigest()
    for name in (version, "latest"):
        assert (release / name / "lakeshore").read_bytes() == body
        assert (release / name / "lakeshore.sha256").read_text() == f"{digest}  lakeshore\n"
    assert sorted(one.name for one in release.iterdir()) == sorted([version, "latest", "install.sh"])


@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
@pytest.mark.inventory("C-832", "N-304")
def test_the_built_file_is_installed_and_starts(
    release: Path, warm_cache: Path, tmp_path: Path, shell: list[str]
) -> None:
    if not shutil.which(shell[0]):
        pytest.skip(f"needs {shell[0]}")
    dest = tmp_path / "a place" / "bin"
    done = install(release, dest, shell=shell, XDG_CACHE_HOME=str(warm_cache))
    assert done.returncode == 0, done.stderr
    assert installed(dest) == BOTH
    told = subprocess.check_output(
        [dest / "lakeshore", "--version"], text=True, env=environment(XDG_CACHE_HOME=str(warm_cache))
    )
    version = told.split()[1]
    assert f"lakeshore {version} is installed: {dest}/lakeshore\n" in done.stderr
    assert done.stdout == ""
    assert (dest / "lakeshore").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "command",
    [
        'bash -c "$(cat {script})" install.sh --dest {dest}',
        "cat {script} | sh -s -- --dest {dest}",
        "cat {script} | bash -s -- --dest {dest}",
        "cat {script} | busybox sh -s -- --dest {dest}",
        "sh -s -- --dest={dest} < {script}",
        "cd {dest}/.. && sh {script} --dest bin",
    ],
)
def test_every_way_to_hand_a_shell_the_script_works(base: Path, tmp_path: Path, command: str) -> None:
    if "busybox" in command and not shutil.which("busybox"):
        pytest.skip("needs busybox")
    dest = tmp_path / "bin"
    dest.mkdir()
    done = subprocess.run(
        ["bash", "-c", command.format(script=SCRIPT, dest=dest)],
        check=False,
        capture_output=True,
        text=True,
        env=environment(LAKESHORE_BASE_URL=str(base)),
    )
    assert done.returncode == 0, done.stderr
    assert installed(dest) == BOTH
    assert subprocess.check_output([dest / "lakeshore"], text=True) == "lakeshore 2.0.0\n"


@pytest.mark.inventory("N-298", "C-831", "N-302")
def test_curl_into_bash_installs_into_usr_local_bin_without_sudo_where_that_is_writable(
    release: Path, warm_cache: Path
) -> None:
    if os.path.realpath(sys.executable).startswith("/usr/local/bin/"):
        pytest.skip("this Python itself lies in /usr/local/bin, which the test hides")
    see = (
        "curl -fsSL $LAKESHORE_BASE_URL/install.sh | bash && ls /usr/local/bin"
        " && readlink /usr/local/bin/nymph && /usr/local/bin/lakeshore --version"
    )
    with Web(release) as served:
        tools = Path(served.root).parent / "tools"
        tools.mkdir(exist_ok=True)
        if not (tools / "python3").exists():
            (tools / "python3").symlink_to(os.path.realpath(sys.executable))
        program(tools / "sudo", "#!/bin/sh\necho sudo was called >&2\nexit 1\n")
        done = subprocess.run(
            [*alone("tmpfs mode=755 /usr/local/bin"), "bash", "-c", see],
            check=False,
            capture_output=True,
            text=True,
            env=environment(
                LAKESHORE_BASE_URL=served.url,
                XDG_CACHE_HOME=str(warm_cache),
                PATH=f"{tools}:/usr/local/bin:/usr/bin:/bin",
            ),
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:4] == ["lakeshore", "nymph", "lakeshore", "lakeshore"]
    assert "sudo" not in done.stderr


def test_a_script_that_arrived_in_part_does_nothing(base: Path, tmp_path: Path) -> None:
    whole = SCRIPT.read_bytes()
    cuts = {*range(0, len(whole), 1499), *range(whole.rindex(b"if :; then"), len(whole) - 1)}
    dest = tmp_path / "bin"
    run = "i=0; for cut in $CUTS; do head -c $cut $SCRIPT | $SHELL_OF_USER -s -- --dest $DEST >/dev/null 2>&1; done"
    for shell in ("dash", "bash"):
        subprocess.run(
            ["sh", "-c", run],
            check=False,
            env=environment(
                LAKESHORE_BASE_URL=str(base),
                CUTS=" ".join(map(str, sorted(cuts))),
                SCRIPT=str(SCRIPT),
                DEST=str(dest),
                SHELL_OF_USER=shell,
            ),
        )
        assert installed(dest) == []


def test_shellcheck_finds_nothing() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("needs shellcheck")
    done = subprocess.run(["shellcheck", "-s", "sh", SCRIPT], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# --- which version


@pytest.mark.inventory("N-303", "N-010")
def test_the_latest_release_is_the_default_and_a_version_can_be_named(base: Path, tmp_path: Path) -> None:
    assert "lakeshore 2.0.0 is installed" in install(base, tmp_path / "one").stderr
    for spelled in (["--version", "1.0.0"], ["--version=v1.0.0"]):
        dest = tmp_path / spelled[0]
        assert "lakeshore 1.0.0 is installed" in install(base, dest, *spelled).stderr
        assert subprocess.check_output([dest / "lakeshore"], text=True) == "lakeshore 1.0.0\n"


def test_a_second_run_upgrades_and_says_from_what_to_what(base: Path, tmp_path: Path) -> None:
    dest = tmp_path / "bin"
    install(base, dest, "--version", "1.0.0")
    with open(dest / "lakeshore", "rb") as running:  # who runs the old one keeps it
        done = install(base, dest)
        assert running.read() == small_file("1.0.0")
    assert f"lakeshore 1.0.0 is upgraded to 2.0.0: {dest}/lakeshore\n" in done.stderr
    assert (dest / "lakeshore").read_bytes() == small_file("2.0.0")
    assert installed(dest) == BOTH


def test_the_same_version_is_said_to_be_there_and_is_not_downloaded(web: Web, tmp_path: Path) -> None:
    dest = tmp_path / "bin"
    install(web.url, dest)
    inode = (dest / "lakeshore").stat().st_ino
    web.asked.clear()
    done = install(web.url, dest)
    assert (done.returncode, web.asked) == (0, ["/latest/lakeshore.sha256"])
    assert f"lakeshore 2.0.0 is installed already: {dest}/lakeshore\n" in done.stderr
    assert (dest / "lakeshore").stat().st_ino == inode


def test_another_build_of_the_same_version_replaces_it(base: Path, tmp_path: Path) -> None:
    dest = tmp_path / "bin"
    install(base, dest)
    publish(base, "2.0.0", small_file("2.0.0", padding=9))
    assert "lakeshore 2.0.0 is replaced by another build of 2.0.0" in install(base, dest).stderr
    assert (dest / "lakeshore").read_bytes() == small_file("2.0.0", padding=9)


# --- from where


def as_path(base: Path) -> str:
    return str(base)


def as_file_url(base: Path) -> str:
    return f"file://{base}/"


def as_escaped_file_url(base: Path) -> str:
    return f"file://localhost{base}".replace("base", "%62a%73e")


@pytest.mark.parametrize("spelled", [as_path, as_file_url, as_escaped_file_url])
def test_the_base_may_be_a_directory_of_this_machine(base: Path, tmp_path: Path, spelled: object) -> None:
    assert callable(spelled)
    without_network = toolbox(tmp_path / "tools", "sha256sum", "python3")
    done = install(spelled(base), tmp_path / "bin", shell=[shutil.which("sh") or "sh"], PATH=without_network)
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "bin") == BOTH


@pytest.mark.inventory("N-300", "C-833", "N-305")
def test_file_and_checksum_come_from_below_the_base_and_the_documented_variable_names_it(
    web: Web, tmp_path: Path
) -> None:
    done = install("unset", tmp_path / "bin", NYMPH_BASE_URL=f"{web.url}/")
    assert done.returncode == 0, done.stderr
    assert web.asked == ["/latest/lakeshore.sha256", "/latest/lakeshore"]


@pytest.mark.parametrize("downloader", ["curl", "wget"])
@pytest.mark.parametrize("checker", ["sha256sum", "shasum", "openssl"])
@pytest.mark.inventory("N-301")
def test_either_downloader_and_any_checksum_tool_will_do(
    web: Web, tmp_path: Path, downloader: str, checker: str
) -> None:
    path = toolbox(tmp_path / "tools", downloader, checker, "python3")
    sh = [shutil.which("sh") or "sh"]
    done = install(web.url, tmp_path / "bin", shell=sh, PATH=path)
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "bin") == BOTH
    publish(web.root, "3.0.0", small_file("3.0.0"), checksum="0" * 64)
    done = install(web.url, tmp_path / "bin", shell=sh, PATH=path)
    assert (done.returncode, installed(tmp_path / "bin")) == (1, BOTH)
    assert "does not have its checksum" in done.stderr


def test_busybox_alone_is_enough(web: Web, tmp_path: Path) -> None:
    path = busybox_tools(tmp_path / "tools")
    done = install(web.url, tmp_path / "bin", shell=[f"{path}/sh"], PATH=path)
    assert done.returncode == 0, done.stderr
    assert subprocess.check_output([tmp_path / "bin" / "lakeshore"], text=True) == "lakeshore 2.0.0\n"
    done = install(f"{web.url}/nowhere", tmp_path / "bin", shell=[f"{path}/sh"], PATH=path)
    assert done.returncode == 1
    assert "404" in done.stderr


@pytest.mark.parametrize("downloader", ["curl", "wget"])
def test_the_proxy_of_the_environment_is_used(web: Web, tmp_path: Path, downloader: str) -> None:
    path = toolbox(tmp_path / "tools", downloader, "sha256sum", "python3")
    sh = [shutil.which("sh") or "sh"]
    done = install("http://lakeshore.invalid", tmp_path / "bin", shell=sh, PATH=path, http_proxy=web.url, no_proxy="")
    assert done.returncode == 0, done.stderr
    assert web.asked[0] == "http://lakeshore.invalid/latest/lakeshore.sha256"


# --- for whom


def test_a_user_without_rights_installs_into_a_directory_of_their_own(base: Path, public_place: Path) -> None:
    home = public_place / "home"
    home.mkdir()
    subprocess.run(["cp", "-r", base, SCRIPT, home], check=True)
    who = 65534 if os.geteuid() == 0 else os.geteuid()
    os.chown(home, who, -1)
    done = subprocess.run(
        [*somebody(), "bash", "-c", f'bash -c "$(cat {home}/install.sh)" install.sh --dest="~/.local/bin"'],
        check=False,
        capture_output=True,
        text=True,
        env=environment(
            HOME=str(home), LAKESHORE_BASE_URL=str(home / "base"), PATH="/usr/bin:/bin", XDG_CACHE_HOME="unset"
        ),
    )
    assert done.returncode == 0, done.stderr
    assert installed(home / ".local" / "bin") == BOTH
    assert (home / ".local" / "bin" / "lakeshore").stat().st_uid == who


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
@pytest.mark.parametrize("user", ["0:0", "1000:1000"])
def test_on_a_system_of_nothing_but_busybox_it_installs_and_says_how_to_get_a_python(
    base: Path, tmp_path: Path, user: str
) -> None:
    busybox, chroot = shutil.which("busybox"), shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if busybox is None or chroot is None:
        pytest.skip("needs busybox and chroot")
    root = tmp_path / "alpine"
    for folder in ("bin", "etc", "home", "tmp"):
        (root / folder).mkdir(parents=True)
    (root / "dev").mkdir()
    os.mknod(root / "dev" / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (root / "dev" / "null").chmod(0o666)
    (root / "home").chmod(0o777)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "os-release").write_text("NAME=Alpine\nID=alpine\n")
    copy_with_libraries(busybox, root)
    for name in subprocess.check_output([busybox, "--list"], text=True).split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    shutil.copytree(base, root / "base")
    shutil.copy(SCRIPT, root / "install.sh")
    done = subprocess.run(
        [chroot, f"--userspec={user}", root, "/bin/sh", "-c", 'sh -c "$(cat /install.sh)" sh --dest /home/bin'],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/bin", "LAKESHORE_BASE_URL": "/base"},
    )
    assert done.returncode == 0, done.stderr
    assert installed(root / "home" / "bin") == BOTH
    assert "Install one: apk add python3\n" in done.stderr


@pytest.mark.inventory("N-302")
def test_sudo_is_used_only_for_a_destination_that_is_not_writable(base: Path, tmp_path: Path) -> None:
    if not shutil.which("sudo") or os.geteuid() != 0:
        pytest.skip("needs sudo, and root to allow it to somebody")
    allowed = tmp_path / "sudoers.d"
    allowed.mkdir(mode=0o755)
    (allowed / "nobody").write_text("nobody ALL=(root) NOPASSWD: ALL\n")
    (allowed / "nobody").chmod(0o440)
    dest = Path("/opt/bin")
    see = f'cp {SCRIPT} /opt/install.sh && cp -r {base} /opt/base && exec "$@"'
    inside = [*alone("tmpfs mode=755 /opt", f"bind {allowed} /etc/sudoers.d"), "sh", "-c", see, "sh"]
    check = f"sh /opt/install.sh --dest {dest} && ls -ln {dest} && $LATER"
    for later, owned in (("true", True), (f"sh /opt/install.sh --uninstall --dest {dest}", False)):
        done = subprocess.run(
            [*inside, *somebody(), "sh", "-c", check.replace("$LATER", f"{later} && ls {dest}")],
            check=False,
            capture_output=True,
            text=True,
            env=environment(LAKESHORE_BASE_URL="/opt/base", HOME="/nonexistent", PATH="/usr/bin:/bin:/usr/sbin"),
        )
        assert done.returncode == 0, done.stderr
        assert "/opt is not writable by you: using sudo" in done.stderr
        owner = done.stdout.splitlines()[1].split()[2:4]
        assert owner == ["0", "0"]
        assert ("lakeshore" in done.stdout.splitlines()[-2:]) == owned
