"""Asking a host: real processes and sockets, and what happens when they hang. The host is a directory of recordings."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trio

from lakeshore.nymph.detect import HostFacts, detect
from lakeshore.nymph.detecting.commands import output_of
from lakeshore.nymph.detecting.metadata import ask_aws, ask_gcp
from lakeshore.nymph.detecting.questions import COMMANDS

FIXTURES = Path(__file__).parents[1] / "fixtures" / "detect"
SHUT = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}


class Host:
    """A directory with a root and a PATH of recorded tools."""

    def __init__(self, place: Path) -> None:
        self.root = place / "root"
        self.bin = place / "bin"
        self.root.mkdir()
        self.bin.mkdir()
        self.environ = {"PATH": str(self.bin), **SHUT}

    def file(self, name: str, recorded: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / recorded, path)

    def tool(self, name: str, script: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def detect(self, limit_s: float = 20.0, metadata_limit_s: float = 10.0) -> HostFacts:
        async def ask() -> HostFacts:
            return await detect(
                root=self.root, environ=self.environ, limit_s=limit_s, metadata_limit_s=metadata_limit_s
            )

        return trio.run(ask)

    def ask(self, *argv: str, limit_s: float = 20.0, stderr_too: bool = False) -> str | None:
        return output_of(argv, environ=self.environ, limit_s=limit_s, stderr_too=stderr_too)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def cat(name: str) -> str:
    return f"exec /bin/cat {FIXTURES / name}"


@pytest.mark.inventory("N-082", "N-083", "N-085")
def test_tools_are_asked_by_their_documented_commands(host: Host) -> None:
    host.tool("runsc", f'[ "$*" = "--version" ] && {cat("runsc-version")}')
    host.tool(
        "docker",
        f'[ "$*" = "version --format {{{{.Server.Version}}}}" ] && {cat("docker-version")}\n'
        f'[ "$*" = "info --format {{{{json .Runtimes}}}}" ] && {cat("docker-runtimes")}',
    )
    found = host.detect()
    assert (found.versions.runsc, found.versions.docker) == ("runsc version release-20240212.0", "28.2.2")
    assert found.runners == ("docker",)
    assert found.versions.kernel == f"{os.uname().sysname} {os.uname().release}"


@pytest.mark.inventory("N-086", "N-087", "N-088")
def test_files_are_read(host: Host) -> None:
    host.file("etc/os-release", "os-release-debian")
    host.file("proc/cpuinfo", "cpuinfo-epyc")
    host.file("proc/meminfo", "meminfo")
    (host.root / ".dockerenv").touch()
    found = host.detect()
    assert found.versions.arch == os.uname().machine
    assert found.versions.distro == "Debian GNU/Linux 12 (bookworm)"
    assert found.versions.cpu == {"model": "AMD EPYC 7R13 Processor", "cores": 4}
    assert (found.memory_bytes, found.container) == (16389116 * 1024, "docker")


@pytest.mark.inventory("N-084")
def test_python_is_python3_and_else_python(host: Host) -> None:
    host.tool("python", "echo Python 2.7.18 >&2")
    assert host.detect().versions.python == "Python 2.7.18"
    host.tool("python3", "echo 'a shim: hello' >&2; echo Python 3.11.2")
    assert host.detect().versions.python == "Python 3.11.2"
    host.tool("python3", "exit 127")
    assert host.detect().versions.python == "Python 2.7.18"


@pytest.mark.inventory("N-089")
def test_graphics_cards_are_asked_of_nvidia_smi(host: Host) -> None:
    host.tool(
        "nvidia-smi",
        f"[ $# = 0 ] && {cat('nvidia-smi-header')}\n"
        f'[ "$*" = "--query-gpu=name,driver_version --format=csv,noheader" ] && {cat("nvidia-smi-query")}',
    )
    cards = host.detect().versions.gpu
    assert cards is not None
    assert [(card["driver"], card["cuda"]) for card in cards] == [("535.129.03", "12.2")] * 2


@pytest.mark.inventory("N-071")
def test_slurm_is_sinfo_and_its_file(host: Host) -> None:
    host.tool("sinfo", "exit 1")
    host.tool("sbatch", cat("sbatch-version"))
    assert host.detect().tags == ("host=local",)
    host.file("etc/slurm/slurm.conf", "slurm.conf")
    found = host.detect()
    assert (found.tags, found.runners) == (("host=slurm", "slurm:cluster=bos14"), ("slurm",))
    assert found.tools["sbatch"] == "slurm-wlm 22.05.8"


@pytest.mark.inventory("N-072")
def test_kube_is_kubectl_that_reaches_its_server(host: Host) -> None:
    asked = "version --client=false --request-timeout=2s --output=json"
    assert " ".join(COMMANDS["kubectl"][1:]) == asked
    context = f'[ "$*" = "config current-context" ] && {cat("kubectl-context")}\n'
    host.tool("kubectl", f'{context}[ "$*" = "{asked}" ] && {cat("kubectl-version")}')
    found = host.detect()
    assert found.tags == ("host=kube", "kube:context=arn:aws:eks:us-east-1:123456789012:cluster/training")
    assert found.runners == ("kube",)
    host.tool("kubectl", f"{context}/bin/cat {FIXTURES / 'kubectl-version'}; exit 1")
    assert (host.detect().tags, host.detect().runners) == (("host=local",), ())


@pytest.mark.parametrize(
    ("tool", "answers", "asked"),
    [
        ("kubectl", "exit 1", 1),
        ("kubectl", cat("kubectl-version"), 2),
        ("docker", "exit 1", 1),
        ("docker", cat("docker-version"), 2),
        ("nvidia-smi", "exit 1", 1),
        ("nvidia-smi", cat("nvidia-smi-query"), 2),
    ],
)
def test_a_tool_that_finds_nothing_is_not_asked_for_more(host: Host, tool: str, answers: str, asked: int) -> None:
    host.tool(tool, f'echo "$*" >> {host.root}/asked\n{answers}')
    host.detect()
    assert len((host.root / "asked").read_text().splitlines()) == asked


def test_python_is_asked_only_where_python3_does_not_say(host: Host) -> None:
    host.tool("python3", "echo Python 3.11.2")
    host.tool("python", f"touch {host.root}/asked; echo Python 3.9.1")
    assert host.detect().versions.python == "Python 3.11.2"
    assert not (host.root / "asked").exists()


# ---- what hangs, fails or says too much


@pytest.mark.inventory("N-079")
@pytest.mark.parametrize(
    "script",
    [
        "exit 3",
        "echo said; exit 3",
        "kill -9 $$",
        "/usr/bin/head -c 3000000 /dev/zero",
    ],
)
def test_a_tool_that_fails_or_says_too_much_says_nothing(host: Host, script: str) -> None:
    host.tool("runsc", script)
    assert host.ask("runsc") is None
    assert host.detect().versions.runsc is None


def test_a_tool_that_is_missing_or_cannot_be_run_says_nothing(host: Host) -> None:
    assert host.ask("runsc") is None
    host.tool("runsc", "exit 0").chmod(0o644)
    assert host.ask("runsc") is None
    (host.bin / "runsc").unlink()
    (host.bin / "runsc").write_bytes(b"\x7fELF not really")
    (host.bin / "runsc").chmod(0o755)
    assert host.ask("runsc") is None


def test_a_tool_gets_no_stdin_and_plain_words(host: Host) -> None:
    host.tool("runsc", "read -r line && exit 1; echo $LC_ALL")
    program = (
        "from lakeshore.nymph.detecting.commands import output_of\n"
        f"print(output_of(['runsc'], environ={host.environ!r}, limit_s=20))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input="a line\n", capture_output=True, text=True, check=True)
    assert done.stdout == "C\n"


def gone(pid: int) -> bool:
    """Whether that process has ended, within a while."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_tools_that_hang_cost_the_limit_once_and_leave_no_process(host: Host, tmp_path: Path) -> None:
    for name in ("runsc", "docker", "python3", "python", "sbatch", "kubectl", "nvidia-smi"):
        # a child of the tool hangs, too, and keeps its standard output
        host.tool(name, f"/bin/sleep 600 & echo $! >> {tmp_path}/pids; echo $$ >> {tmp_path}/pids; wait")
    host.file("etc/os-release", "os-release-debian")
    before = time.monotonic()
    found = host.detect(limit_s=1.5)
    took = time.monotonic() - before
    assert found.versions.distro == "Debian GNU/Linux 12 (bookworm)"
    assert (found.versions.python, found.versions.gpu, found.runners) == (None, None, ())
    assert took < 1.5 * 6, "ten questions that hang, and not one after the other"
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) >= 2
    assert all(gone(pid) for pid in pids)


def test_a_grandchild_that_keeps_the_output_open_keeps_nobody_waiting(host: Host, tmp_path: Path) -> None:
    host.tool("runsc", f"/bin/sleep 600 & echo $! > {tmp_path}/pid; echo runsc version 1")
    before = time.monotonic()
    try:
        assert host.ask("runsc", limit_s=60) == "runsc version 1"
        assert time.monotonic() - before < 30
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)


# ---- metadata services


class Service(BaseHTTPRequestHandler):
    """A metadata service by the vendors' documents. What it is comes with its server."""

    kind = "aws v2"
    asked: list[str]

    def do_PUT(self) -> None:
        if self.kind != "aws v2":
            self._say(405, b"")
        elif self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]:
            self._say(200, b"AQAEA-token==")
        else:
            self._say(400, b"")

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.kind == "captive":
            self._say(200, b"<html>please log in</html>")
        elif self.path == "/latest/dynamic/instance-identity/document" and self.kind.startswith("aws"):
            allowed = self.kind == "aws v1" or self.headers["X-aws-ec2-metadata-token"] == "AQAEA-token=="
            self._say(200 if allowed else 401, (FIXTURES / "aws-document.json").read_bytes() if allowed else b"")
        elif self.path == "/computeMetadata/v1/instance/machine-type" and self.kind.startswith("gcp"):
            allowed = self.headers["Metadata-Flavor"] == "Google"
            body = (FIXTURES / "gcp-machine-type").read_bytes() if allowed else b""
            self._say(200 if allowed else 403, body, "Google" if self.kind == "gcp" else None)
        else:
            self._say(404, b"")

    def _say(self, status: int, body: bytes, flavor: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if flavor:
            self.send_header("Metadata-Flavor", flavor)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def serving(kind: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    asked: list[str] = []
    handler = type("Kind", (Service,), {"kind": kind, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            port = server.server_address[1]
            yield (
                {
                    "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{port}/",
                    "GCE_METADATA_HOST": f"127.0.0.1:{port}",
                },
                asked,
            )
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.inventory("N-073", "N-411")
@pytest.mark.parametrize("kind", ["aws v1", "aws v2"])
def test_an_ec2_machine_is_known_with_and_without_session_tokens(host: Host, kind: str) -> None:
    with serving(kind) as (environ, _):
        host.environ = {"PATH": str(host.bin), **environ}
        found = host.detect()
    assert found.tags == ("host=aws", "aws:instance-type=p5.48xlarge", "region=us-east-1")
    assert found.cloud == "aws"


@pytest.mark.inventory("N-074")
def test_a_google_machine_is_known(host: Host) -> None:
    with serving("gcp") as (environ, _):
        host.environ = {"PATH": str(host.bin), **environ}
        assert host.detect().tags == ("host=gcp", "gcp:machine-type=a2-highgpu-1g")


@pytest.mark.inventory("N-075")
@pytest.mark.parametrize("kind", ["captive", "gcp by somebody else"])
def test_what_is_not_the_services_own_answer_is_no_cloud(host: Host, kind: str) -> None:
    with serving(kind) as (environ, asked):
        host.environ = {"PATH": str(host.bin), **environ}
        assert host.detect().tags == ("host=local",)
    assert len(asked) == 2


def test_nobody_is_asked_where_the_vendors_variables_say_so(host: Host) -> None:
    with serving("aws v1") as (environ, asked):
        host.environ = {"PATH": str(host.bin), **environ, **SHUT}
        assert host.detect().tags == ("host=local",)
    assert asked == []


@pytest.mark.inventory("N-075")
def test_a_host_whose_metadata_addresses_swallow_everything_is_known_within_their_limit(host: Host) -> None:
    """They connect and never answer, as a firewall's; both are asked at once, tokens and all."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        host.environ = {
            "PATH": str(host.bin),
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{port}",
            "GCE_METADATA_HOST": f"127.0.0.1:{port}",
        }

        async def timed() -> tuple[HostFacts, float]:
            before = trio.current_time()
            found = await detect(root=host.root, environ=host.environ)
            return found, trio.current_time() - before

        found, took = trio.run(timed)
    assert found.tags == ("host=local",)
    assert 0.5 < took < 10  # 0.6 s where nothing else runs


def test_a_metadata_service_that_refuses_costs_nothing() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = closed.getsockname()[1]

        async def ask() -> object:
            environ = {
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{port}",
                "GCE_METADATA_HOST": f"127.0.0.1:{port}",
            }
            with trio.fail_after(30):
                return await ask_aws(environ, 60), await ask_gcp(environ, 60)

        assert trio.run(ask) == (None, None)


def test_this_very_machine_is_known_in_time() -> None:
    before = time.monotonic()

    async def ask() -> HostFacts:
        return await detect(environ={**os.environ, **SHUT})

    found = trio.run(ask)
    assert time.monotonic() - before < 30
    assert found.hostname == socket.gethostname()
    assert found.versions.kernel == f"{os.uname().sysname} {os.uname().release}"
    assert found.versions.cpu is None or found.versions.cpu["cores"] >= 1
    assert found.usable_cpus >= 1


# ---- a real kubectl


class ApiServer(BaseHTTPRequestHandler):
    """As much of a cluster's API server as `kubectl version` asks for."""

    def do_GET(self) -> None:
        body = b'{"major":"1","minor":"31","gitVersion":"v1.31.2","platform":"linux/amd64"}'
        found = self.path.partition("?")[0] == "/version"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if found else 0))
        self.end_headers()
        self.wfile.write(body if found else b"")

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")
@pytest.mark.inventory("N-072")
def test_a_real_kubectl_is_a_runner_while_its_server_answers(host: Host) -> None:
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    (host.bin / "kubectl").symlink_to(os.path.realpath(kubectl))
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            config = host.root / "kubeconfig"
            config.write_text(
                "apiVersion: v1\nkind: Config\ncurrent-context: training\n"
                f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{server.server_address[1]}'}}}}]\n"
                "users: [{name: u, user: {}}]\n"
                "contexts: [{name: training, context: {cluster: c, user: u}}]\n"
            )
            host.environ |= {"KUBECONFIG": str(config), "HOME": str(host.root)}
            found = host.detect()
            assert (found.tags, found.runners) == (("host=kube", "kube:context=training"), ("kube",))
        finally:
            server.shutdown()
            thread.join()
    assert (host.detect().tags, host.detect().runners) == (("host=local",), ())
