"""What goes to other hosts, without one: aliases, scripts, configuration, what ssh says, the file that is sent."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.nymph.config import ShutdownSection
from lakeshore.remote import program, ssh_config
from lakeshore.remote.errors import RemoteFailure
from lakeshore.remote.installs import Install, Installs, launch_id_in
from lakeshore.remote.launch import STOP_S, Condition
from lakeshore.remote.scripts import compose, report_of
from lakeshore.remote.ssh import Connection, Place, explain

SCRIPTS = Path(program.__file__).parent / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.sh") if path.stem != "common")
LAUNCH = "01K4G8AX000000000000000001"


# --- aliases and scripts


@pytest.mark.parametrize("alias", ["-oProxyCommand=touch x", "", "a b", "a;b", "$(x)", "a\nb", "`x`", "a'b", "*"])
def test_what_is_no_alias_is_refused_before_ssh_sees_it(alias: str) -> None:
    with pytest.raises(RemoteFailure, match="is no ssh alias"):
        Place(alias=alias)


@pytest.mark.parametrize("alias", ["my-box", "user@host.example", "h_1.x", "::1", "[fe80::1%eth0]"])
def test_an_alias_is_what_ssh_takes_for_a_host(alias: str) -> None:
    assert Place(alias=alias, config="/a b").options("X=y")[:2] == ["-F", "/a b"]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_value_reaches_a_script_as_it_is_whatever_is_in_it(value: str) -> None:
    text, _ = compose("status", {"launch_id": "x", "lines": value})
    assigned = text[: text.index("# shellcheck shell=bash")]
    assert shlex.split(assigned)[2] == f"lines={value}"


def test_bash_sees_a_hostile_value_as_text_and_runs_nothing(tmp_path: Path) -> None:
    hostile = f"x' ; touch {tmp_path}/made; $(touch {tmp_path}/made) `touch {tmp_path}/made` \"\\ \n y"
    text, _ = compose("status", {"launch_id": hostile, "lines": "1"})
    head = text[: text.index("# shellcheck shell=bash")]
    done = subprocess.run(
        ["bash", "-s"], input=f'{head}printf %s "$launch_id"', capture_output=True, text=True, check=True
    )
    assert done.stdout == hostile
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("name", "value"), [("a-b", "x"), ("A", "x"), ("a", "x\0y"), ("a;b", "x")])
def test_what_cannot_be_a_variable_of_the_shell_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be given"):
        compose("status", {name: value})


def test_answers_are_told_from_what_a_login_prints_and_one_cut_short_is_not_complete() -> None:
    said = "Welcome!\nn1 home /a b\nend ok\nn2 end ok\nn1 log one\nn1 log two  \n"
    report = report_of(said, "n1")
    assert (report["home"], report.lines["log"], report.complete) == ("/a b", ["one", "two  "], False)
    assert report_of(said + "n1 end ok\n", "n1").complete
    assert report_of("n1 error it is full\nn1 hint make room", "n1").error == "it is full"


@pytest.mark.parametrize("name", NAMES)
def test_shellcheck_finds_nothing_in_a_script(name: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    given = "export nonce=x launch_id=y python=z how=process urls='' sha256=x grace=1\n"
    text = given + (SCRIPTS / "common.sh").read_text() + (SCRIPTS / f"{name}.sh").read_text()
    done = subprocess.run(
        ["shellcheck", "-s", "bash", "-e", "SC2016,SC2034", "-"],
        input=text,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


# --- ssh's words


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "ssh-keygen -R"),
        (
            "No ED25519 host key is known for x and you have requested strict checking.\nHost key verification failed.",
            "run `ssh box` once",
        ),
        ("u@h: Permission denied (publickey).", "`ssh box true` must work without questions"),
        ("ssh: Could not resolve hostname box: Name or service not known", "an alias of the ssh configuration"),
        ("ssh: connect to host h port 22: Connection refused", "does sshd run"),
        ("ssh: connect to host h port 22: Connection timed out", "can it be reached"),
        ("something new", "`ssh box true` must work on its own first"),
    ],
)
@pytest.mark.inventory("N-347")
def test_what_ssh_says_becomes_a_sentence_with_its_exit_code_and_what_to_do(said: str, hint: str) -> None:
    failure = explain("box", 255, said)
    assert str(failure).startswith("ssh box exited with code 255")
    assert failure.code == 255
    assert failure.hint is not None
    assert hint in failure.hint


# --- the configuration


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "me")
    (tmp_path / ".ssh" / "more").mkdir(parents=True)
    (tmp_path / ".ssh" / "more" / "one").write_text("Host inner\n    HostName inner.example\n    Port 2222\n")
    path = tmp_path / ".ssh" / "config"
    path.write_text(
        "# a comment\n"
        "Include more/*\n"
        "Host box other\n"
        "    hostname = box.example\n"
        "    User root\n"
        "    ProxyJump jump@gate:2200\n"
        "    ForwardAgent yes\n"
        '    IdentityFile "~/.ssh/my key"\n'
        "    Include more/*\n"
        "    Compression yes\n"
        "Host *.lab !bad.lab\n"
        "    User lab\n"
        "Host a.lab bad.lab\n"
        "Match host box exec false\n"
        "    Port 9\n"
        "Host *\n"
        "    User late\n"
        "    HostName %h.example\n"
    )
    return path


@pytest.mark.inventory("C-116", "C-1062")
def test_aliases_are_the_hosts_without_patterns_also_of_what_is_included(config: Path) -> None:
    assert ssh_config.aliases() == ["inner", "box", "other", "a.lab", "bad.lab"]
    assert ssh_config.aliases(str(config)) == ssh_config.aliases()
    assert ssh_config.aliases("/no/such/file") == []


@pytest.mark.inventory("C-1065")
def test_the_first_value_wins_patterns_count_and_a_match_block_does_not(config: Path) -> None:
    found = {one.alias: one for one in ssh_config.entries()}
    box = found["box"]
    assert (box.user, box.hostname, box.port, box.proxy_jump) == ("root", "box.example", 22, "jump@gate:2200")
    assert box.identity_file == f"{config.parent}/my key"
    assert box.stripped == ("ForwardAgent yes", "Compression yes")
    assert (found["inner"].hostname, found["inner"].port, found["inner"].user) == ("inner.example", 2222, "late")
    assert found["a.lab"].user == "lab"
    assert found["bad.lab"].user == "late"
    assert found["a.lab"].hostname == "a.lab.example"
    assert box.target == "root@box.example:22 via jump@gate:2200"
    assert ssh_config.entry("unnamed").hostname == "unnamed.example"


def test_what_ssh_itself_makes_of_the_configuration_is_the_same(config: Path) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("needs openssh-client")
    for one in ssh_config.entries(str(config)):
        told = subprocess.run(["ssh", "-G", "-F", config, one.alias], check=True, capture_output=True, text=True).stdout
        said = dict(line.split(" ", 1) for line in told.splitlines() if " " in line)
        if one.alias == "inner":
            continue  # ssh looks for what is included below the account's own home, whatever HOME says
        assert (said["user"], said["hostname"], int(said["port"])) == (one.user, one.hostname, one.port)
        assert said.get("proxyjump") == one.proxy_jump


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(f"Host a\nInclude {path}\nHost b\n")
    assert ssh_config.aliases(str(path)) == ["a", "b"]


# --- records


def test_a_launch_is_known_by_its_id_its_label_and_its_labels_prefix(tmp_path: Path) -> None:
    installs = Installs(tmp_path)
    one = Install(
        launch_id=LAUNCH,
        alias="box",
        ssh_config=None,
        label=f"my-box-{LAUNCH}",
        url="http://h",
        namespace="default",
        token_id="t",
        token_name="n",
        how="process",
        created_at="now",
    )
    assert installs.all() == []
    installs.save(one)
    (installs.directory / f"{LAUNCH[:-1]}2.json").write_text('{"launch_id": ')
    assert installs.all() == [one]
    for name in (LAUNCH, LAUNCH.lower(), f"my-box-{LAUNCH}", "my-box"):
        assert installs.named(name) == [one]
    assert installs.named("my") == []
    installs.forget(LAUNCH)
    assert installs.named("my-box") == []


@pytest.mark.parametrize(
    ("text", "found"), [(LAUNCH, LAUNCH), (f"a-{LAUNCH}", LAUNCH), (f"a{LAUNCH}", None), ("a", None), ("9" * 26, None)]
)
def test_a_launch_id_is_found_at_the_end_of_a_label_and_nowhere_else(text: str, found: str | None) -> None:
    assert launch_id_in(text) == found


def test_a_daemon_that_ended_is_told_from_one_that_waits() -> None:
    assert Condition(state="ended", log=()).is_over
    assert not Condition(state="PENDING", log=()).is_over


# --- the file that is sent


@pytest.mark.inventory("N-338")
@pytest.mark.parametrize("kind", ["elf", "text", "zip", "ours without its content", "empty"])
def test_a_file_that_is_not_ours_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "nymph"
    if "zip" in kind or "ours" in kind:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("__main__.py", "")
            if "ours" in kind:
                archive.writestr("lakeshore/_start.py", 'CONTENT = ""\n')
                archive.writestr("lakeshore/_version.py", '__version__ = "1.0.0"\n')
    else:
        path.write_bytes({"elf": b"\x7fELF" + bytes(64), "text": b"#!/bin/sh\n", "empty": b""}[kind])
    with pytest.raises(RemoteFailure, match="--binary path does not look like the one file of Lakeshore"):
        program.look_at(path)


def test_a_file_of_ours_says_its_version_its_hash_and_its_platforms(tmp_path: Path) -> None:
    path = tmp_path / "nymph"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "")
        archive.writestr("lakeshore/_start.py", 'CONTENT = "0123456789abcdef"\n')
        archive.writestr("lakeshore/_version.py", '__version__ = "1.2.3"\n')
        archive.writestr("lakeshore/_vendor/_native/linux_x86_64/cp311/x.whl", "")
    found = program.look_at(path)
    assert (found.version, found.platforms, len(found.sha256)) == ("1.2.3", frozenset({"linux_x86_64"}), 64)
    assert found.size == path.stat().st_size


@pytest.mark.inventory("N-368", "S-825")
def test_the_unit_of_a_service_is_one_that_systemd_takes(tmp_path: Path) -> None:
    text = (SCRIPTS / "start.sh").read_text()
    function = text[text.index("unit_file() {") : text.index("\n}\n", text.index("unit_file() {")) + 3]
    place = tmp_path / f".local/share/nymph/launches/{LAUNCH}"
    place.mkdir(parents=True)
    (place / "nymph").write_text("")
    given = f"nonce=x launch_id={LAUNCH} python=/bin/sh grace={STOP_S} HOME={shlex.quote(str(tmp_path))}\n"
    script = given + (SCRIPTS / "common.sh").read_text() + function + "unit_file\n"
    unit = tmp_path / f"lakeshore-nymph-{LAUNCH}.service"
    unit.write_text(subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, check=True).stdout)
    lines = unit.read_text().splitlines()
    assert ShutdownSection().grace_s + 15 <= STOP_S, (
        "systemd kills nothing before the daemon has given up its jobs itself"
    )
    assert {"KillMode=mixed", f"TimeoutStopSec={STOP_S}", f"WorkingDirectory={place}", "Restart=on-failure"} <= set(
        lines
    )
    assert not [line for line in lines if line.startswith("User=")]  # the user's own manager runs it
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (systemd)")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", unit],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.inventory("N-340", "N-324")
def test_a_host_is_asked_by_ssh_itself_with_the_alias_and_a_script_on_its_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\necho "$*" >>{shlex.quote(str(asked))}\nps -o sid= -p $$ >{shlex.quote(str(asked))}.sid\nexec cat\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Connection(Place(alias="bos14")) as connection:
        done = connection.run(["bash", "-s"], b"echo the script\n", timeout_s=60)
    assert (done.code, done.out) == (0, "echo the script\n")
    assert int((tmp_path / "asked.sid").read_text()) != os.getsid(0), "a Ctrl-C of ours would reach it"
    lines = asked.read_text().splitlines()
    (line,) = [line for line in lines if line.endswith(" -- bos14 bash -s")]
    assert " -T " in line
    assert all("BatchMode=yes" in line and "bos14" in line and "the script" not in line for line in lines)


@pytest.mark.inventory("N-419", "N-350", "N-351")
@pytest.mark.parametrize(("wish", "asked"), [("yes", "-n usermod -aG docker someone\n"), ("no", "")])
def test_the_group_of_docker_is_asked_for_unless_that_is_declined_and_a_refusal_stops_nothing(
    tmp_path: Path, wish: str, asked: str
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    log = tmp_path / "asked"
    log.touch()
    said = {
        "sudo": f'echo "$*" >>{shlex.quote(str(log))}; exit 1',
        "id": 'case "$1" in -un) echo someone ;; *) echo users ;; esac',
        "grep": "exit 0",  # there is a group of that name
        "uname": 'case "$1" in -s) echo Linux ;; *) echo arm64 ;; esac',
    }
    for name, script in said.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    given = {"launch_id": "01J", "python": sys.executable, "size": "1", "docker_group": wish, "server": ""}
    text, nonce = compose("prepare", given)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-s"], input=text, env=env, capture_output=True, text=True, timeout=60, check=False)
    report = report_of(done.stdout, nonce)
    assert (done.returncode, report.complete, report["docker"]) == (0, True, ""), done.stderr
    assert (report["user"], report["triple"]) == ("someone", "aarch64-unknown-linux-gnu")
    assert log.read_text() == asked


@pytest.mark.inventory("N-351")
@pytest.mark.parametrize(
    ("system", "machine", "said"),
    [("SunOS", "x86_64", "unsupported OS: SunOS"), ("Linux", "riscv64", "unsupported arch: riscv64")],
)
@pytest.mark.inventory("C-219")
def test_a_host_of_another_kind_is_refused_by_name_and_nothing_is_made_there(
    tmp_path: Path, system: str, machine: str, said: str
) -> None:
    (tmp_path / "uname").write_text(f'#!/bin/sh\ncase "$1" in -s) echo {system} ;; *) echo {machine} ;; esac\n')
    (tmp_path / "uname").chmod(0o755)
    text, nonce = compose("prepare", {"launch_id": "01J", "python": "", "size": "1", "docker_group": "no"})
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-s"], input=text, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert report_of(done.stdout, nonce).error == said
    assert [one.name for one in tmp_path.iterdir()] == ["uname"]


@pytest.mark.inventory("N-399", "N-364", "N-362")
@pytest.mark.parametrize("requeue", [True, False])
@pytest.mark.inventory("C-1449")
def test_a_job_is_queued_again_before_its_time_is_up_only_where_that_is_wished(tmp_path: Path, requeue: bool) -> None:
    directory = tmp_path / ".local/share/nymph/launches/01J"
    directory.mkdir(parents=True)
    (tmp_path / "sbatch").write_text('#!/bin/sh\necho "$*" >"$HOME/asked"\necho 7\n')
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "curl").write_text('#!/bin/sh\ntouch "$HOME/curl-was-called"\n')
    (tmp_path / "curl").chmod(0o755)
    release = tmp_path / "release"
    release.write_text("print()\n")
    digest = hashlib.sha256(release.read_bytes()).hexdigest()
    (tmp_path / "release.sha256").write_text(f"{digest}  release\n")
    given = {
        "launch_id": "01J",
        "python": sys.executable,
        "token": "t",
        "config": "[server]",
        "sha256": "",
        "grace": "9",
    }
    given |= {"urls": release.as_uri(), "how": "slurm", "partition": "", "requeue": "yes" if requeue else "no"}
    text, nonce = compose("start", given)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-s"], input=text, env=env, capture_output=True, text=True, timeout=60, check=False)
    report = report_of(done.stdout, nonce)
    assert report.complete and report["job"] == "7", done.stdout + done.stderr
    assert not (tmp_path / "curl-was-called").exists(), "python downloads"
    asked = (tmp_path / "asked").read_text().split()
    assert ("--requeue" in asked, "--no-requeue" in asked) == (requeue, not requeue)
    assert ("scontrol requeue" in (directory / "job.sh").read_text()) == requeue


def test_what_a_start_that_was_interrupted_puts_there_meanwhile_is_removed_too(tmp_path: Path) -> None:
    directory = tmp_path / ".local/share/nymph/launches/01J"
    directory.mkdir(parents=True)
    late = f'cd "{directory}" && touch nymph && exec sleep 1000'
    (tmp_path / "rm").write_text(
        f'#!/bin/sh\n[ -e "$HOME/late" ] && exec {shutil.which("rm")} "$@"\n'
        f'touch "$HOME/late"\nsh -c \'{late}\' >/dev/null 2>&1 &\necho $! >"$HOME/pid"\nexit 1\n'
    )
    (tmp_path / "rm").chmod(0o755)
    text, nonce = compose("remove", {"launch_id": "01J", "grace": "1", "keep_log": "no"})
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-s"], input=text, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert report_of(done.stdout, nonce)["state"] == "removed", done.stdout + done.stderr
    assert not directory.exists()
    about = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not about.exists() or about.read_text().split()[2] == "Z"


def test_a_start_that_nobody_listens_to_any_more_starts_nothing(tmp_path: Path) -> None:
    directory = tmp_path / ".local/share/nymph/launches/01J"
    directory.mkdir(parents=True)
    (tmp_path / "sbatch").write_text('#!/bin/sh\ntouch "$HOME/started"\necho 7\n')
    (tmp_path / "sbatch").chmod(0o755)
    release = tmp_path / "release"
    release.write_text("print()\n")
    (tmp_path / "release.sha256").write_text(hashlib.sha256(release.read_bytes()).hexdigest())
    given = {"launch_id": "01J", "python": sys.executable, "token": "t", "config": "[server]", "sha256": ""}
    given |= {"urls": release.as_uri(), "how": "slurm", "grace": "9"}
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    gone, unread = os.pipe()
    os.close(gone)
    try:
        done = subprocess.run(
            ["bash", "-s"], input=compose("start", given)[0].encode(), env=env, stdout=unread, check=False
        )
    finally:
        os.close(unread)
    assert done.returncode != 0
    assert not (tmp_path / "started").exists()
