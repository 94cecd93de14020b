"""`daemon install` and `daemon uninstall` from the one file onto a real host: a real sshd, a user without rights there.

Reference: nymph/install-remote-daemon.md; admin/happy-paths/08; cli/examples/daemons-and-exec.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster import missing as no_slurm
from cluster import slurm
from served import Served, running
from sshd import RemoteUser, Sshd, running_sshd

from lakeshore.nymph.config import parse
from lakeshore.remote.copying import copy
from lakeshore.remote.errors import RemoteFailure
from lakeshore.remote.ssh import Connection, Place

Done = subprocess.CompletedProcess[str]
TOOLS = "bash id uname mkdir rm tr cat tail sed readlink sleep nohup setsid mv chmod sort grep sh whoami"
ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


@dataclass
class Ground:
    """A server, hosts, and the one file to reach both."""

    sshd: Sshd
    server: Served
    pyz: Path
    cache: Path

    def environ(self, **more: str) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TMPDIR")}
        env |= {"XDG_CACHE_HOME": str(self.cache), "LAKESHORE_URL": self.server.url}
        return env | {"LAKESHORE_STATE_DIR": str(self.server.state_dir), **more}

    def run(self, *arguments: str, **environ: str) -> Done:
        command, env = [sys.executable, "-S", str(self.pyz), *arguments], self.environ(**environ)
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=env)

    def begun(self, alias: str) -> subprocess.Popen[str]:
        """An install as a terminal has it: a process group of its own; all that it says is on one pipe."""
        command = [sys.executable, "-S", str(self.pyz), "daemon", "install", alias]
        return subprocess.Popen(
            [*command, "--ssh-config", str(self.sshd.config)],
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def install(self, alias: str, *more: str, **environ: str) -> Done:
        return self.run("daemon", "install", alias, "--ssh-config", str(self.sshd.config), *more, **environ)

    def uninstall(self, name: str, *more: str) -> Done:
        return self.run("daemon", "uninstall", name, *more)

    def tokens(self, alias: str) -> dict[str, bool]:
        """Name -> whether it is revoked, of the tokens for this alias."""
        rows = self.server.get("/v1/namespaces/default/tokens", encoding="json").body["tokens"]
        return {row["name"]: bool(row["revokedAt"]) for row in rows if row["name"].startswith(f"daemon-{alias}-")}

    def workers(self) -> dict[str, dict[str, object]]:
        return {row["label"]: row for row in self.server.get("/v1/namespaces/default/workers").body["workers"]}


@pytest.fixture(scope="module")
def ground(pyz: Path, warm_cache: Path) -> Iterator[Ground]:
    place = Path(tempfile.mkdtemp(prefix="lakeshore-install-"))  # the path of a socket must be short
    try:
        with running_sshd(place) as sshd, running(place / "cp") as server:
            yield Ground(sshd, server, pyz, warm_cache)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def box(ground: Ground) -> RemoteUser:
    """A usual host. What it prints at a login is no concern of ours."""
    user = ground.sshd.host("my-box")
    rc = user.home / ".bashrc"
    rc.write_text("echo Welcome to the cluster\n" + rc.read_text())
    return user


def until(true: Callable[[], object], what: str, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.05)


def nothing_is_left(user: RemoteUser) -> bool:
    kept = user.home / ".local/state/lakeshore/nymph"
    return not (user.launches or user.processes() or (kept.is_dir() and list(kept.iterdir())))


# --- what is installed, and taken back


@pytest.mark.inventory("C-857", "C-919", "N-343")
@pytest.mark.inventory("N-344", "N-345", "N-335")
@pytest.mark.inventory("C-215", "C-216", "C-465")
@pytest.mark.inventory("N-336", "N-337", "N-324")
@pytest.mark.inventory("C-377", "C-1405", "C-1398")
@pytest.mark.inventory("C-874")
def test_the_documented_command_prints_the_four_steps_and_its_daemon_is_listed(ground: Ground, box: RemoteUser) -> None:
    done = ground.install("my-box", "--tag", "gpu", "--runner", "process")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    found = ULID.search(lines[2])
    assert found is not None
    launch_id, label = found[0], f"my-box-{found[0]}"
    assert lines[0] == f"→ [1/4] minting per-daemon token from {ground.server.url}…"
    assert lines[1:7] == [
        f"  ✓ token minted (name 'daemon-{label}')",
        f"  launch ID: {launch_id}",
        f"  log: ~/.local/share/nymph-{launch_id}.log",
        "→ [2/4] ssh my-box — bootstrapping (binary + config + start)…",
        f"  ✓ [3/4] daemon process started on my-box (label '{label}')",
        lines[6],
    ]
    assert re.fullmatch(r"→ \[4/4\] waiting \(up to 60s\) for registration ·+", lines[6])
    worker = ground.workers()[label]
    assert lines[7:] == [f"  ✓ daemon registered (worker {worker['id']}, label '{label}')"]
    assert worker["state"] == "active"
    assert "gpu" in str(worker["tags"])
    assert label in ground.run("daemon", "list").stdout
    token = (box.launches[0] / "token").read_text().strip()
    rows = ground.server.get("/v1/namespaces/default/tokens").body["tokens"]
    assert [row["scope"] for row in rows if row["name"] == f"daemon-{label}"] == ["daemon"]
    assert token not in done.stdout + done.stderr
    for path in (ground.server.state_dir / "installs").iterdir():
        assert token not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for about in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert token.encode() not in about.read_bytes()

    taken = ground.uninstall("my-box")
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert nothing_is_left(box)
    assert not box.logs
    assert ground.tokens("my-box")[f"daemon-{label}"] is True
    assert label not in ground.workers()
    assert ground.uninstall(launch_id).returncode == 2  # nothing is remembered of it


@pytest.mark.inventory("N-349", "N-354", "N-348")
@pytest.mark.inventory("N-356", "N-357", "N-358")
@pytest.mark.inventory("N-359", "N-365", "N-342")
@pytest.mark.inventory("N-325", "N-326", "N-327")
@pytest.mark.inventory("N-328", "N-332", "N-355")
@pytest.mark.inventory("N-353", "N-366", "N-371")
@pytest.mark.inventory("C-217", "C-1384", "C-1450")
def test_installs_at_once_and_again_have_everything_of_their_own(ground: Ground, box: RemoteUser) -> None:
    flags = ("--label", "rig's", "--tag", "gpu:h100", "--tag", 'a "quoted" $(tag)', "--queue", "train", "--no-wait")
    flags += ("--runner", "docker", "--runner", "process")
    with ThreadPoolExecutor(2) as pool:
        several = list(pool.map(lambda _: ground.install("my-box", "--json", *flags), range(2)))
    assert [done.returncode for done in several] == [0, 0], [done.stderr for done in several]
    told = [json.loads(done.stdout) for done in several]
    ids = {one["launchId"] for one in told}
    assert {path.name for path in box.launches} == ids
    assert len(ids) == 2
    third = ground.install("my-box", "--python", "/nowhere/python3")
    assert (third.returncode, [f"daemon uninstall {one}`" in third.stderr for one in ids]) == (1, [True, True])
    pids = set()
    for one in told:
        place = Path(one["directory"])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert (modes["token"], modes["udf-daemon.toml"], modes["nymph"]) == (0o600, 0o600, 0o700)
        assert place.owner() == box.name
        assert (place / "nymph").read_bytes() == ground.pyz.read_bytes()
        assert not Path(f"/tmp/nymph-{one['launchId']}").exists(), "it was moved"
        config, warnings = parse((place / "udf-daemon.toml").read_text(), "it")
        assert warnings == ()
        assert (config.server.url, config.server.token_file) == (ground.server.url, "token")
        assert (config.server.namespace, config.daemon.label) == ("default", f"rig's-{one['launchId']}")
        assert config.daemon.tags == ("gpu:h100", 'a "quoted" $(tag)')
        assert config.daemon.lanes == ("train",)
        assert (config.runtime.runners, config.runtime.default_runner) == (("docker", "process"), "docker")
        assert config.runtime.keep_alive_s == -1
        assert config.runtime.workdir == f"{place}/work"
        pid = int((place / "pid").read_text())
        assert os.readlink(f"/proc/{pid}/cwd") == str(place)
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert os.readlink(f"/proc/{pid}/fd/1") == f"{box.home}/.local/share/nymph-{one['launchId']}.log"
        assert os.getsid(pid) == pid
        pids.add(pid)
    assert len(pids) == 2
    labels = {f"rig's-{launch_id}" for launch_id in ids}
    until(
        lambda: labels <= {label for label, row in ground.workers().items() if row["state"] == "active"}, "all active"
    )

    ambiguous = ground.uninstall("rig's")
    assert ambiguous.returncode == 2
    assert "2 launches are called rig's" in ambiguous.stderr
    killed, other = sorted(ids)
    os.kill(int((box.home / f".local/share/nymph/launches/{killed}/pid").read_text()), signal.SIGKILL)
    assert {path.name for path in box.launches} == ids
    taken = ground.uninstall(killed, "--grace-s", "5")
    assert taken.returncode == 0, taken.stderr
    assert [path.name for path in box.launches] == [other]
    # Nothing here knows the last one: its host is named.
    (ground.server.state_dir / "installs" / f"{other}.json").unlink()
    assert ground.uninstall(other).returncode == 2
    last = ground.uninstall(other, "--alias", "my-box", "--ssh-config", str(ground.sshd.config), "--keep-log")
    assert last.returncode == 0, last.stderr
    assert nothing_is_left(box)
    assert [path.name for path in box.logs] == [f"nymph-{other}.log"]
    box.logs[0].unlink()
    assert all(ground.tokens("my-box").values())


# --- what fails leaves nothing


def staged_by(user: RemoteUser) -> list[Path]:
    """What this user left where a file is put before it has its place; others install at the same time."""
    found = []
    for path in Path("/tmp").glob("nymph-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_uid == user.home.stat().st_uid:
                found.append(path)
    return found


def refused(ground: Ground, user: RemoteUser | None, alias: str, *more: str, **environ: str) -> str:
    """An install that must fail with exit 1 and leave nothing: what it said."""
    done = ground.install(alias, *more, **environ)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    tokens = ground.tokens(alias)
    assert tokens
    assert all(tokens.values())
    if user is not None:
        assert nothing_is_left(user)
        assert not staged_by(user)
    assert not list((ground.server.state_dir / "installs").glob("*.json"))
    return done.stderr


@pytest.mark.parametrize(
    ("alias", "lines", "said"),
    [
        ("unknown-key", ["UserKnownHostsFile /dev/null"], "its host key is not known here"),
        ("no-login", ["IdentityFile /dev/null"], "the host refused the login"),
        ("no-sshd", ["Port 1"], "nothing listens there"),
        ("no-name", ["HostName nowhere.invalid"], "Could not resolve hostname nowhere.invalid"),
    ],
)
@pytest.mark.inventory("N-347", "N-346")
def test_a_host_that_cannot_be_logged_in_to_is_a_sentence_and_the_token_is_revoked(
    ground: Ground, alias: str, lines: list[str], said: str
) -> None:
    block = f"Host {alias}\n    User nobody\n" + "".join(f"    {line}\n" for line in lines)
    ground.sshd.config.write_text(block + ground.sshd.config.read_text())
    error = refused(ground, None, alias)
    assert f"error: ssh {alias} exited with code 255: " in error
    assert said in error


@pytest.fixture(scope="module")
def bare(ground: Ground) -> RemoteUser:
    """A host with nothing on PATH but what its `bin` holds, and with its own idea of Python."""
    user = ground.sshd.host("bare")
    place = user.home / "bin"
    place.mkdir()
    for tool in TOOLS.split():
        found = shutil.which(tool)
        assert found is not None
        (place / tool).symlink_to(found)
    (user.home / ".bashrc").write_text(f"PATH={place}\n")
    return user


def test_a_host_without_a_python_that_is_new_enough_says_what_was_found(ground: Ground, bare: RemoteUser) -> None:
    old, broken = bare.home / "bin/python3", bare.home / "bin/python3.12"
    old.write_text('#!/bin/sh\necho "3.9.2 $0"\n')
    broken.write_text("#!/bin/sh\nexit 127\n")
    for path in (old, broken):
        path.chmod(0o755)
    if any(Path(place, name).exists() for place in ("/usr/local/bin", "/opt/conda/bin") for name in ("python3",)):
        pytest.skip("this machine has a Python where one is looked for besides PATH")
    error = refused(ground, bare, "bare")
    assert (
        f"error: bare: no Python 3.11 or newer. Found: {old} is 3.9.2; {broken} does not start. Looked for: " in error
    )
    assert "--python" in error
    assert f"{old} is no Python 3.11 or newer there" in refused(ground, bare, "bare", "--python", str(old))


@pytest.mark.inventory("N-339")
def test_without_rsync_there_or_where_a_login_is_chatty_the_file_goes_through_ssh(
    ground: Ground, bare: RemoteUser, box: RemoteUser, tmp_path: Path
) -> None:
    quiet = ground.sshd.host("quiet")
    source = tmp_path / "a file"
    source.write_bytes(os.urandom(300_000))
    for number, (user, how) in enumerate(((bare, "ssh"), (box, "ssh"), (quiet, "rsync"))):
        target = Path(f"/tmp/nymph-{os.getpid()}-{number}")
        place = Place(alias=user.alias, config=str(ground.sshd.config))
        try:
            with Connection(place) as connection:
                assert copy(connection, source, str(target), rsync_there=user is not bare, show=False) == how
                assert target.read_bytes() == source.read_bytes()
                assert (target.owner(), stat.S_IMODE(target.stat().st_mode) & 0o077) == (user.name, 0)
                if how == "ssh":
                    with pytest.raises(RemoteFailure, match=r"cannot overwrite existing file|File exists"):
                        copy(connection, source, str(target), rsync_there=False, show=False)
        finally:
            target.unlink(missing_ok=True)


@pytest.mark.inventory("N-338", "C-689")
@pytest.mark.inventory("N-330", "C-214", "C-212")
def test_a_binary_that_is_not_ours_and_flags_that_exclude_each_other_fail_before_a_token_is_minted(
    ground: Ground, box: RemoteUser
) -> None:
    before = ground.tokens("my-box")
    done = ground.install("my-box", "--binary", "/bin/true")
    assert done.returncode == 1
    assert "error: --binary path does not look like the one file of Lakeshore: /bin/true" in done.stderr
    for more in (
        ("--binary", str(ground.pyz), "--nymph-base-url", "http://x"),
        ("--slurm", "--service"),
        ("--slurm-partition", "gpu"),
        ("--server-url", "ftp://x"),
    ):
        assert ground.install("my-box", *more).returncode == 2
    assert ground.tokens("my-box") == before


@pytest.mark.inventory("N-329", "C-688", "N-341")
@pytest.mark.inventory("N-352", "N-390", "C-213")
def test_one_that_the_host_downloads_comes_up_and_a_damaged_one_is_refused(
    ground: Ground, box: RemoteUser, public_place: Path
) -> None:
    release = public_place / "latest"
    release.mkdir()
    shutil.copy(ground.pyz, release / "lakeshore")
    (release / "lakeshore").chmod(0o644)
    digest = hashlib.sha256(ground.pyz.read_bytes()).hexdigest()
    (release / "lakeshore.sha256").write_text(f"{digest}  lakeshore\n")
    base = f"file://{public_place}"
    done = ground.install("my-box", "--nymph-base-url", base, "--no-wait")
    assert done.returncode == 0, done.stderr
    launch_id = box.launches[0].name
    assert ground.tokens("my-box")[f"daemon-my-box-{launch_id}"] is False
    until(lambda: ground.workers().get(f"my-box-{launch_id}", {}).get("state") == "active", "it comes up all the same")
    assert ground.uninstall(f"my-box-{launch_id}").returncode == 0
    (release / "lakeshore.sha256").write_text("0" * 64 + "\n")
    assert "the download is damaged: its sha256 is" in refused(ground, box, "my-box", "--nymph-base-url", base)
    (release / "lakeshore").unlink()
    assert "cannot download the program" in refused(ground, box, "my-box", "--nymph-base-url", base)


def test_a_full_home_is_told_before_anything_is_copied(ground: Ground) -> None:
    user = ground.sshd.host("full")
    owner = f"uid={user.home.stat().st_uid},gid={user.home.stat().st_gid}"
    keys = (user.home / ".ssh/authorized_keys").read_bytes()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size=4m,mode=755,{owner}", "none", user.home], check=False, capture_output=True
    ).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (user.home / ".ssh").mkdir()
        (user.home / ".ssh/authorized_keys").write_bytes(keys)
        error = refused(ground, user, "full")
        assert f"error: full: the home directory of {user.name} is full: " in error
        filler = os.open(user.home / "filler", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(filler, bytes(65536)):
                pass
        os.close(filler)
        assert "is full" in refused(ground, user, "full") or "cannot write below" in refused(ground, user, "full")
    finally:
        subprocess.run(["umount", "-l", user.home], check=True)


def test_a_daemon_that_ends_at_once_shows_why(ground: Ground) -> None:
    user = ground.sshd.host("no-state")
    (user.home / ".bashrc").write_text("export XDG_STATE_HOME=/proc/nowhere\n")
    done = ground.install("no-state")
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "/proc/nowhere" in done.stderr
    for launch in user.launches:  # it ended after it was started
        assert ground.uninstall(launch.name, "--grace-s", "1").returncode == 0
    assert all(ground.tokens("no-state").values())
    assert not user.processes()


@pytest.mark.inventory("N-337")
@pytest.mark.parametrize(("step", "number"), [("[1/4]", signal.SIGINT), ("[3/4]", signal.SIGTERM)])
def test_an_install_that_is_interrupted_leaves_nothing(
    ground: Ground, box: RemoteUser, step: str, number: signal.Signals
) -> None:
    before, tokens = (box.launches, set(box.processes()), box.logs), ground.tokens(box.alias)
    server = ground.server.process
    if step == "[1/4]":
        server.send_signal(signal.SIGSTOP)  # the request is under way until the server goes on
    with ground.begun(box.alias) as install:
        try:
            assert install.stdout is not None
            assert any(step in line for line in install.stdout)
            if step == "[1/4]":
                until(lambda: connected(install.pid, ground.server.url), "its request")
            install.send_signal(number)
        finally:
            server.send_signal(signal.SIGCONT)
        assert any("is removed" in line for line in install.stdout)
        until(lambda: children(install.pid) or install.poll() is not None, "the ssh that removes it")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(install.pid, signal.SIGINT)  # Ctrl-C once more, which ssh would hear, too
        assert install.wait(60) == 128 + number
    made = {name: revoked for name, revoked in ground.tokens(box.alias).items() if name not in tokens}
    assert list(made.values()) == [True]
    until(lambda: (box.launches, set(box.processes()), box.logs) == before, "a host as it was")
    assert not staged_by(box)
    assert not list((ground.server.state_dir / "installs").glob(f"*{next(iter(made))[-26:]}*"))


@pytest.mark.inventory("C-858", "N-331", "C-690")
@pytest.mark.inventory("C-211")
@pytest.mark.inventory("C-1406")
def test_without_the_admin_token_it_exits_2_before_anything_happens(ground: Ground, box: RemoteUser) -> None:
    before = ground.tokens("my-box")
    done = ground.install("my-box", LAKESHORE_STATE_DIR="/nowhere", XDG_CONFIG_HOME="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("error: daemon install needs LAKESHORE_ADMIN_TOKEN\nhint: ")
    assert done.stdout == ""
    unconfigured = ground.install("my-box", "--admin-token", "x", LAKESHORE_URL="", LAKESHORE_STATE_DIR="/nowhere")
    assert unconfigured.returncode == 2
    neither = ground.install("my-box", LAKESHORE_URL="", LAKESHORE_STATE_DIR="/nowhere", XDG_CONFIG_HOME="/nowhere")
    assert (neither.returncode, "`lakeshore serve` starts one" in neither.stderr) == (2, True)
    assert "server not configured" in unconfigured.stderr
    assert ground.tokens("my-box") == before


# --- a host that does not reach the server


def test_an_address_that_the_host_does_not_reach_is_told_with_both_ways_out(ground: Ground, box: RemoteUser) -> None:
    error = refused(ground, box, "my-box", "--server-url", "http://127.0.0.1:1")
    assert "error: my-box does not reach the server at http://127.0.0.1:1: " in error
    assert "--reverse-tunnel" in error
    assert "--server-url" in error


def test_a_tunnel_carries_the_daemon_is_made_again_and_ends_with_it(ground: Ground, box: RemoteUser) -> None:
    done = ground.install("my-box", "--reverse-tunnel", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    config, _ = parse((Path(told["directory"]) / "udf-daemon.toml").read_text(), "it")
    assert config.server.url == f"http://127.0.0.1:{told['tunnelPort']}"

    def shown() -> dict[str, object]:
        rows = json.loads(ground.run("daemon", "tunnels", "--json").stdout)
        return dict(rows[0]) if rows else {}

    tunnel = shown()
    assert (tunnel["state"], tunnel["port"], tunnel["alias"]) == ("up", told["tunnelPort"], "my-box")
    keeper = int(str(tunnel["pid"]))
    ssh = children(keeper)
    # The network breaks: our end is gone, and the host's sshd does not hear of it and keeps the port.
    held = [pid for pid in sessions(box) if listens(pid, told["tunnelPort"])]
    assert held
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    for pid in ssh:
        os.kill(pid, signal.SIGKILL)
    until(
        lambda: children(keeper) and not set(children(keeper)) & set(ssh) and shown()["state"] == "up", "it is up again"
    )
    assert shown()["port"] == told["tunnelPort"]
    asked = ground.run("daemon", "exec", "--id", str(told["worker"]), "bash", "-c", "echo through; env")
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.startswith("through\n")  # and no greeting: a job is no login
    assert "SSH_" not in asked.stdout

    os.kill(keeper, signal.SIGKILL)
    until(lambda: shown()["state"] == "stopped", "nobody keeps it up")
    again = ground.run("daemon", "tunnels", "--up")
    assert again.returncode == 0, again.stderr
    keeper = int(str(shown()["pid"]))
    taken = ground.uninstall(told["launchId"])
    assert taken.returncode == 0, taken.stderr
    assert "its tunnel is closed" in taken.stdout
    until(
        lambda: not os.path.exists(f"/proc/{keeper}/exe"), "its keeper is gone"
    )  # what only waits to be reaped has none
    assert shown() == {}
    until(lambda: nothing_is_left(box), "nothing is left")


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def sessions(user: RemoteUser) -> list[int]:
    done = subprocess.run(["pgrep", "-u", user.name, "-x", "sshd"], check=False, capture_output=True, text=True)
    return [int(one) for one in done.stdout.split()]


def listens(pid: int, port: int) -> bool:
    return has_socket(pid, 1, f":{port:04X}", "0A")


def connected(pid: int, url: str) -> bool:
    return has_socket(pid, 2, f":{int(url.rpartition(':')[2]):04X}", "01")


def has_socket(pid: int, end: int, port: str, state: str) -> bool:
    """`end`: the column of /proc/net/tcp with the port, 1 here, 2 there."""
    inodes = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[end].endswith(port) and row[3] == state and f"socket:[{row[9]}]" in inodes for row in rows)


# --- other ways to start


@pytest.mark.inventory("N-333", "N-360", "N-363")
@pytest.mark.inventory("N-334", "C-692", "C-693")
def test_on_a_login_node_the_daemon_is_a_slurm_job_of_that_name(ground: Ground, box: RemoteUser) -> None:
    why = no_slurm()
    if why is not None:
        pytest.skip(why)
    place = Path(tempfile.mkdtemp(prefix="lakeshore-slurm-"))
    rc = box.home / ".bashrc"
    before = rc.read_text()
    try:
        place.chmod(0o755)
        with slurm(place / "cluster") as env:
            rc.write_text(f"export SLURM_CONF={env['SLURM_CONF']}\n" + before)
            refusal = ground.install("my-box", "--slurm", "--slurm-partition", "nowhere")
            assert refusal.returncode == 1
            assert "sbatch refused the job" in refusal.stderr
            assert not box.launches
            done = ground.install("my-box", "--slurm", "--slurm-partition", "debug", "--slurm-requeue", "--json")
            assert done.returncode == 0, done.stdout + done.stderr
            told = json.loads(done.stdout)
            name = f"lakeshore-nymph-{told['launchId']}"
            job = slurm_says(env, "squeue", "-h", "--name", name, "-o", "%i|%T|%P|%Z")
            assert job.split("|")[1:] == ["RUNNING", "debug", told["directory"]]
            assert (box.home / f".local/share/nymph-{told['launchId']}.log").exists()
            # Its time is nearly up: it leaves as it is told to, and the job waits for its next turn.
            slurm_says(env, "scancel", "--signal=USR1", "--batch", job.split("|")[0])
            until(
                lambda: (
                    "|1" in slurm_says(env, "squeue", "-h", "--name", name, "-o", "%T|%O|%r")
                    or restarts(env, job.split("|")[0]) == 1
                ),
                "it is queued again",
            )
            taken = ground.uninstall(told["launchId"])
            assert taken.returncode == 0, taken.stderr
            assert slurm_says(env, "squeue", "-h", "--name", name) == ""
            assert nothing_is_left(box)
    finally:
        rc.write_text(before)
        shutil.rmtree(place, ignore_errors=True)


def slurm_says(env: dict[str, str], *command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **env}).stdout.strip()


def restarts(env: dict[str, str], job: str) -> int:
    found = re.search(r"Restarts=(\d+)", slurm_says(env, "scontrol", "show", "job", "-o", job))
    return int(found[1]) if found else 0


def test_without_a_manager_of_services_that_is_said_and_nothing_stays(ground: Ground, box: RemoteUser) -> None:
    error = refused(ground, box, "my-box", "--service")
    assert "error: my-box: " in error
    assert "systemd" in error
    assert "leave out --service" in error
