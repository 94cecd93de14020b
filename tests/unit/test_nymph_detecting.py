"""Reading what hosts say of themselves, and joining it with what is configured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore._version import __version__
from lakeshore.nymph.config import Config, DaemonSection, RuntimeSection
from lakeshore.nymph.detect import Found, HostFacts, facts_of
from lakeshore.nymph.detecting import hardware, system
from lakeshore.nymph.detecting.commands import first_line, python_of
from lakeshore.nymph.detecting.metadata import aws_tags_of, gcp_tags_of
from lakeshore.nymph.detecting.tags import host_tags, key_of, merge_runners, merge_tags
from lakeshore.nymph.hello import HelloAnswer, capabilities, hello_body, read_answer
from lakeshore.server.structure import structure
from lakeshore.wire.messages import MSGPACK, HelloRequest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "detect"


def recorded(name: str) -> str:
    return (FIXTURES / name).read_text("utf-8")


# ---- hardware


@pytest.mark.inventory("N-088")
@pytest.mark.parametrize(
    ("name", "model", "cores"),
    [
        ("cpuinfo-epyc", "AMD EPYC 7R13 Processor", 4),
        ("cpuinfo-graviton", None, 2),
        ("cpuinfo-raspberry", "Raspberry Pi 4 Model B Rev 1.4", 4),
    ],
)
def test_processors(name: str, model: str | None, cores: int) -> None:
    assert hardware.cpu_of(recorded(name)) == {"model": model, "cores": cores}


def test_processors_and_memory_of_a_mac() -> None:
    said = recorded("darwin-sysctl")
    assert hardware.cpu_of_darwin(said) == {"model": "Apple M2 Pro", "cores": 12}
    assert hardware.memory_of_darwin(said) == 32 * 2**30
    assert system.darwin_name_of(recorded("darwin-sw_vers")) == "macOS 14.5"


def test_memory_and_its_limit() -> None:
    assert hardware.memory_of(recorded("meminfo")) == 16389116 * 1024
    assert hardware.memory_limit_of("max\n", None) is None
    assert hardware.memory_limit_of("2147483648\n", "9223372036854771712\n") == 2**31
    assert hardware.memory_limit_of(None, "9223372036854771712") is None


@pytest.mark.inventory("N-089", "S-380")
def test_graphics_cards_with_driver_and_cuda() -> None:
    card = {"name": "NVIDIA A100-SXM4-80GB", "driver": "535.129.03", "cuda": "12.2"}
    assert hardware.gpus_of(recorded("nvidia-smi-query"), recorded("nvidia-smi-header")) == (card, card)
    assert hardware.gpus_of(recorded("nvidia-smi-query"), None) == ({**card, "cuda": None},) * 2
    assert hardware.gpus_of("Tesla T4, [N/A]\n", None) == ({"name": "Tesla T4", "driver": None, "cuda": None},)
    for none in (None, "", "No devices were found\n", "name, driver_version\n"):
        assert hardware.gpus_of(none, None) is None


# ---- the system


@pytest.mark.inventory("N-087")
@pytest.mark.parametrize(
    ("name", "pretty"),
    [
        ("os-release-debian", "Debian GNU/Linux 12 (bookworm)"),
        ("os-release-alpine", "Alpine Linux v3.19"),
        ("os-release-arch", "Arch Linux"),
    ],
)
def test_the_distribution(name: str, pretty: str) -> None:
    assert system.pretty_name_of(recorded(name)) == pretty


@pytest.mark.parametrize("text", ["", "PRETTY_NAME=\n", "PRETTY_NAME='open\n", "NAME=x\n"])
def test_a_distribution_without_a_name_is_none(text: str) -> None:
    assert system.pretty_name_of(text) is None


@pytest.mark.inventory("N-071")
def test_the_clusters_name_is_read_as_slurm_reads_it() -> None:
    assert system.cluster_name_of(recorded("slurm.conf")) == "bos14"
    assert system.cluster_name_of('ClusterName="x"\n') == "x"
    for text in ("", "ClusterName=\n", "#ClusterName=x\n", "NodeName=ClusterName\n"):
        assert system.cluster_name_of(text) is None


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, None),
        ({"cgroup": recorded("cgroup-v2")}, None),
        ({"cgroup": recorded("cgroup-kubernetes")}, "kubernetes"),
        ({"cgroup": recorded("cgroup-docker")}, "docker"),
        ({"dockerenv": True}, "docker"),
        ({"containerenv": True}, "podman"),
        ({"environ": "PATH=/bin\0container=systemd-nspawn\0"}, "systemd-nspawn"),
    ],
)
def test_containers(said: dict[str, Any], kind: str | None) -> None:
    asked = {"dockerenv": False, "containerenv": False, "environ": None, "cgroup": None, **said}
    assert system.container_of(**asked) == kind


@pytest.mark.parametrize(
    ("vendor", "product", "bios", "kind"),
    [
        ("Amazon EC2\n", "p5.48xlarge\n", "1.0\n", "aws"),
        ("Xen\n", "HVM domU\n", "4.11.amazon\n", "aws"),
        ("Google\n", "Google Compute Engine\n", None, "gcp"),
        ("Microsoft Corporation\n", "Virtual Machine\n", None, "azure"),
        ("Microsoft Corporation\n", "Surface Pro\n", None, None),
        ("QEMU\n", "Standard PC (Q35 + ICH9, 2009)\n", None, "qemu"),
        ("Dell Inc.\n", "PowerEdge R750\n", "2.1\n", None),
        (None, None, None, None),
    ],
)
def test_virtual_machines_and_clouds(
    vendor: str | None, product: str | None, bios: str | None, kind: str | None
) -> None:
    assert system.machine_of(vendor, product, bios) == kind


@pytest.mark.inventory("N-073")
def test_the_tags_of_an_ec2_machine() -> None:
    assert aws_tags_of(recorded("aws-document.json").encode()) == ("aws:instance-type=p5.48xlarge", "region=us-east-1")
    for other in (b"", b"<html>log in</html>", b"[]", b"{}", b'{"instanceType": 3}', b'{"instanceType": "a b"}'):
        assert aws_tags_of(other) is None


@pytest.mark.inventory("N-074")
def test_the_tag_of_a_google_machine() -> None:
    assert gcp_tags_of(recorded("gcp-machine-type").encode()) == ("gcp:machine-type=a2-highgpu-1g",)
    for other in (b"", b"n1-standard-1", b"projects/1/machineTypes/", b"<html>/machineTypes/<b>"):
        assert gcp_tags_of(other) is None


parsers = [
    hardware.cpu_of,
    hardware.cpu_of_darwin,
    hardware.memory_of,
    hardware.memory_of_darwin,
    hardware.memory_limit_of,
    lambda text: hardware.gpus_of(text, text),
    system.pretty_name_of,
    system.darwin_name_of,
    system.cluster_name_of,
    lambda text: aws_tags_of(text.encode("utf-8", "replace")),
    lambda text: gcp_tags_of(text.encode("utf-8", "replace")),
    python_of,
    first_line,
]


@given(st.text(max_size=200) | st.text(":=\n\t ,\"'\\0123456789processorMemTotalkB", max_size=200))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    for parser in parsers:
        parser(text)


@pytest.mark.inventory("N-084")
def test_the_line_of_a_python_is_found_among_what_shims_say() -> None:
    assert python_of("Python 3.11.2\n") == "Python 3.11.2"
    assert python_of("pyenv: using 3.11\nPython 3.11.7\n") == "Python 3.11.7"
    assert python_of("bash: python: command not found") is None


# ---- tags and runners


@pytest.mark.inventory("N-075", "N-076")
def test_a_host_has_one_host_tag_and_local_is_the_last_resort() -> None:
    assert host_tags() == ("host=local",)
    every = host_tags(
        slurm=True, cluster="bos14", kube=True, context="c", aws=("aws:instance-type=t",), gcp=("gcp:machine-type=m",)
    )
    assert every == (
        "host=slurm",
        "slurm:cluster=bos14",
        "kube:context=c",
        "aws:instance-type=t",
        "gcp:machine-type=m",
    )
    assert host_tags(slurm=True) == ("host=slurm",)
    assert host_tags(aws=()) == ("host=aws",)


@pytest.mark.inventory("N-077", "N-410", "N-037")
def test_configured_tags_win_over_detected_ones_of_the_same_key_and_stay_as_they_are() -> None:
    configured = ("gpu:h100", "gpu:a100", "host=mine", "odd tag")
    detected = ("host=aws", "aws:instance-type=t", "region=r", "gpu=none", "region=r")
    assert merge_tags(configured, detected) == (*configured, "aws:instance-type=t", "region=r")
    assert merge_tags((), ("host=local",)) == ("host=local",)
    assert [key_of(tag) for tag in ("a=b:c", "a:b=c", "a", "a =b")] == ["a"] * 4


@given(st.lists(st.text("ab=:", max_size=5), max_size=6), st.lists(st.text("ab=:", max_size=5), max_size=6))
def test_merged_tags_are_the_configured_ones_and_then_new_keys_only(configured: list[str], detected: list[str]) -> None:
    merged = merge_tags(configured, detected)
    own = list(dict.fromkeys(configured))
    assert list(merged[: len(own)]) == own
    added = merged[len(own) :]
    assert all(tag in detected for tag in added)
    assert not {key_of(tag) for tag in added} & {key_of(tag) for tag in own}
    assert {key_of(tag) for tag in merged} == {key_of(tag) for tag in (*configured, *detected)}


@pytest.mark.inventory("N-078")
def test_configured_runners_stay_first_and_detected_ones_are_added() -> None:
    assert merge_runners(("process", "kube"), ("slurm", "kube")) == ("process", "kube", "slurm")
    assert merge_runners(("docker",), ()) == ("docker",)


# ---- facts and hello

PLAIN = Found(hostname="box", release="6.1.0-18-amd64", arch="x86_64", usable_cpus=2)


def everything() -> Found:
    return Found(
        hostname="box",
        release="6.1.0-18-amd64",
        arch="x86_64",
        usable_cpus=2,
        has_sinfo=True,
        files={
            "etc/os-release": recorded("os-release-debian"),
            "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
            "proc/sys/kernel/random/boot_id": "b8f0c1de-0000-4000-8000-000000000000\n",
            "etc/slurm/slurm.conf": recorded("slurm.conf"),
            "proc/cpuinfo": recorded("cpuinfo-epyc"),
            "proc/meminfo": recorded("meminfo"),
            "proc/1/cgroup": recorded("cgroup-kubernetes"),
            "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        },
        texts={
            "runsc": recorded("runsc-version").strip(),
            "docker": recorded("docker-version").strip(),
            "docker runtimes": recorded("docker-runtimes-with-runsc").strip(),
            "python3": "Python 3.11.2",
            "python": "Python 2.7.18",
            "sbatch": recorded("sbatch-version").strip(),
            "kubectl": recorded("kubectl-version").strip(),
            "kube context": recorded("kubectl-context").strip(),
            "gpus": recorded("nvidia-smi-query"),
            "cuda": recorded("nvidia-smi-header"),
        },
        aws=aws_tags_of(recorded("aws-document.json").encode()),
    )


@pytest.mark.inventory("N-079", "N-080", "N-081")
def test_what_was_not_found_is_null_and_what_is_known_is_there() -> None:
    assert hello_body(Config(), facts_of(PLAIN), machine_id="box")["versions"] == {
        "daemon": __version__,
        "protocol": "1",
        "runsc": None,
        "docker": None,
        "python": None,
        "kernel": "Linux 6.1.0-18-amd64",
        "distro": None,
        "arch": "x86_64",
        "cpu": None,
        "gpu": None,
    }


@pytest.mark.inventory("N-096", "S-380", "S-378")
def test_the_versions_of_a_host_that_has_everything() -> None:
    card = {"name": "NVIDIA A100-SXM4-80GB", "driver": "535.129.03", "cuda": "12.2"}
    assert hello_body(Config(), facts_of(everything()), machine_id="box")["versions"] == {
        "daemon": __version__,
        "protocol": "1",
        "runsc": "runsc version release-20240212.0",
        "docker": "28.2.2",
        "python": "Python 3.11.2",
        "kernel": "Linux 6.1.0-18-amd64",
        "distro": "Debian GNU/Linux 12 (bookworm)",
        "arch": "x86_64",
        "cpu": {"model": "AMD EPYC 7R13 Processor", "cores": 4},
        "gpu": [card, card],
    }


def test_the_other_facts_of_such_a_host() -> None:
    facts = facts_of(everything())
    assert (facts.hostname, facts.machine_uuid) == ("box", "0123456789abcdef0123456789abcdef")
    assert (facts.boot_id, facts.usable_cpus) == ("b8f0c1de-0000-4000-8000-000000000000", 2)
    assert (facts.memory_bytes, facts.memory_limit_bytes) == (16389116 * 1024, None)
    assert (facts.container, facts.virtual, facts.cloud) == ("kubernetes", "aws", "aws")
    assert facts.tools["sbatch"] == "slurm-wlm 22.05.8"
    assert facts.tags[0] == "host=slurm"


@pytest.mark.inventory("N-071", "N-072")
def test_slurm_needs_its_command_and_its_file_and_kube_an_answer() -> None:
    def of(**changed: Any) -> HostFacts:
        return facts_of(Found(**{"hostname": "h", **changed}))

    conf = {"etc/slurm/slurm.conf": recorded("slurm.conf")}
    assert of(has_sinfo=True).tags == of(files=conf).tags == ("host=local",)
    both = of(has_sinfo=True, files=conf)
    assert (both.tags, both.runners) == (("host=slurm", "slurm:cluster=bos14"), ("slurm",))
    context = {"kube context": "ctx"}
    assert of(texts=context).runners == ()
    kube = of(texts={**context, "kubectl": "{}"})
    assert (kube.tags, kube.runners) == (("host=kube", "kube:context=ctx"), ("kube",))


def test_docker_is_a_runner_when_its_daemon_answers_and_gvisor_when_it_is_registered_there() -> None:
    def runners(**texts: str) -> tuple[str, ...]:
        return facts_of(
            Found(hostname="h", texts={name.replace("_", " "): text for name, text in texts.items()})
        ).runners

    assert runners(runsc="runsc version 1") == ()
    assert runners(docker="28.2.2", docker_runtimes=recorded("docker-runtimes")) == ("docker",)
    with_runsc = recorded("docker-runtimes-with-runsc")
    assert runners(docker="28.2.2", docker_runtimes=with_runsc) == ("docker", "gvisor")
    assert runners(docker_runtimes=with_runsc) == ()


def test_a_cloud_machine_whose_metadata_service_is_shut_off_is_known_by_its_firmware() -> None:
    vendor = {"sys/class/dmi/id/sys_vendor": "Google\n"}
    facts = facts_of(Found(hostname="h", files=vendor))
    assert (facts.tags, facts.cloud) == (("host=gcp",), "gcp")


@pytest.mark.inventory("N-091", "N-093", "N-095")
def test_hello_says_machine_tags_and_capabilities() -> None:
    config = Config(
        daemon=DaemonSection(label="gpu-1", tags=("gpu:h100",)),
        runtime=RuntimeSection(runners=("process",), max_invocations=7, workdir="/w"),
    )
    body = hello_body(config, facts_of(everything()), machine_id="box")
    assert (body["machine_id"], body["label"]) == ("box", "gpu-1")
    assert body["tags"] == [
        "gpu:h100",
        "host=slurm",
        "slurm:cluster=bos14",
        "kube:context=arn:aws:eks:us-east-1:123456789012:cluster/training",
        "aws:instance-type=p5.48xlarge",
        "region=us-east-1",
    ]
    assert body["capabilities"] == {
        "runners": ["process", "docker", "gvisor", "slurm", "kube"],
        "max_invocations": 7,
        "workdir": "/w",
    }
    assert capabilities(config, facts_of(PLAIN), workdir="/home/u/w")["workdir"] == "/home/u/w"


@pytest.mark.inventory("N-036", "N-092", "C-797")
def test_an_explicit_label_travels_unchanged_and_an_empty_one_stays_empty_for_lists_to_show_another_name() -> None:
    """A worker is (machine, label): with a provisional id for a label each start would be another worker."""
    labels = [
        hello_body(Config(daemon=DaemonSection(label=label)), facts_of(PLAIN), machine_id="box")["label"]
        for label in ("bos14-01K4G8AX000000000000000001", " odd, but mine", "")
    ]
    assert labels == ["bos14-01K4G8AX000000000000000001", " odd, but mine", ""]
    assert Config().daemon.label == ""


@pytest.mark.inventory("N-094", "N-038", "N-097")
def test_lanes_and_key_are_left_out_where_there_are_none() -> None:
    assert set(hello_body(Config(), facts_of(PLAIN), machine_id="box")) == {
        "machine_id",
        "label",
        "tags",
        "capabilities",
        "versions",
    }
    lanes = Config(daemon=DaemonSection(lanes=("a", "b*")))
    body = hello_body(lanes, facts_of(PLAIN), machine_id="box", public_key="k" * 43)
    assert (body["lanes"], body["public_key"]) == (["a", "b*"], "k" * 43)


def test_a_server_of_ours_reads_it_to_the_same() -> None:
    config = Config(daemon=DaemonSection(lanes=("a",)))
    body = json.loads(json.dumps(hello_body(config, facts_of(everything()), machine_id="box", public_key="k" * 43)))
    read = structure(body, HelloRequest, MSGPACK)
    assert (read.machine_id, read.label, read.lanes, read.public_key) == ("box", "", ("a",), "k" * 43)
    assert read.versions == facts_of(everything()).versions


@pytest.mark.inventory("N-100", "N-101", "N-103")
def test_of_the_answer_five_fields_are_read() -> None:
    answer = {
        "worker_id": "6650a1b2c3d4e5f601234567",
        "session_token": "01X",
        "session_ttl_s": 86400,
        "config": {},
        "cursor": None,
        "reject": None,
        "key_id": "If4x36FUomFia_hU",
        "key_rotation_max_age_s": 2592000,
        "server_time_epoch_s": 1750000000.5,
    }
    assert read_answer(answer) == HelloAnswer(
        worker_id="6650a1b2c3d4e5f601234567",
        key_id="If4x36FUomFia_hU",
        key_rotation_max_age_s=2592000.0,
        server_time_epoch_s=1750000000.5,
    )
    refused = read_answer({"worker_id": None, "reject": {"code": "protocol_mismatch", "message": "upgrade"}})
    assert (refused.worker_id, refused.reject) == (None, ("protocol_mismatch", "upgrade"))


@pytest.mark.inventory("N-102", "N-395")
@given(
    st.dictionaries(
        st.sampled_from(["worker_id", "key_id", "reject", "server_time_epoch_s", "config", "session_token"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just({}) | st.just([1]),
    )
)
def test_no_answer_is_too_odd_to_be_read_and_the_session_token_changes_nothing(answer: dict[str, Any]) -> None:
    read = read_answer(answer)
    assert read == read_answer({**answer, "session_token": "01Y", "config": {"a": 1}, "cursor": "x"})
    assert (read.reject is None) == (not answer.get("reject") and not isinstance(answer.get("reject"), dict))
