"""What this host is and can run: asked once at boot, and again after a setup script that may have changed it.

Rules: everything is asked at the same time, programs by `detecting/questions`, and all together have one limit. What
has no answer by then is None, and never an error. A host with none of the tools and no metadata service waits for that
service alone (0.6 s).
A runner is detected where what it needs has answered: docker its daemon, gvisor the runtime registered with it, slurm
and kube as documented. Files are read by a thread, which is left behind if a dead network mount holds it.
Reference: nymph/daemons, "Host detection"; nymph/protocol, "Hello"; N-065, N-071…N-089.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from .._version import __version__
from ..wire.messages import PROTOCOL_VERSION, Versions
from .detecting.commands import first_line, program_of, python_of
from .detecting.hardware import cpu_of, cpu_of_darwin, gpus_of, memory_limit_of, memory_of, memory_of_darwin
from .detecting.metadata import ask_aws, ask_gcp
from .detecting.questions import LIMIT_S, Questions
from .detecting.system import (
    CLOUDS,
    cluster_name_of,
    container_of,
    darwin_name_of,
    machine_of,
    pretty_name_of,
)
from .detecting.tags import host_tags

METADATA_LIMIT_S: Final = 0.6

FILES: Final = (
    "etc/os-release",
    "usr/lib/os-release",
    "etc/machine-id",
    "etc/slurm/slurm.conf",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/sys/kernel/random/boot_id",
    "proc/1/cgroup",
    "proc/1/environ",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "sys/class/dmi/id/bios_version",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory/memory.limit_in_bytes",
    ".dockerenv",
    "run/.containerenv",
)
_MOST_BYTES: Final = 4 * 1024 * 1024  # /proc/cpuinfo of a large machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was asked and what it said, before anything is read from it: `texts` of files and of commands by name."""

    files: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str | None] = field(default_factory=dict)
    aws: tuple[str, ...] | None = None
    gcp: tuple[str, ...] | None = None
    has_sinfo: bool = False
    hostname: str = ""
    system: str = "Linux"
    release: str = ""
    arch: str = ""
    usable_cpus: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a host is. Sizes in bytes; None is what could not be found out. `tags` and `runners` are detected ones.

    `machine_uuid` and `boot_id` are the system's own; on the wire a machine is called by its host name.
    """

    hostname: str
    versions: Versions
    tags: tuple[str, ...]
    runners: tuple[str, ...]
    machine_uuid: str | None = None
    boot_id: str | None = None
    usable_cpus: int = 1
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    container: str | None = None
    virtual: str | None = None
    cloud: str | None = None
    tools: Mapping[str, str] = field(default_factory=dict)


def facts_of(found: Found) -> HostFacts:
    """Read what was found. Pure."""
    files, texts = found.files, found.texts
    slurm_conf = files.get("etc/slurm/slurm.conf")
    slurm = found.has_sinfo and slurm_conf is not None
    kube = texts.get("kubectl") is not None
    machine = machine_of(
        files.get("sys/class/dmi/id/sys_vendor"),
        files.get("sys/class/dmi/id/product_name"),
        files.get("sys/class/dmi/id/bios_version"),
    )
    aws = found.aws if found.aws is not None or machine != "aws" else ()
    gcp = found.gcp if found.gcp is not None or machine != "gcp" else ()
    docker = first_line(texts.get("docker"))
    gvisor = docker is not None and '"runsc"' in (texts.get("docker runtimes") or "")
    versions = Versions(
        daemon=__version__,
        protocol=PROTOCOL_VERSION,
        runsc=first_line(texts.get("runsc")),
        docker=docker,
        python=python_of(texts.get("python3")) or python_of(texts.get("python")),
        kernel=f"{found.system} {found.release}".strip() or None,
        arch=found.arch or None,
        distro=_distro(found),
        cpu=cpu_of(files.get("proc/cpuinfo", "")) or cpu_of_darwin(texts.get("sysctl") or ""),
        gpu=gpus_of(texts.get("gpus"), texts.get("cuda")),
    )
    available = {"docker": docker is not None, "gvisor": gvisor, "slurm": slurm, "kube": kube}
    tools = {name: first_line(texts.get(name)) for name in ("runsc", "docker", "sbatch")}
    tools["python"] = versions.python
    return HostFacts(
        hostname=found.hostname,
        versions=versions,
        tags=host_tags(
            slurm=slurm,
            cluster=cluster_name_of(slurm_conf or ""),
            kube=kube,
            context=first_line(texts.get("kube context")),
            aws=aws,
            gcp=gcp,
        ),
        runners=tuple(name for name, there in available.items() if there),
        machine_uuid=first_line(files.get("etc/machine-id")),
        boot_id=first_line(files.get("proc/sys/kernel/random/boot_id")),
        usable_cpus=found.usable_cpus,
        memory_bytes=memory_of(files.get("proc/meminfo", "")) or memory_of_darwin(texts.get("sysctl") or ""),
        memory_limit_bytes=memory_limit_of(
            files.get("sys/fs/cgroup/memory.max"), files.get("sys/fs/cgroup/memory/memory.limit_in_bytes")
        ),
        container=container_of(
            dockerenv=".dockerenv" in files,
            containerenv="run/.containerenv" in files,
            environ=files.get("proc/1/environ"),
            cgroup=files.get("proc/1/cgroup"),
        ),
        virtual=machine,
        cloud="aws" if aws is not None else "gcp" if gcp is not None else machine if machine in CLOUDS else None,
        tools={name: said for name, said in tools.items() if said is not None},
    )


def _distro(found: Found) -> str | None:
    files = found.files
    for name in ("etc/os-release", "usr/lib/os-release"):
        if name in files:
            return pretty_name_of(files[name])
    return darwin_name_of(found.texts.get("sw_vers") or "")


async def ask(
    *,
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
    limit_s: float = LIMIT_S,
    metadata_limit_s: float = METADATA_LIMIT_S,
    asked: Questions | None = None,
) -> Found:
    """Ask everything at once; what has not answered after `limit_s` seconds is left out. `asked` are questions that are
    under way already. Never raises.
    """
    told: dict[str, Any] = {}
    system, _, release, _, arch = os.uname()
    questions = asked or Questions(environ, limit_s=limit_s, darwin=system == "Darwin")
    thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)

    async def note(name: str, question: Callable[[], Awaitable[Any]]) -> None:
        told[name] = await question()

    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + limit_s
        nursery.start_soon(note, "sinfo", partial(thread, program_of, "sinfo", environ))
        nursery.start_soon(note, "aws", partial(ask_aws, environ, metadata_limit_s))
        nursery.start_soon(note, "gcp", partial(ask_gcp, environ, metadata_limit_s))
        nursery.start_soon(note, "files", partial(thread, read_files, root))
        nursery.start_soon(thread, questions.texts)
    texts = questions.texts()  # at once now: their time is over as well
    return Found(
        files=told.get("files") or {},
        texts=texts,
        aws=told.get("aws"),
        gcp=told.get("gcp"),
        has_sinfo=told.get("sinfo") is not None,
        hostname=socket.gethostname(),
        system=system,
        release=release,
        arch=arch,
        usable_cpus=_usable_cpus(),
    )


async def detect(
    *,
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
    limit_s: float = LIMIT_S,
    metadata_limit_s: float = METADATA_LIMIT_S,
    asked: Questions | None = None,
) -> HostFacts:
    """What this host is, within `limit_s` seconds; see `ask`."""
    found = await ask(root=root, environ=environ, limit_s=limit_s, metadata_limit_s=metadata_limit_s, asked=asked)
    return facts_of(found)


def read_files(root: Path) -> dict[str, str]:
    """The files of `FILES` below `root` that can be read, by their names."""
    found = {}
    for name in FILES:
        try:
            with (root / name).open("rb") as file:
                found[name] = file.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:  # not there, or not for us: as good as not there
            continue
    return found


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
