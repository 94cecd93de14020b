"""Happy path 13: `daemon launch` through an emulated EC2, with the one file at both ends; what the machine was given to
run is run here, below a directory of its own, and fetches the very file that serves.

Reference: admin/happy-paths/13-cloud-provider-launch.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import until
from machines import KEYS, Booted, Ec2, emulated_ec2
from one_file import trusted_parent

WORDS = ("--kwarg", "region=us-east-1", "--kwarg", f"aws_credentials.accessKeyId={KEYS['accessKeyId']}")


@contextlib.contextmanager
def serving(pyz: Path, directory: Path, environ: dict[str, str]) -> Iterator[str]:
    """The one file as a server, started by a person."""
    ready, log = directory / "ready", directory / "log"
    command = [sys.executable, str(pyz), "serve", "--port", "0", "--state-dir", str(directory / "state")]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--ready-file", str(ready)], env=environ, stdout=out, stderr=out)
    try:
        until(lambda: ready.exists() or process.poll() is not None, log.read_text)
        assert process.poll() is None, log.read_text()
        yield ready.read_text().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.inventory("C-865", "S-153", "S-162")
@pytest.mark.inventory("N-369", "S-164", "S-161")
def test_a_cloud_machine_is_launched_joins_works_and_is_killed(pyz: Path, warm_cache: Path, tmp_path: Path) -> None:
    parent = trusted_parent()
    assert parent is not None, "warm_cache needs it, too"
    with emulated_ec2() as url, tempfile.TemporaryDirectory(dir=parent) as disk:
        ec2 = Ec2(url)
        left_out = ("PYTHONPATH", "LAKESHORE_URL", "LAKESHORE_ADMIN_TOKEN")
        clean = {name: value for name, value in os.environ.items() if name not in left_out}
        site = Path(sys.modules["botocore"].__file__ or "").parents[1]  # an extra that the operator installed
        environ = {**clean, "XDG_CACHE_HOME": str(warm_cache), "HOME": str(tmp_path), "AWS_ENDPOINT_URL_EC2": url}
        with serving(pyz, tmp_path, {**environ, "PYTHONPATH": str(site)}) as server:

            def run(*words: str) -> str:
                done = subprocess.run(
                    [sys.executable, str(pyz), *words],
                    env={**environ, "LAKESHORE_URL": server},
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                    cwd=tmp_path,
                )
                assert done.returncode == 0, done.stdout + done.stderr
                return done.stdout

            secret = ("--kwarg", f"aws_credentials.secretAccessKey={KEYS['secretAccessKey']}")
            run("providers", "add", "aws-us-east", "--launcher", "EC2", *WORDS, *secret, "--kwarg", f"ami={ec2.image}")
            run("daemon", "launch", "--provider", "aws-us-east", "--name", "smoke", "--tag", "gpu:none")
            (instance,) = [row for row in ec2.all() if ec2.tags(row).get("Name") == "smoke"]
            assert "smoke" in run("daemon", "list")
            machine = Booted(Path(disk) / "machine", ec2.userdata(instance["InstanceId"]), "sh")
            try:
                until(lambda: "active" in run("daemon", "list"), machine.log)
                assert "42\n" in run("daemon", "exec", "smoke", "echo", "42")
                installed = (machine.root / "opt/dreamlake/bin/nymph").read_bytes()
                assert hashlib.sha256(installed).digest() == hashlib.sha256(pyz.read_bytes()).digest()
            finally:
                machine.off()
            run("daemon", "kill", "smoke")
            assert ec2.states()[instance["InstanceId"]] in ("shutting-down", "terminated")
            assert "smoke" not in run("daemon", "list")
