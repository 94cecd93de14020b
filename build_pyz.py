#!/usr/bin/env python3
"""Builds dist/lakeshore: the whole program in one executable file.

    python3 build_pyz.py                    for this machine's platform
    python3 build_pyz.py --platforms all    a release: Linux x86_64 and aarch64, macOS arm64
    python3 build_pyz.py --release          also dist/release, as scripts/install.sh wants it

The archive's root holds `lakeshore/`, `dreamlake/` and `__main__.py`, nothing else, so that on PYTHONPATH it shadows
nothing. Pure third-party code is in `lakeshore/_vendor`; compiled modules travel as their published wheels, whole, in
`lakeshore/_vendor/_native/<platform>/<cp311…|abi3>/`; `lakeshore/_bootstrap.py` unpacks those that a machine can use.

Rule: the same commit gives the same bytes. Wheels are named by hash in requirements/pyz.txt; entries are sorted, dated
SOURCE_DATE_EPOCH (else 1980-01-01) and stored, not compressed: two zlibs need not agree. Of bzip2 there is one.
Downloads are kept in build/wheels, so a second build needs no network.
"""

from __future__ import annotations

import argparse
import bz2
import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "requirements" / "pyz.txt"
WHEELS = HERE / "build" / "wheels"
LIMIT = 25 * 2**20
SHEBANG = b"#!/usr/bin/env python3\n"
NATIVE = ("msgpack", "cffi", "pynacl")
PYTHONS = {  # every CPython with published wheels -> what is published for it; `t` is without a GIL
    "311": NATIVE,
    "312": NATIVE,
    "313": NATIVE,
    "314": NATIVE,
    "314t": NATIVE,
    "315": NATIVE,
    "315t": ("msgpack",),  # pynacl is not, and nothing else wants cffi
}
PLATFORMS = {  # name as os.uname() gives it -> pip's platform tags, the oldest system first
    "linux_x86_64": [f"manylinux_2_{glibc}_x86_64" for glibc in (17, 24, 26, 28)] + ["manylinux2014_x86_64"],
    "linux_aarch64": [f"manylinux_2_{glibc}_aarch64" for glibc in (17, 24, 26, 28)] + ["manylinux2014_aarch64"],
    "darwin_arm64": [f"macosx_{system}_0_arm64" for system in (11, 12, 13, 14)]
    + ["macosx_11_0_universal2", "macosx_10_10_universal2"],
}
PACKED = ("textual", "linkify_it", "mdit_py_plugins", "markdown_it", "mdurl", "pygments")  # for screens
PACKAGE = "lakeshore/_vendor/_packed.zip.bz2"
NOT_IMPORTED = ("pycparser",)  # cffi wants it to build modules; ours are built
DROPPED = re.compile(  # of the pure wheels
    r"(^|/)(_tests|tests|__pycache__|__pyinstaller)/|\.(pyi|so|c|h|pyx|pxd)$|(^|/)py\.typed$|^_yaml/|^anyio/pytest_plugin\.py$"
    r"|^textual/(demo|tree-sitter)/"
    r"|\.dist-info/(RECORD|WHEEL|entry_points\.txt|top_level\.txt|REQUESTED|INSTALLER|sboms/.*)$"
)
LEXERS = {
    "__init__",
    "_mapping",
    "configs",
    "data",
    "diff",
    "python",
    "shell",
    "special",
    "sql",
    "_sql_builtins",
    "jsonnet",
    "textedit",
}
STYLES = {"__init__", "_mapping", "default", "monokai", "native", "bw"}


class Problem(Exception):
    """The build cannot go on; the message says what to do."""


def main() -> int:
    options = argparse.ArgumentParser(description="Build dist/lakeshore.")
    options.add_argument(
        "--platforms",
        choices=("current", "all"),
        default="current",
        help="which compiled modules to carry (default: %(default)s)",
    )
    options.add_argument("--output", type=Path, default=HERE / "dist" / "lakeshore", help="default: dist/lakeshore")
    options.add_argument(
        "--release",
        type=Path,
        metavar="DIR",
        nargs="?",
        const=HERE / "dist" / "release",
        help="also lay out <version>/ and latest/ with their .sha256, and install.sh (default: dist/release)",
    )
    chosen = options.parse_args()
    try:
        size, content = build(chosen.output, platforms(chosen.platforms))
        if chosen.release is not None:
            release(chosen.output, chosen.release)
    except Problem as problem:
        sys.stderr.write(f"build_pyz: {problem}\n")
        return 1
    sys.stdout.write(f"{chosen.output}: {size / 2**20:.1f} MiB, content {content}\n")
    if chosen.release is not None:
        sys.stdout.write(f"install it: LAKESHORE_BASE_URL={chosen.release} sh scripts/install.sh\n")
    return 0


def platforms(choice: str) -> list[str]:
    """The names of PLATFORMS to carry. On a platform without published wheels the archive carries pure code alone."""
    if choice == "all":
        return list(PLATFORMS)
    here = f"{os.uname().sysname.lower()}_{os.uname().machine}"
    return [here] if here in PLATFORMS else []


def build(output: Path, names: list[str]) -> tuple[int, str]:
    """Write the archive to `output`. Returns (bytes, content hash). Raises Problem."""
    if sys.version_info < (3, 11):  # noqa: UP036  (run by whatever python3 is)
        raise Problem(
            f"needs Python 3.11 or newer, this is {sys.version.split()[0]}: run it with python3.11 or a later one"
        )
    locked = read_lock()
    entries: dict[str, bytes] = {}
    entries.update(own_code())
    entries.update(pure_code(locked))
    for name in names:
        entries.update(native_code(locked, name))
    start = entries["lakeshore/_start.py"]
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(f"{name}\0{len(entries[name])}\0".encode() + entries[name])
    content = digest.hexdigest()[:32]
    empty = b'CONTENT = ""'
    if start.count(empty) != 1:
        raise Problem('lakeshore/_start.py must hold the line CONTENT = "" once')
    entries["lakeshore/_start.py"] = start.replace(empty, f'CONTENT = "{content}"'.encode())
    entries["__main__.py"] = entries["lakeshore/__main__.py"]
    pack(entries)
    return write_archive(output, entries), content


# --- what goes in


def own_code() -> dict[str, bytes]:
    """Our two packages as they lie in the checkout, without what tools leave behind."""
    found = {}
    for package in ("lakeshore", "dreamlake"):
        for path in sorted((HERE / package).rglob("*")):
            name = path.relative_to(HERE).as_posix()
            hidden = any(part.startswith(".") or part == "__pycache__" or part == "_vendor" for part in name.split("/"))
            if (
                path.is_file()
                and not hidden
                and path.suffix not in (".pyc", ".orig", ".rej")
                and not name.endswith("~")
            ):
                found[name] = path.read_bytes()
    return found


def pure_code(locked: dict[str, str]) -> dict[str, bytes]:
    """The third-party modules that need no compiler, from the same wheels whatever machine builds."""
    found = {}
    names = [name for name in locked if name not in (*NOT_IMPORTED, "cffi", "pynacl")]
    for wheel in download(locked, names, "linux_x86_64", "311"):
        with zipfile.ZipFile(wheel) as opened:
            for name in opened.namelist():
                if name.endswith("/") or DROPPED.search(name) or not wanted_of_pygments(name):
                    continue
                body = opened.read(name)
                if name.endswith(".dist-info/METADATA"):
                    body = body.split(b"\n\n", 1)[0] + b"\n"  # name, version and licence; not the read-me
                elif name in ("pygments/lexers/_mapping.py", "pygments/styles/_mapping.py"):
                    body = known_to_pygments(name, body)
                if ".data/" in name:
                    raise Problem(f"{wheel.name} wants {name} outside of its package: teach build_pyz.py where it goes")
                found[f"lakeshore/_vendor/{name}"] = body
    return found


def wanted_of_pygments(name: str) -> bool:
    """Of 350 lexers and styles those that a terminal program shows."""
    found = re.fullmatch(r"pygments/(lexers|styles)/(\w+)\.py", name)
    return not found or found[2] in (LEXERS if found[1] == "lexers" else STYLES)


def known_to_pygments(name: str, body: bytes) -> bytes:
    """The table of lexers or styles without those left out: asking for one is "no such lexer", not an import error."""
    kept, part = (LEXERS, "lexers") if "/lexers/" in name else (STYLES, "styles")
    lines = body.decode().splitlines(keepends=True)
    entry = re.compile(rf"^\s+'\w+': \('pygments\.{part}\.(\w+)'")
    return "".join(line for line in lines if not (found := entry.match(line)) or found[1] in kept).encode()


def native_code(locked: dict[str, str], platform: str) -> dict[str, bytes]:
    """The published wheels of the compiled modules, whole, for each Python; those of the stable ABI once."""
    found = {}
    for python, published in PYTHONS.items():
        for wheel in download(locked, list(published), platform, python):
            abi = "abi3" if "-abi3-" in wheel.name else f"cp{python}"
            found[f"lakeshore/_vendor/_native/{platform}/{abi}/{wheel.name}"] = wheel.read_bytes()
    return found


def pack(entries: dict[str, bytes]) -> None:
    """Put the packages of PACKED into one entry."""
    vendor = "lakeshore/_vendor/"
    names = [name for name in entries if name.startswith(vendor) and name.split("/")[2] in PACKED]
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_STORED) as archive:
        add(archive, {name.removeprefix(vendor): entries.pop(name) for name in names})
    entries[PACKAGE] = bz2.compress(body.getvalue())


# --- wheels


def read_lock() -> dict[str, str]:
    """Project name -> its block of the lock: `name==version` and all its hashes."""
    blocks = re.split(r"\n(?=\S)", LOCK.read_text().strip())
    locked = {re.split(r"==", block, maxsplit=1)[0]: block for block in blocks if not block.startswith("#")}
    bare = [name for name, block in locked.items() if "--hash=sha256:" not in block]
    if bare:
        raise Problem(f"{LOCK} has no hash for {', '.join(bare)}: lock it again (see CONTRIBUTING.md)")
    return locked


def download(locked: dict[str, str], names: list[str], platform: str, python: str) -> list[Path]:
    """The wheels of `names` for one platform and Python, by name. Asks the network only for what is not kept."""
    lines = "\n".join(locked[name] for name in sorted(names)) + "\n"
    folder = WHEELS / f"{platform}-cp{python}-{hashlib.sha256(lines.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            wanted = Path(scratch) / "wanted.txt"
            wanted.write_text(lines)
            fresh = Path(scratch) / "wheels"
            command = [
                *pip(),
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
            ]
            command += [
                "--implementation",
                "cp",
                "--python-version",
                python.rstrip("t"),
                "--abi",
                f"cp{python}",
                "--abi",
                "none",
            ]
            command += ["--abi", "abi3"] if not python.endswith("t") else []
            command += [word for tag in PLATFORMS[platform] for word in ("--platform", tag)]
            done = subprocess.run(  # noqa: S603  (our own arguments)
                [*command, "--dest", str(fresh), "--requirement", str(wanted)],
                check=False,
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                raise Problem(f"pip could not get the wheels for {platform}, CPython {python}:\n{done.stderr.strip()}")
            keep(fresh, folder)
    wheels = sorted(folder.glob("*.whl"))
    for wheel in wheels:
        if hashlib.sha256(wheel.read_bytes()).hexdigest() not in lines:
            raise Problem(f"{wheel} is not what requirements/pyz.txt locks: remove {folder} and build again")
    if len(wheels) != len(names):
        raise Problem(f"{folder} has {len(wheels)} wheels for {len(names)} projects: remove it and build again")
    return wheels


def keep(fresh: Path, folder: Path) -> None:
    """Move a finished download to its name; of two builds at once the first one's stays."""
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def pip() -> list[str]:
    """How to run pip: with this interpreter, else from a virtual environment of the build's own. Raises Problem."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    home = HERE / "build" / "venv"
    if not (home / "bin" / "pip").exists():
        advice = "install them (Debian, Ubuntu: apt install python3-venv) and build again"
        if not importlib.util.find_spec("venv") or not importlib.util.find_spec("ensurepip"):
            raise Problem(f"{sys.executable} has neither pip nor the venv and ensurepip modules: {advice}")
        done = subprocess.run(  # noqa: S603  (our own arguments)
            [sys.executable, "-m", "venv", str(home)], check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            shutil.rmtree(home, ignore_errors=True)
            raise Problem(
                f"{sys.executable} cannot make a virtual environment with pip: {advice}\n{done.stdout}{done.stderr}"
            )
    return [str(home / "bin" / "python"), "-m", "pip"]


# --- the file


def write_archive(output: Path, entries: dict[str, bytes]) -> int:
    """Write atomically; returns the size. Raises Problem above the limit."""
    # A package without `__init__.py` is found by its folder's entry. Every start reads all entries: others have none.
    ours = [name for name in entries if not name.startswith("lakeshore/_vendor/")]
    folders = {f"{'/'.join(name.split('/')[:depth])}/" for name in ours for depth in range(1, name.count("/") + 1)}
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(SHEBANG + f"# lakeshore {version()}\n".encode())  # told without a Python: by scripts/install.sh
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                add(archive, {**entries, **dict.fromkeys(folders, b"")})
        size = beside.stat().st_size
        if size > LIMIT:
            raise Problem(
                f"{size / 2**20:.1f} MiB is above {LIMIT / 2**20:.0f} MiB: see what grew in lakeshore/_vendor"
            )
        beside.chmod(0o755)
        beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)
    return size


def add(archive: zipfile.ZipFile, entries: dict[str, bytes]) -> None:
    """Sorted and dated by the rule; folders end in a slash."""
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), 315532800))[:6]
    for name in sorted(entries):
        info = zipfile.ZipInfo(name, when)
        info.create_system = 3  # Unix, whatever built it
        info.external_attr = (0o40755 << 16 | 0x10) if name.endswith("/") else 0o100644 << 16
        archive.writestr(info, entries[name])


def version() -> str:
    """Ours. Raises Problem."""
    text = (HERE / "lakeshore" / "_version.py").read_text()
    found = re.search(r'^__version__ = "([0-9][\w.+-]*)"$', text, re.MULTILINE)
    if not found:
        raise Problem("lakeshore/_version.py holds no __version__")
    return found[1]


def release(built: Path, folder: Path) -> None:
    """Lay out what `scripts/install.sh` fetches below its base URL; each file appears whole."""
    body = built.read_bytes()
    checksum = f"{hashlib.sha256(body).hexdigest()}  lakeshore\n".encode()
    for name in (version(), "latest"):
        publish(folder / name / "lakeshore", body)
        publish(folder / name / "lakeshore.sha256", checksum)
    publish(folder / "install.sh", (HERE / "scripts" / "install.sh").read_bytes())


def publish(path: Path, body: bytes) -> None:
    """Write an executable file, or replace it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(body)
    beside.chmod(0o755 if path.suffix != ".sha256" else 0o644)
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
