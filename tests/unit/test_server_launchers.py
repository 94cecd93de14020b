"""What launchers make of a provider and a machine, without either: places of ssh, words of sbatch, pods, files."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from lakeshore.remote.errors import RemoteFailure
from lakeshore.remote.providers import keyed_place
from lakeshore.server.aws import Aws
from lakeshore.server.google import Google
from lakeshore.server.http import HttpError
from lakeshore.server.launchers import kube, kubeconfig, slurm, ssh
from lakeshore.server.launchers.contract import Launcher, LaunchFailed, Machine, Means, Program, Resolved, Unsupported
from lakeshore.server.launchers.resolving import check_capacity

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----\n"
WORKER = "0123456789abcdef01234567"
MEANS = Means(aws=Aws({}), google=Google({}))


def machine(**given: Any) -> Machine:
    usual = {
        "ns": "default",
        "worker": WORKER,
        "label": "it's",
        "url": "https://cp.example",
        "token": "t",
        "userdata": "u",
    }
    return Machine(**{**usual, "program": Program(path=Path("/p"), sha256="0", url="/r"), **given})


def resolved(launcher: str, **kwargs: Any) -> Resolved:
    return Resolved(ns="default", name="p", launcher=launcher, kwargs=kwargs)


# --- over ssh


def test_only_the_providers_key_leads_to_a_host_and_to_the_one_before_it(tmp_path: Path) -> None:
    where = {"ip": "h", "username": "u", "port": 2222, "ssh_key": KEY, "proxy_jump": "me@jump.example:22"}
    with keyed_place("p", where, config="none") as place:
        words = place.options()
        path = Path(next(word for word in words if word.startswith("IdentityFile=")).split('"')[1])
        assert (path.read_text(), path.stat().st_mode & 0o777) == (KEY, 0o600)
        told = subprocess.run(
            ["ssh", *words, "-G", "--", place.alias],
            capture_output=True,
            text=True,
            check=True,
            env={"HOME": str(tmp_path)},
        ).stdout.splitlines()
        said = {line.partition(" ")[0]: line.partition(" ")[2] for line in told}
        assert [line for line in told if line.startswith("identityfile ")] == [f"identityfile {path}"]
        assert (said["identitiesonly"], said["identityagent"], said["forwardagent"]) == ("yes", "none", "no")
        assert (said["user"], said["port"], said["batchmode"]) == ("u", "2222", "yes")
        jump = shlex.split(said["proxycommand"].replace("%%", "%"))
        assert jump[:3] == ["ssh", "-F", "none"]
        assert {f'IdentityFile="{path}"', "IdentitiesOnly=yes", "IdentityAgent=none", "BatchMode=yes"} <= set(jump)
        assert jump[-8:] == ["-l", "me", "-p", "22", "-W", "[%h]:%p", "--", "jump.example"]
    assert not path.exists()


@pytest.mark.parametrize("jump", ["a;b", "a,b", "-oX=y", "$(x)", "a|b", "`a`", "a&b", "u@", "a:b:c", "%h"])
def test_a_host_in_between_that_a_shell_would_read_otherwise_is_refused(jump: str) -> None:
    with pytest.raises(RemoteFailure), keyed_place("p", {"ip": "h", "ssh_key": KEY, "proxy_jump": jump}, config="none"):
        pass


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({}, "neither ip nor host"),
        ({"ip": "h"}, "brings no key"),
        ({"ip": "h", "pem": "/root/.ssh/id_ed25519"}, "brings no key"),
        ({"ip": "h", "ssh_key": "none"}, "no private key"),
        ({"ip": "h", "ssh_key": KEY, "port": 99999}, "port 99999"),
    ],
)
def test_a_provider_that_leads_nowhere_by_itself_is_refused(kwargs: dict[str, Any], said: str) -> None:
    for make, launcher in ((ssh.make, "SSH"), (slurm.make, "SLURM")):
        if launcher == "SLURM" and not kwargs:
            continue
        with pytest.raises(HttpError, match=said) as failed:
            make(resolved(launcher, **kwargs), MEANS)
        assert failed.value.status == 422
        assert "BEGIN" not in str(failed.value)


@pytest.mark.parametrize("id_", ["..", "../../x", "", "0123", f"{WORKER}/..", WORKER.upper(), f"lakeshore-{WORKER}/x"])
def test_an_id_that_names_no_launch_of_ours_ends_nothing(id_: str) -> None:
    makers: list[Launcher] = [ssh.make(resolved("SSH", ip="h", ssh_key=KEY), MEANS)]
    makers.append(kube.KubeLauncher(resolved("Kube")))
    for launcher in makers:
        with pytest.raises(Unsupported):
            trio.run(launcher.terminate, id_)


@pytest.mark.parametrize(
    ("launcher", "names"),
    [
        ("SSH", "ip host port username user proxy_jump ssh_key pem identity_file"),
        ("SLURM", "ip host port username user proxy_jump ssh_key pem identity_file"),
        ("Kube", "kubeconfig context namespace"),
        ("EC2", "aws_credentials"),
        ("GCE", "service_account_json"),
    ],
)
def test_a_capacity_says_nothing_of_where_a_daemon_goes_and_brings_no_keys(launcher: str, names: str) -> None:
    for name in names.split():
        with pytest.raises(HttpError, match=f"capacity.{name}") as failed:
            check_capacity(launcher, {name: "planted"})
        assert failed.value.status == 422 and "planted" not in str(failed.value)


@pytest.mark.parametrize(
    "capacity",
    [{"key_name": "\ud800"}, {"\udfff": 1}, {"a": float("nan")}, {"a": {"$secret": "x"}}, {"a": "x" * 20_000}],
)
def test_a_capacity_that_cannot_be_written_down_is_refused_before_anything_is(capacity: dict[str, Any]) -> None:
    with pytest.raises(HttpError) as failed:
        check_capacity("EC2", capacity)
    assert failed.value.status in (413, 422)


# --- SLURM


def test_words_of_sbatch_are_taken_by_name_and_nothing_else_is() -> None:
    said = {"time": "1:00:00", "gres": "gpu:a100:2", "cpus_per_task": 4, "mem": "8G", "exclusive": True, "nice": None}
    words = list(slurm.options_of({**said, "uid": "root", "wrap": "id", "output": "/x", "partition": "p"}))
    assert words == ["--time=1:00:00", "--gres=gpu:a100:2", "--mem=8G", "--cpus-per-task=4", "--exclusive"]


@pytest.mark.parametrize("value", ["a b", "a\n--wrap=id", "$(id)", "'", {"a": 1}, ["x"], "a`b"])
def test_a_word_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(Unsupported, match="account: "):
        list(slurm.options_of({"account": value}))


def test_a_node_gets_no_bootstrap_script() -> None:
    launcher = slurm.make(resolved("SLURM", host="h", ssh_key=KEY), MEANS)
    with pytest.raises(Unsupported, match="bootstrap_script"):
        trio.run(launcher.launch, machine(bootstrap_script="true"))


# --- pods


def test_a_pod_carries_what_marks_it_and_no_more_than_it_is_given() -> None:
    wanted = machine(capacity={"cpu": 0.5, "memory": "1Gi", "gpu": 1, "node_selector": {"a": "b"}}, keep_alive_s=0)
    pod = kube.pod_of(wanted, {"image": "mine"})
    assert pod["metadata"]["labels"].items() >= {"lakeshore-worker": WORKER, "lakeshore-namespace": "default"}.items()
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["nodeSelector"], spec["automountServiceAccountToken"]) == (
        "OnFailure",
        {"a": "b"},
        False,
    )
    (container,) = spec["containers"]
    assert (container["image"], container["command"]) == ("mine", ["sh", "-c", "u"])
    assert container["resources"]["requests"] == {"cpu": "0.5", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert container["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": "1"}
    assert kube.pod_of(machine(), {})["spec"]["restartPolicy"] == "Always"


@pytest.mark.parametrize(
    "capacity", [{"cpu": True}, {"memory": "much"}, {"gpu": "-1"}, {"node_selector": "x"}, {"cpu": [1]}]
)
def test_a_quantity_that_is_none_is_refused(capacity: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        kube.pod_of(machine(capacity=capacity), {})


@pytest.mark.parametrize("url", ["http://localhost:8080", "http://127.0.0.1:1", "http://[::1]:8080"])
def test_no_pod_is_sent_to_a_loopback_of_its_own(url: str) -> None:
    with pytest.raises(LaunchFailed, match="no pod reaches this server") as failed:
        trio.run(kube.KubeLauncher(resolved("Kube")).launch, machine(url=url))
    assert "LAKESHORE_PUBLIC_URL" in str(failed.value.hint)


LEADS = (
    "clusters: [{name: k, cluster: {server: 'https://k'}}]\n"
    "contexts: [{name: c, context: {cluster: k}}]\ncurrent-context: c\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "clusters: []\n",
        LEADS.replace("current-context: c", "current-context: other"),
        LEADS.replace("current-context: c", "current-context: [c]"),
        LEADS.replace("current-context: c\n", ""),
        LEADS.replace("{cluster: k}", "{}"),
        LEADS.replace("{cluster: k}", "{cluster: other}"),
        LEADS.replace("'https://k'", "''"),
        LEADS.replace("'https://k'", "2001-01-01"),
        LEADS.replace("'https://k'", "{a: b}"),
    ],
)
def test_a_kubeconfig_that_leads_to_no_server_would_lead_to_this_ones_pod_and_is_refused(text: str) -> None:
    kubeconfig.harmless(LEADS)
    with pytest.raises(kubeconfig.Unusable):
        kubeconfig.harmless(text)
    with pytest.raises(kubeconfig.Unusable):
        kubeconfig.harmless(LEADS, "other")


def test_kubectl_with_a_kubeconfig_of_somebodys_is_in_no_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubectl").write_text('#!/bin/sh\nenv >"${0%/*}/environment"\necho null\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert trio.run(kube.make(resolved("Kube", kubeconfig=LEADS), MEANS).instances) == []
    said = dict(line.partition("=")[::2] for line in (tmp_path / "environment").read_text().splitlines())
    assert (said["KUBERNETES_SERVICE_HOST"], said["KUBERNETES_SERVICE_PORT"]) == ("", "")


@pytest.mark.parametrize(
    "told",
    [
        [],
        "x",
        {"items": 1},
        {"items": [None, 1, {}, {"metadata": None}, {"metadata": {"labels": "lakeshore-worker"}}]},
        {"items": [{"metadata": {"name": "a", "labels": {"lakeshore-worker": {"a": 1}}}}]},
        {"items": [{"metadata": {"name": ["a"], "labels": ["lakeshore-worker"]}, "status": []}]},
    ],
)
def test_pods_that_make_no_sense_are_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: object
) -> None:
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(told)}\nEND\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert trio.run(kube.make(resolved("Kube", kubeconfig=LEADS), MEANS).instances) == []


@pytest.mark.parametrize("hang", [ssh.make, kube.make], ids=["ssh", "kube"])
def test_hosts_that_hang_cost_their_own_namespace_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hang: Any
) -> None:
    """Twenty of one namespace's, and the first of another's is asked."""
    for name in ("ssh", "kubectl"):
        (tmp_path / name).write_text('#!/bin/sh\ntouch "${0%/*}/asked.$$"\nexec sleep 30\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    given = {"kubeconfig": LEADS, "ip": "h", "ssh_key": KEY}

    async def asked(so_far: int) -> None:
        with trio.fail_after(20):
            while len(list(tmp_path.glob("asked.*"))) < so_far:  # noqa: ASYNC110, ASYNC240  (other processes' files)
                await trio.sleep(0.02)

    def stop() -> None:
        for path in tmp_path.glob("asked.*"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.suffix[1:]), signal.SIGKILL)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for ns, count, so_far in (("mine", 20, 4), ("other", 1, 5)):
                launcher = hang(Resolved(ns=ns, name="p", launcher="x", kwargs=given), MEANS)
                for _ in range(count):
                    nursery.start_soon(launcher.instances)
                await asked(so_far)
            nursery.cancel_scope.cancel()
        stop()

    trio.run(main)


def test_a_kubeconfig_is_written_anew_with_what_runs_and_reads_nothing() -> None:
    text = (
        "apiVersion: v1\nkind: Config\npreferences: {colors: true}\ncurrent-context: c\n"
        "clusters: [{name: k, cluster: {server: 'https://k:6443', certificate-authority-data: QQ==}}]\n"
        "users: [{name: u, user: {token: abc}}]\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]\n"
    )
    assert json.loads(kubeconfig.harmless(text)) == {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://k:6443", "certificate-authority-data": "QQ=="}}],
        "users": [{"name": "u", "user": {"token": "abc"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
    }


@pytest.mark.parametrize(
    "key", ["exec", "auth-provider", "tokenFile", "client-key", "client-certificate", "as", "new-one"]
)
def test_a_user_of_a_kubeconfig_that_says_more_is_refused_without_its_value(key: str) -> None:
    text = f"{LEADS}users: [{{name: u, user: {{{key}: planted}}}}]\n"
    with pytest.raises(kubeconfig.Unusable, match=f"users\\[u\\].{key}") as failed:
        kubeconfig.harmless(text)
    assert "planted" not in str(failed.value)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "a: &a [*a]", "clusters: 1", "x" * 300_000, "!!python/object/apply:os.system ['id']", "a: 2001-13-45"],
)
def test_what_is_no_kubeconfig_is_refused(text: str) -> None:
    with pytest.raises(kubeconfig.Unusable):
        kubeconfig.harmless(text)
