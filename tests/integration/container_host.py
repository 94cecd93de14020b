"""A dockerd of the tests' own, with runc and gVisor, and an image of this machine's Python: no registry is asked."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IMAGE = "lakeshore-test-python:3.11"
PATIENCE_S = 60.0
_TOOLS = "bash sh env ls cat cp mv rm mkdir sleep id echo true false kill date uname head tail hostname"
PYTHON = "/usr/bin/python3.11"
PACKAGES = ("msgpack", "cloudpickle")
"""Of this interpreter, as a user's image has them; where the image's Python is another version, msgpack is pure."""


def missing() -> str | None:
    """Why no container runs here; None when they can."""
    if os.geteuid() != 0:
        return "dockerd needs root"
    for tool in ("dockerd", "docker", "runc", "iptables"):
        if shutil.which(tool) is None:
            return f"needs {tool} (apt install docker.io iptables)"
    return None if os.path.exists(PYTHON) else f"the image is made of {PYTHON}"


@contextlib.contextmanager
def dockerd(directory: Path) -> Iterator[dict[str, str]]:
    """A running dockerd with the image; what its clients need in their environment."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "config.json"
    runsc = {"path": shutil.which("runsc") or "", "runtimeArgs": ["--platform=ptrace", "--network=host"]}
    config.write_text(json.dumps({"runtimes": {"runsc": runsc} if runsc["path"] else {}}))
    socket = f"unix://{directory}/s"
    env = {"DOCKER_HOST": socket, "PATH": os.environ["PATH"]}
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [
                "dockerd", f"--config-file={config}", f"--data-root={directory}/data", f"--exec-root={directory}/exec",
                f"--host={socket}", f"--pidfile={directory}/pid", "--storage-driver=overlay2", "--bridge=none",
                "--iptables=false",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _until_it_answers(daemon, env, directory / "log")
        _import_image(directory / "root", env)
        yield env
    finally:
        daemon.terminate()
        daemon.wait()
        for line in Path("/proc/self/mounts").read_text().splitlines():
            where = line.split()[1]
            if where.startswith(str(directory)):
                subprocess.run(["umount", "-l", where], check=False, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)


def containers(env: dict[str, str]) -> list[str]:
    """Every container, running or not."""
    done = subprocess.run(["docker", "ps", "-aq"], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def _until_it_answers(daemon: subprocess.Popen[bytes], env: dict[str, str], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while subprocess.run(["docker", "version"], env=env, capture_output=True, check=False).returncode != 0:
        if daemon.poll() is not None:
            last = log.read_text().splitlines()[-1:] or ["it said nothing"]
            pytest.skip(f"dockerd does not run here: {last[0][:300]}")
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.05)


def _import_image(root: Path, env: dict[str, str]) -> None:
    """Debian's Python, a shell and the libraries that they load."""
    for name in ("usr/bin", "usr/lib", "usr/lib64", "tmp", "root", "etc", "proc", "sys", "dev", "home"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    programs = [
        os.path.realpath(found) for name in _TOOLS.split() if (found := shutil.which(name, path="/usr/bin:/bin"))
    ]
    for name in _TOOLS.split():
        if found := shutil.which(name, path="/usr/bin:/bin"):
            shutil.copy2(os.path.realpath(found), root / "usr/bin" / name)
    shutil.copy2(PYTHON, root / "usr/bin/python3.11")
    for name in ("python", "python3"):
        (root / "usr/bin" / name).symlink_to("python3.11")
    packages = root / "usr/lib/python3/dist-packages"
    for name in PACKAGES:
        shutil.copytree(Path(sysconfig.get_path("purelib")) / name, packages / name)
    shutil.copy2(Path(__file__).with_name("entry_bodies.py"), packages)
    ignored = shutil.ignore_patterns(
        "__pycache__", "test", "idlelib", "tkinter", "config-3.11*", "lib2to3", "ensurepip"
    )
    shutil.copytree("/usr/lib/python3.11", root / "usr/lib/python3.11", ignore=ignored, symlinks=False)
    modules = glob.glob("/usr/lib/python3.11/lib-dynload/*.so")
    told = subprocess.run(["ldd", *programs, PYTHON, *modules], capture_output=True, text=True, check=False).stdout
    for library in sorted(set(re.findall(r"(/\S+\.so\S*) \(", told))):
        target = root / os.path.realpath(os.path.dirname(library)).lstrip("/") / os.path.basename(library)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)
    for library in glob.glob("/lib/*/libgcc_s.so.1"):  # a thread that ends asks for it
        shutil.copy2(library, root / os.path.realpath(os.path.dirname(library)).lstrip("/"))
    loader = root / "usr/lib64/ld-linux-x86-64.so.2"
    if os.path.exists("/lib64/ld-linux-x86-64.so.2") and not loader.exists():
        shutil.copy2("/lib64/ld-linux-x86-64.so.2", loader)
    packed = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(
        ["docker", "import", "--change", "ENV PATH=/usr/bin:/bin", "-", IMAGE],
        stdin=packed.stdout, env=env, check=True, capture_output=True,
    )  # fmt: skip
    packed.wait()
    assert packed.stdout is not None
    packed.stdout.close()
    shutil.rmtree(root)
