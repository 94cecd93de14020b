"""A bare Debian to `chroot` into, made in seconds of what is installed here: the files of python3, an essential shell
and tools, and all that they depend on, as their packages list them. Nothing else is in it, no pip and no compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from one_file import ROOT

WANTED = ("python3", "bash", "dash", "coreutils", "grep", "sed", "mawk", "findutils", "diffutils", "base-files")
DPKG = Path("/var/lib/dpkg")
GUEST = 1234
_LEFT_OUT = re.compile(r"/usr/share/(doc|man|info|locale|lintian|bug)/|/usr/share/perl")


def make(root: Path) -> None:
    """Fill a new directory. Skips the test where this machine is no Debian with the packages, or we are not root."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not (DPKG / "status").exists():
        pytest.skip("needs root, unshare and a Debian to make a bare root of")
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    if subprocess.run(["/usr/bin/python3", "-c", probe], check=False, capture_output=True).returncode:
        pytest.skip("no /usr/bin/python3 that is new enough")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces here")
    paths: set[str] = set()
    for package in _closure():
        for listed in (*DPKG.glob(f"info/{package}.list"), *DPKG.glob(f"info/{package}:*.list")):
            paths |= {line for line in listed.read_text().splitlines() if not _LEFT_OUT.search(f"{line}/")}
    for path in [path for path in paths if path.endswith(".py")]:  # a package compiles its modules when it is installed
        paths |= {str(found) for found in Path(path).parent.glob(f"__pycache__/{Path(path).stem}.*.pyc")}
    there = sorted(path for path in paths if path not in ("/.", "") and os.path.lexists(path))
    root.mkdir(mode=0o755)
    for name in ("bin", "sbin", "lib", "lib64"):  # on a merged /usr these are links, which must lead somewhere
        (root / "usr" / name).mkdir(mode=0o755, parents=True)
    names = "\0".join(path.lstrip("/") for path in there)
    copied = subprocess.run(
        f"tar -C / --no-recursion --null -T - -cf - | tar -C '{root}' -xpf -",
        shell=True,
        check=False,
        input=names.encode(),
        capture_output=True,
    )
    assert copied.returncode == 0, copied.stderr
    for link, target in (("usr/bin/awk", "mawk"), ("usr/bin/sh", "dash")):
        if not os.path.lexists(root / link):
            (root / link).symlink_to(target)
    for folder in ("proc", "dev", "tmp", "srv/lakeshore", "srv/release", "home/guest", "etc"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    os.chown(root / "home" / "guest", GUEST, GUEST)
    (root / "etc" / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\nguest:x:{GUEST}:{GUEST}::/home/guest:/bin/bash\n")
    (root / "etc" / "group").write_text(f"root:x:0:\nguest:x:{GUEST}:\n")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")


def enter(root: Path, pyz: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in it as a user without rights; the project is in /srv/lakeshore, the one file in /srv/release."""
    script = (
        'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && '
        'mount --bind "$2" "$1/srv/lakeshore" && mount --bind "$3" "$1/srv/release" && '
        'exec chroot --userspec="$4:$4" "$1" /usr/bin/env -i HOME=/home/guest PATH=/usr/bin:/bin '
        'sh -c \'cd && exec "$@"\' sh "${@:5}"'
    )
    own = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    return subprocess.run(
        [*own, "bash", "-c", script, "bash", str(root), str(ROOT), str(pyz.parent), str(GUEST), *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )


def _closure() -> set[str]:
    """The installed packages that `WANTED` need, all the way down."""
    needs: dict[str, list[list[str]]] = {}
    provided: dict[str, str] = {}
    for record in (DPKG / "status").read_text("utf-8", "replace").split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", record, re.M))
        if "ok installed" not in fields.get("Status", ""):
            continue
        lines = ", ".join(fields[name] for name in ("Pre-Depends", "Depends") if name in fields)
        needs[fields["Package"]] = [
            [re.split(r"[ (:]", one.strip())[0] for one in choice.split("|")] for choice in lines.split(",") if choice
        ]
        provided |= {
            re.split(r"[ (]", one.strip())[0]: fields["Package"] for one in fields.get("Provides", "").split(",")
        }
    found: set[str] = set()
    waiting = list(WANTED)
    while waiting:
        name = waiting.pop()
        name = name if name in needs else provided.get(name, name)
        if name not in needs:
            pytest.skip(f"the package {name} is not installed here")
        if name not in found:
            found.add(name)
            for choice in needs[name]:
                waiting += [one for one in choice if one in needs or one in provided][:1]
    return found
