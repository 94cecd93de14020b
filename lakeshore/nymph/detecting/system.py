"""The operating system and what it runs in, from its files. Pure; what cannot be read is None.

Reference: nymph/protocol, "Hello", `versions.distro`; nymph/daemons, "Host detection"; N-071, N-087.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

_CONTAINERS: Final = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("containerd", "containerd"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
)
_VIRTUAL: Final = (
    ("amazon ec2", "aws"),
    ("google", "gcp"),
    ("microsoft corporation virtual machine", "azure"),
    ("digitalocean", "digitalocean"),
    ("hetzner", "hetzner"),
    ("openstack", "openstack"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("qemu", "qemu"),
    ("kvm", "kvm"),
    ("xen", "xen"),
)
CLOUDS: Final = frozenset({"aws", "gcp", "azure", "digitalocean", "hetzner", "openstack"})


def pretty_name_of(os_release: str) -> str | None:
    """PRETTY_NAME of /etc/os-release, unquoted as a shell would."""
    for line in os_release.splitlines():
        if line.startswith("PRETTY_NAME="):
            try:
                words = shlex.split(line.partition("=")[2])
            except ValueError:
                return None
            return " ".join(words) or None
    return None


def darwin_name_of(sw_vers: str) -> str | None:
    """`macOS 14.5` from the output of `sw_vers`."""
    said = dict(re.findall(r"^(\w+):\s*(.+?)\s*$", sw_vers, re.MULTILINE))
    name = " ".join(said[key] for key in ("ProductName", "ProductVersion") if key in said)
    return name or None


def cluster_name_of(slurm_conf: str) -> str | None:
    """ClusterName of slurm.conf; names are case-insensitive there, `#` begins a comment."""
    for line in slurm_conf.splitlines():
        name, equals, value = line.partition("#")[0].partition("=")
        if equals and name.strip().lower() == "clustername":
            words = value.split()
            return words[0].strip("\"'") or None if words else None
    return None


def container_of(*, dockerenv: bool, containerenv: bool, environ: str | None, cgroup: str | None) -> str | None:
    """What kind of container this runs in: by the files that engines leave, the init's `container=`, its groups."""
    if environ is not None:
        for entry in environ.split("\0"):
            if entry.startswith("container=") and entry != "container=":
                return entry.partition("=")[2]
    for mark, kind in _CONTAINERS:
        if cgroup is not None and mark in cgroup:
            return kind
    return "docker" if dockerenv else "podman" if containerenv else None


def machine_of(vendor: str | None, product: str | None, bios: str | None = None) -> str | None:
    """Which kind of virtual machine or cloud the firmware names; None for hardware, or where it says nothing."""
    said = " ".join(text.strip() for text in (vendor, product) if text).lower()
    if bios is not None and "amazon" in bios.lower():
        return "aws"
    return next((kind for mark, kind in _VIRTUAL if mark in said), None)
