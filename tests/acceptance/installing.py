"""What the installer's tests share: releases, a web server that misbehaves on demand, and machines with few tools."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from one_file import ROOT

SCRIPT = ROOT / "scripts" / "install.sh"
PATH = f"{os.path.dirname(os.path.realpath(sys.executable))}:{os.environ['PATH']}"
"""With a Python first that starts at once: a version manager's shim does not."""
# What the installer may use besides its shell; a downloader, a checksum tool and a Python come on top.
TOOLS = (
    "awk",
    "cat",
    "chmod",
    "cmp",
    "cp",
    "cut",
    "dirname",
    "find",
    "grep",
    "head",
    "id",
    "ln",
    "mkdir",
    "mktemp",
    "mv",
)
TOOLS += ("readlink", "rm", "sed", "sync", "tail", "tr", "uname")


def small_file(version: str, *, padding: int = 0) -> bytes:
    """A program with the built file's first two lines, which tells its version: for tests of everything else."""
    return f"#!/usr/bin/env python3\n# lakeshore {version}\nprint('lakeshore {version}')\n#{'x' * padding}\n".encode()


def publish(base: Path, version: str, body: bytes, *, latest: bool = True, checksum: str | None = None) -> Path:
    """Lay out one release below `base`."""
    digest = hashlib.sha256(body).hexdigest() if checksum is None else checksum
    for name in (version, *(["latest"] if latest else [])):
        place = base / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "lakeshore").write_bytes(body)
        (place / "lakeshore.sha256").write_text(f"{digest}  lakeshore\n")
    return base


def environment(**more: str) -> dict[str, str]:
    unwanted = ("LAKESHORE_", "NYMPH_", "SUDO_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return {name: value for name, value in {**kept, "PATH": PATH, **more}.items() if value != "unset"}


def install(
    base: object,
    dest: Path | None,
    *arguments: str,
    shell: Sequence[str] = ("sh",),
    under: Sequence[str] = (),
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run the installer. `more` is environment; the value "unset" removes a name."""
    named = [] if dest is None else ["--dest", str(dest)]
    return subprocess.run(
        [*under, *shell, str(SCRIPT), *named, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(**{"LAKESHORE_BASE_URL": str(base), **more}),
    )


def installed(dest: Path) -> list[str]:
    """What lies in a destination, temporary files included."""
    return sorted(path.name for path in dest.iterdir()) if dest.exists() else []


def toolbox(folder: Path, *names: str) -> str:
    """A PATH of these tools and those that the installer always needs, and no others. Skips where one is missing."""
    folder.mkdir(parents=True)
    for name in (*TOOLS, *names):
        found = sys.executable if name == "python3" else shutil.which(name)
        if found is None:
            pytest.skip(f"needs {name}")
        (folder / name).symlink_to(os.path.realpath(found) if name == "python3" else found)
    return str(folder)


def busybox_tools(folder: Path) -> str:
    """A PATH of busybox's own tools, and Python."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("needs busybox")
    folder.mkdir(parents=True)
    for name in subprocess.check_output([busybox, "--list"], text=True).split():
        (folder / name).symlink_to(busybox)
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    return str(folder)


def copy_with_libraries(executable: str, root: Path) -> None:
    """Put a program into `root`/bin, and what it is linked with where it expects it."""
    shutil.copy(executable, root / "bin")
    told = subprocess.run(["ldd", executable], check=False, capture_output=True, text=True).stdout
    for word in told.split():
        if word.startswith("/") and os.path.exists(word):
            place = root / word.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, place)


def program(path: Path, text: str) -> Path:
    """An executable script: a stand-in for something of the machine's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def alone(*mounts: str) -> list[str]:
    """Words that run a command which alone sees these mounts (`tmpfs <options> <place>` or `bind <from> <place>`)."""
    enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*enter, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    steps = []
    for mount in mounts:
        kind, what, place = mount.split(" ", 2)
        steps.append(f"mount -t tmpfs -o {what} none '{place}'" if kind == "tmpfs" else f"mount -B '{what}' '{place}'")
    return [*enter, "sh", "-c", f'{" && ".join(steps)} && exec "$@"', "sh"]


def somebody() -> list[str]:
    """Words that run a command as a user without rights."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv")
    return [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]


class Web:
    """A web server over a directory. `spoil` maps a path to how it goes wrong."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spoil: dict[str, str] = {}
        self.asked: list[str] = []
        self.stalled = threading.Event()
        self.go_on = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                web.answer(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        path = unquote(urlsplit(request.path).path)  # a proxy is asked for a whole URL
        how = self.spoil.get(path, "")
        file = self.root / path.lstrip("/")
        status, body = (200, file.read_bytes()) if file.is_file() else (404, b"<html>not here</html>")
        if how == "html":
            status, body = 200, b"<!DOCTYPE html><html><body>Welcome to the hotel's Wi-Fi</body></html>"
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        with contextlib.suppress(OSError):
            if how == "short":
                request.wfile.write(body[: len(body) // 2])
            elif how == "stall":
                request.wfile.write(body[: len(body) // 2])
                request.wfile.flush()
                self.stalled.set()
                self.go_on.wait(60)
            else:
                request.wfile.write(body)

    def __enter__(self) -> Web:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def nobody_listens() -> Iterator[str]:
    """A URL whose port is taken and refuses connections."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
