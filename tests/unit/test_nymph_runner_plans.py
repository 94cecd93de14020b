"""What each place is told of a job: docker's arguments, the batch script, the pod. No place is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lakeshore._self import python_path
from lakeshore.nymph.runners.attended import Plan
from lakeshore.nymph.runners.docker import Docker
from lakeshore.nymph.runners.kube import Kube, pod_name
from lakeshore.nymph.runners.process import Run
from lakeshore.nymph.runners.slurm import Slurm
from lakeshore.nymph.workdir import Account, Workdir, WorkdirError

ENVIRON = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": "unix:///d", "LAKESHORE_TOKEN": "secret", "PYTHONHOME": "/x"}
ENTRY = ["python", "-m", "dreamlake.lakeshore.daemon.entry"]
ROOT = python_path()[0]


def planned(
    tmp_path: Path, place: Any, *, owner: Account | None = None, script: str | None = None, **config: Any
) -> Plan:
    run = Run(invocation_id="01JOB", args=None if script else b"x", script=script, run_config=config, claim=3)
    workdir = Workdir.create(tmp_path, "01JOB", run.args)
    plan: Plan = place.plan(run, workdir, ENVIRON, owner)
    return plan


def after(argv: list[str], flag: str) -> list[str]:
    return [argv[n + 1] for n, word in enumerate(argv) if word == flag]


@pytest.mark.parametrize(
    ("kind", "runtime"),
    [
        pytest.param("docker", "runc", marks=pytest.mark.inventory("N-213", "N-214", "N-220")),
        pytest.param("gvisor", "runsc", marks=pytest.mark.inventory("N-215", "N-218", "N-222")),
    ],
)
def test_the_documented_arguments_stand_in_their_order(tmp_path: Path, kind: str, runtime: str) -> None:
    plan = planned(tmp_path, Docker(runtime), runner=kind, image="img:1")
    argv: list[str] = plan.told["argv"]
    at = tmp_path / "01JOB"
    head = ["docker", "run", "--rm", "-i", f"--runtime={runtime}", "--cidfile", str(at / "container.cid")]
    assert argv[: len(head)] == head
    assert argv[len(head)] == "--network=host"
    assert after(argv, "-v")[0] == f"{at}:/workspace"
    assert argv[argv.index("--user") :] == ["--user", f"{os.geteuid()}:{os.getegid()}", "img:1", *ENTRY]
    assert after(argv, "--label") == [f"lakeshore.job={plan.sweep[-1]}"]


@pytest.mark.inventory("N-216", "N-217", "N-224")
def test_the_callers_docker_settings_come_before_ours_and_others_are_ignored(tmp_path: Path) -> None:
    docker = {
        "network": "none",
        "env": {"A": "1", "PYTHONPATH": "/theirs"},
        "volumes": ["/data:/data:ro"],
        "args": ["--shm-size", "1g"],
        "privileged": True,
    }
    argv = planned(tmp_path, Docker("runc"), image="img", env={"B": "2"}, docker=docker).told["argv"]
    assert "--network=none" in argv
    assert after(argv, "-v")[-1] == "/data:/data:ro"
    told = after(argv, "-e")
    assert told.index("A=1") < told.index("DREAMLAKE_INVOCATION_ID=01JOB") < told.index("DREAMLAKE_WORKDIR=/workspace")
    assert {"B=2", "PYTHONPATH=/opt/lakeshore:/theirs"} <= set(told)
    assert argv[argv.index("--shm-size") :][:3] == ["--shm-size", "1g", "--user"]
    assert not any("privileged" in word for word in argv)


@pytest.mark.inventory("N-219")
@pytest.mark.parametrize("args", [["--user", "7:7"], ["-u", "7"], ["--user=7"]])
def test_a_user_of_the_callers_is_left_alone(tmp_path: Path, args: list[str]) -> None:
    argv = planned(tmp_path, Docker("runc"), image="img", docker={"args": args}).told["argv"]
    assert argv[argv.index(args[0]) :] == [*args, "img", *ENTRY]


def test_our_packages_are_mounted_read_only_and_nothing_else_of_the_host_is(tmp_path: Path) -> None:
    argv = planned(tmp_path, Docker("runc"), image="img").told["argv"]
    assert after(argv, "-v")[1:] == [f"{ROOT}/{name}:/opt/lakeshore/{name}:ro" for name in ("lakeshore", "dreamlake")]


def test_the_daemons_credentials_are_in_no_places_environment(tmp_path: Path) -> None:
    for place in (Docker("runc"), Slurm(), Kube()):
        plan = planned(tmp_path, place, image="img")
        assert "secret" not in repr((plan.told, plan.env))
        assert plan.env["DOCKER_HOST"] == "unix:///d", "its clients find what the daemon finds"


def test_a_script_runs_under_bash_in_each_place(tmp_path: Path) -> None:
    assert planned(tmp_path, Docker("runc"), image="img", script="echo $A").told["argv"][-3:] == [
        "bash",
        "-c",
        "echo $A",
    ]
    assert planned(tmp_path, Kube(), script="x").told["manifest"]["spec"]["containers"][0]["command"] == [
        "bash",
        "-c",
        "x",
    ]
    assert "bash -c 'echo $A'\n" in planned(tmp_path, Slurm(), script="echo $A").told["script"]
    long = planned(tmp_path, Docker("runc"), image="img", script="#" * 200_000)
    assert long.told["argv"][-2:] == ["bash", "/workspace/script.sh"]


@pytest.mark.inventory("N-231", "N-232", "N-235")
def test_the_batch_script_says_what_was_asked_of_the_cluster(tmp_path: Path) -> None:
    slurm = {
        "partition": "gpu",
        "time": "00:10:00",
        "gres": "gpu:1",
        "nodes": 1,
        "ntasks-per-node": 2,
        "cpus-per-task": 4,
        "mem": "8G",
        "poll_interval_s": 2,
    }
    plan = planned(tmp_path, Slurm(), runner="slurm", slurm=slurm)
    lines = plan.told["script"].splitlines()
    for name, value in slurm.items():
        assert (f"#SBATCH --{name}={value}" in lines) == (name != "poll_interval_s")
    assert plan.told["poll_s"] == 2
    assert "python3 -m dreamlake.lakeshore.daemon.entry" in lines
    default = planned(tmp_path, Slurm(), runner="slurm")
    assert "#SBATCH --time=01:00:00" in default.told["script"].splitlines()
    assert default.told["poll_s"] == 5


@pytest.mark.inventory("N-236", "N-239", "N-240")
def test_the_pod_is_what_was_asked_of_the_cluster(tmp_path: Path) -> None:
    kube = {
        "image": "img:2",
        "namespace": "ml",
        "context": "big",
        "gpu": 1,
        "cpu": "2",
        "memory": "4Gi",
        "poll_interval_s": 1,
    }
    told = planned(tmp_path, Kube(), runner="kube", kube=kube).told
    assert told["kubectl"] == ["kubectl", "--context", "big", "--namespace", "ml"]
    pod = told["manifest"]
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["command"]) == ("img:2", ENTRY)
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}
    assert pod["spec"]["volumes"][0]["hostPath"]["path"] == str(tmp_path / "01JOB")
    assert container["volumeMounts"][0] == {"name": "workdir", "mountPath": "/workspace"}
    plain = planned(tmp_path, Kube(), runner="kube").told
    assert plain["kubectl"] == ["kubectl", "--namespace", "default"]
    assert plain["manifest"]["spec"]["containers"][0]["image"] == "python:3.12-slim"
    assert plain["poll_s"] == 5


@pytest.mark.inventory("N-412")
@pytest.mark.parametrize(("kube", "seconds"), [({"poll_interval_s": 0.5}, 0.5), ({}, 5)])
def test_a_pod_is_looked_at_as_often_as_was_asked(tmp_path: Path, kube: dict[str, float], seconds: float) -> None:
    assert planned(tmp_path, Kube(), runner="kube", kube=kube).told["poll_s"] == seconds


@pytest.mark.inventory("N-387")
@pytest.mark.inventory("C-1476")
def test_a_claim_of_the_clusters_takes_the_place_of_the_nodes_file_system(tmp_path: Path) -> None:
    pod = planned(tmp_path, Kube(), kube={"pvc": "jobs"}).told["manifest"]
    assert [volume.get("hostPath") for volume in pod["spec"]["volumes"]] == [None]
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "jobs"}
    mounts: list[Mapping[str, Any]] = pod["spec"]["containers"][0]["volumeMounts"]
    assert mounts[0]["subPath"] == "01JOB"
    assert (tmp_path / mounts[1]["subPath"] / "lakeshore/__init__.py").is_file()


def test_a_pods_name_is_one_that_dns_takes_and_another_attempts_is_another() -> None:
    names = {pod_name(Run(invocation_id="01K_Job.x", claim=claim)) for claim in (1, 2)}
    assert names == {"lakeshore-01k-job-x-1", "lakeshore-01k-job-x-2"}


@pytest.mark.parametrize(
    ("place", "config", "said"),
    [
        (Docker("runc"), {"image": "--privileged"}, "run_config.image"),
        (Docker("runc"), {"image": "img", "docker": {"args": "--rm"}}, "run_config.docker.args"),
        (Docker("runc"), {"image": "img", "docker": {"volumes": [1]}}, "run_config.docker.volumes"),
        (Docker("runc"), {"image": "img", "docker": ["x"]}, "run_config.docker"),
        (Docker("runc"), {"image": "img", "docker": {"env": {"A=B": "1"}}}, "run_config.docker.env"),
        (Slurm(), {"slurm": {"partition": "a\n#SBATCH --uid=0"}}, "run_config.slurm.partition"),
        (Slurm(), {"slurm": {"poll_interval_s": 0}}, "run_config.slurm.poll_interval_s"),
        (Kube(), {"kube": {"gpu": "two"}}, "run_config.kube.gpu"),
        (Kube(), {"kube": {"namespace": ["x"]}}, "run_config.kube.namespace"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_path(
    tmp_path: Path, place: Any, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(WorkdirError) as refused:
        planned(tmp_path, place, **config)
    assert str(refused.value).startswith(f"{said} — ")
