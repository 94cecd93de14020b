"""A SLURM cluster of one node, this machine: munged, slurmctld and slurmd of the tests' own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port

PATIENCE_S = 60.0
_CONFIG = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={munge}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={at}/ctld.pid
SlurmdPidFile={at}/d.pid
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldLogFile={at}/ctld.log
SlurmdLogFile={at}/d.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there is no cluster here; None when there can be."""
    if os.geteuid() != 0:
        return "slurmd needs root"
    for tool in ("slurmctld", "slurmd", "sbatch", "munged"):
        if shutil.which(tool) is None:
            return f"needs {tool} (apt install slurm-wlm munge)"
    return None


@contextlib.contextmanager
def slurm(directory: Path) -> Iterator[dict[str, str]]:
    """A running cluster; what its clients need in their environment."""
    directory.mkdir(parents=True, exist_ok=True)
    for parent in (directory, *directory.parents):
        if parent.stat().st_mode & 0o1 == 0:
            parent.chmod(parent.stat().st_mode | 0o11)  # munge's user passes through
    munge = directory / "munge"
    munge.mkdir()
    shutil.chown(munge, "munge", "munge")
    key = munge / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    shutil.chown(key, "munge", "munge")
    munge.chmod(0o711)
    (directory / "state").mkdir()
    (directory / "spool").mkdir()
    config = directory / "slurm.conf"
    config.write_text(
        _CONFIG.format(host=socket.gethostname().split(".")[0], munge=munge / "socket", at=directory, ports=_ports(2))
    )
    env = {"SLURM_CONF": str(config), "PATH": os.environ["PATH"]}
    files = {name: f"--{name}-file={munge}/{name}" for name in ("key", "log", "pid", "seed")}
    argv = ["runuser", "-u", "munge", "--", "munged", "--foreground", "--force", f"--socket={munge}/socket"]
    started = [_started([*argv, *files.values()], env)]
    try:
        _until(lambda: (munge / "socket").exists(), "munged makes no socket")
        started += [_started([daemon, "-D", "-f", str(config)], env) for daemon in ("slurmctld", "slurmd")]
        _until(lambda: "idle" in _told(env, "sinfo", "-h", "-o", "%t") or _ended(started), "the node is never idle")
        if _ended(started):
            pytest.skip("munged, slurmctld or slurmd does not run here")
        yield env
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def queued(env: dict[str, str]) -> str:
    """Every job that is in the queue."""
    return _told(env, "squeue", "-h", "-o", "%i %j %T")


def _started(argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    return subprocess.Popen(argv, env=env, stdin=nothing, stdout=nothing, stderr=nothing)


def _ended(started: list[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is not None for process in started)


def _told(env: dict[str, str], *argv: str) -> str:
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False).stdout


def _until(true: object, otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def _ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
