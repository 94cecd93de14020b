"""What people use instead: ssh, ssh over one kept connection, and HyperQueue. Each is measured where it is there."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harness.processes import Children, NotStarted
from harness.stats import latencies_ms, must_be, percentile

SSHD = "/usr/sbin/sshd"
START_S = 20.0
Figures = dict[str, float]


@contextlib.contextmanager
def sshd(children: Children) -> Iterator[list[str] | None]:
    """The command that reaches this machine over a real sshd, up to the remote command; None without one."""
    if not os.path.exists(SSHD) or shutil.which("ssh") is None or os.geteuid() != 0:
        yield None
        return
    at = children.directory / "ssh"
    at.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(at / name)], check=True)
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        port = line.getsockname()[1]
    (at / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nPidFile {at}/pid\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {at}/user.pub\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    os.makedirs("/run/sshd", exist_ok=True)
    server = children.start([SSHD, "-D", "-f", str(at / "config")], "sshd")
    user = pwd.getpwuid(os.geteuid()).pw_name
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", f"UserKnownHostsFile={at}/known", "LogLevel=ERROR"]
    command = ["ssh", "-F", "none", "-i", str(at / "user"), "-p", str(port)]
    command += [word for option in options for word in ("-o", option)] + [f"{user}@127.0.0.1"]
    children.until(lambda: _reached(command), server, "sshd", within_s=START_S)
    yield command


def _reached(command: list[str]) -> bool:
    return subprocess.run([*command, ":"], check=False, capture_output=True).returncode == 0


def ssh_round_trip(command: list[str], count: int) -> Figures:
    """`ssh_p50_ms`: `ssh host :` with a connection for each."""
    return {"ssh_p50_ms": percentile(_each(command, count), 0.5)}


def kept_ssh_round_trip(command: list[str], count: int, directory: Path) -> Figures:
    """`ssh_master_p50_ms`: the same over a ControlMaster that is open."""
    kept = [command[0], "-o", f"ControlPath={directory}/cm", "-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
    kept += command[1:]
    subprocess.run([*kept, ":"], check=True)
    try:
        return {"ssh_master_p50_ms": percentile(_each(kept, count), 0.5)}
    finally:
        subprocess.run([*kept[:-1], "-O", "exit", kept[-1]], check=False, capture_output=True)


def _each(command: list[str], count: int) -> list[float]:
    def one(_i: int) -> None:
        must_be(subprocess.run([*command, ":"], check=False).returncode, 0)

    return latencies_ms(one, count)


FUNCTIONS = """
import sys, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

def nothing():
    pass

with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    def run(count, body):
        job = Job()
        for _ in range(count):
            job.function(nothing) if body == "function" else job.program(["true"])
        begun = time.perf_counter()
        client.wait_for_jobs([client.submit(job)])
        return count / (time.perf_counter() - begun)
    run(2, "function"), run(2, "program")
    print(run(int(sys.argv[1]), "function"), run(int(sys.argv[2]), "program"))
"""


def hyperqueue(children: Children, python: Path, functions: int, programs: int) -> Figures:
    """`hq_functions_s`, `hq_programs_s`: of its LocalCluster with two cores. Nothing where it is not installed."""
    done = subprocess.run(
        [str(python), "-c", FUNCTIONS, str(functions), str(programs)],
        cwd=children.directory, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},  # its tasks run the `python3` of the PATH
    )  # fmt: skip
    if done.returncode != 0:
        raise NotStarted(f"HyperQueue: {done.stderr[-1000:]}")
    of_functions, of_programs = map(float, done.stdout.split()[-2:])
    return {"hq_functions_s": of_functions, "hq_programs_s": of_programs}


def has_hyperqueue(python: Path) -> bool:
    """Whether that interpreter can import it."""
    return (
        python.exists()
        and subprocess.run([str(python), "-c", "import hyperqueue"], check=False, capture_output=True).returncode == 0
    )
