"""An SSH provider from this machine: its arguments as a place that ssh goes to, and a script that runs there.

    ip | host          where to            username | user    as whom (default: ssh's own)
    port               22                  proxy_jump         through which host
    ssh_key            the private key itself, in a private file while it is used
    pem                a key's path on this machine; neither: what ssh finds by itself

The script goes in on the standard input, so that nothing of it is left there. `#!` with a shell in a script's first
line starts `bash`, else it is Python's.
Reference: cli/happy-paths/07; C-1385, S-148; DECISIONS, "provider kwargs".
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from .errors import RemoteFailure
from .ssh import CONNECT_S, Place, explain, private_directory

_SHELL = re.compile(rb"#!\s*\S*?\b(ba|da|k|z|a)?sh\b|#!\s*/usr/bin/env\s+(ba|da|k|z|a)?sh\b")
_TIMED_OUT = (124, 137)  # of timeout(1)
_KEPT_LINES = 20


@contextlib.contextmanager
def place_of(name: str, kwargs: Mapping[str, Any], *, config: str | None = None) -> Iterator[Place]:
    """Where the provider leads to, while the block lasts. RemoteFailure for arguments that lead nowhere."""
    host, options = _address(name, kwargs)
    jump = _word(name, kwargs, "proxy_jump")
    if jump is not None:
        options.append(f"ProxyJump={jump}")
    pem = kwargs.get("pem") or kwargs.get("identity_file")
    with contextlib.ExitStack() as stack:
        path = None
        if kwargs.get("ssh_key") is not None:
            path = stack.enter_context(_kept(_key(name, kwargs)))
        elif pem is not None:
            path = os.path.expanduser(str(pem))
            if not os.path.isfile(path):
                raise RemoteFailure(
                    f"provider {name} names a key that is not on this machine: {path}",
                    hint="`lakeshore ssh upload <alias> --with-key` keeps the key itself on the server",
                )
        if path is not None:
            options += _only(path)
        yield Place(alias=host, config=config, also=tuple(options))


@contextlib.contextmanager
def keyed_place(name: str, kwargs: Mapping[str, Any], *, config: str) -> Iterator[Place]:
    """The same with the key that the provider brings, and with nothing of this account's: neither its keys nor its
    agent, nor its configuration (`config` is one for ssh -F, "none" for none), on the host in between neither.
    """
    host, options = _address(name, kwargs)
    if kwargs.get("ssh_key") is None:
        raise RemoteFailure(
            f"provider {name} brings no key, and the server uses none of its own account's",
            hint="`lakeshore ssh upload <alias> --with-key` keeps the key on the server, as a secret; or "
            f"`lakeshore secrets add <secret> --kind ssh_key --from-file <key>` and `lakeshore providers update {name} "
            "--kwarg ssh_key.$secret=<secret>`",
        )
    jump = _word(name, kwargs, "proxy_jump")
    with _kept(_key(name, kwargs)) as path:
        also = [*_only(path), "IdentityAgent=none", "ForwardAgent=no", "ClearAllForwardings=yes"]
        if jump is not None:
            options.append(f"ProxyCommand={_through(name, jump, config, also)}")
        yield Place(alias=host, config=config, also=(*options, *also))


def _through(name: str, jump: str, config: str, also: Sequence[str]) -> str:
    """The command that leads through one host. ssh's own ProxyJump would use this account's keys there."""
    found = re.fullmatch(
        r"(?:ssh://)?(?:(?P<user>[\w.-]+)@)?(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d+))?", jump
    )
    if found is None or found["host"].startswith("-"):
        raise RemoteFailure(f"provider {name}: proxy_jump {jump!r} is not one host", hint="write [user@]host[:port]")
    words = ["ssh", "-F", config, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]
    words += [word for option in also for word in ("-o", option)]
    for flag, value in (("-l", found["user"]), ("-p", found["port"])):
        words += [flag, value] if value else []
    return " ".join(shlex.quote(word).replace("%", "%%") for word in [*words, "--", found["host"].strip("[]")]).replace(
        " -- ", " -W '[%h]:%p' -- "
    )


def _address(name: str, kwargs: Mapping[str, Any]) -> tuple[str, list[str]]:
    """(the host, ssh's options for who and where)."""
    host = _word(name, kwargs, "ip", "host")
    if host is None:
        raise RemoteFailure(
            f"provider {name} does not say where: it has neither ip nor host",
            hint=f"lakeshore providers update {name} --kwarg ip=<hostname-or-ip>",
        )
    user, port = _word(name, kwargs, "username", "user"), _word(name, kwargs, "port")
    if port is not None and not (port.isdecimal() and 0 < int(port) < 65_536):
        raise RemoteFailure(f"provider {name}: port {port} is none")
    return host, [f"{option}={value}" for option, value in (("User", user), ("Port", port)) if value is not None]


def _key(name: str, kwargs: Mapping[str, Any]) -> str:
    key = kwargs["ssh_key"]
    if not (isinstance(key, str) and "PRIVATE KEY" in key):
        raise RemoteFailure(f"provider {name}: its ssh_key is no private key (PEM or OpenSSH)")
    return key


def _only(path: str) -> list[str]:
    """No key but this one."""
    quoted = path.replace("%", "%%").replace('"', "")
    return [f'IdentityFile="{quoted}"', "IdentitiesOnly=yes"]


def srun(name: str, kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """What runs a program on a node of the cluster. RemoteFailure for a word that cannot be used."""
    given = (("--partition", "partition"), ("--account", "account"), ("--qos", "qos"))
    told = ((flag, _word(name, kwargs, key)) for flag, key in given)
    return ("srun", "--quiet", "--ntasks=1", *(f"{flag}={said}" for flag, said in told if said is not None))


def run_here(within: Sequence[str], script: Path | None, *, timeout_s: int) -> int:
    """The same on this machine, with the words of `within` before the program."""
    text = script_of(script)
    words = [*within, *program_of(text).split()]
    if shutil.which(words[0]) is None:
        hint = "SLURM's clients are on a login node: `--kwarg host=<login-node>` has it tried from there"
        raise RemoteFailure(f"there is no {words[0]} on PATH", hint=hint)
    try:
        done = subprocess.run(words, input=text, timeout=timeout_s, check=False)  # noqa: S603  (srun, no shell)
    except subprocess.TimeoutExpired:
        raise RemoteFailure(f"not done within {timeout_s} s", hint="--timeout gives it longer") from None
    return done.returncode


def script_of(script: Path | None) -> bytes:
    """The text of a script; None: of ours. RemoteFailure for a file that cannot be read."""
    return files("lakeshore.remote.scripts").joinpath("hello.py").read_bytes() if script is None else _read(script)


def program_of(text: bytes) -> str:
    """What runs a script that comes on its standard input."""
    return "bash -s" if _SHELL.match(text) else "python3 -u -"


def run(place: Place, script: Path | None, *, timeout_s: int, within: Sequence[str] = ()) -> int:
    """Run a script there (None: ours), its output on our own as it comes; its exit code. RemoteFailure when ssh fails,
    Python is missing, or it takes longer. `within`: words before the program.
    """
    text = script_of(script)
    program = shlex.join([*within, *program_of(text).split()])
    timed = f"timeout -k 5 {timeout_s}"
    command = f"sh -c 'if command -v timeout >/dev/null 2>&1; then exec {timed} {program}; else exec {program}; fi'"
    if shutil.which("ssh") is None:
        raise RemoteFailure("there is no ssh on PATH", hint="install the OpenSSH client (Debian: openssh-client)")
    words = ["ssh", *place.options("ControlMaster=no"), "-T", "--", place.alias, command]
    with tempfile.TemporaryFile() as stdin:
        stdin.write(text)
        stdin.seek(0)
        process = subprocess.Popen(  # noqa: S603  (ssh, with a host that was looked at)
            words, stdin=stdin, stderr=subprocess.PIPE
        )
    said: deque[str] = deque(maxlen=_KEPT_LINES)
    teller = threading.Thread(target=_tell, args=(process, said), daemon=True)
    teller.start()
    try:
        code = process.wait(timeout_s + 2 * CONNECT_S)
    except subprocess.TimeoutExpired:
        raise RemoteFailure(f"{place.alias}: not done within {timeout_s} s", hint="--timeout gives it longer") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        teller.join(5)
    if code == 255:
        raise explain(place.alias, code, "\n".join(said))
    if code in _TIMED_OUT:
        raise RemoteFailure(f"{place.alias}: not done within {timeout_s} s", hint="--timeout gives it longer")
    if code == 127 and any("not found" in line or "No such file" in line for line in said):
        hint = "install it there, or pass a --script that does not need it (its first line `#!/bin/bash`)"
        raise RemoteFailure(f"{place.alias} has no {program.split()[0]}", hint=hint)
    return code


def asked(place: Place, words: Sequence[str], limit_s: float) -> str:
    """What a program prints there. RemoteFailure."""
    argv = ["ssh", *place.options("ControlMaster=no"), "-T", "--", place.alias, shlex.join(words)]
    try:
        done = subprocess.run(  # noqa: S603  (ssh, with a host that was looked at)
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False
        )
    except FileNotFoundError as error:
        hint = "install the OpenSSH client (Debian: openssh-client)"
        raise RemoteFailure("there is no ssh on PATH", hint=hint) from error
    except subprocess.TimeoutExpired:
        raise RemoteFailure(f"{place.alias} did not answer within {limit_s:g} s", hint="--timeout") from None
    if done.returncode != 0:
        raise explain(place.alias, done.returncode, done.stderr.decode("utf-8", "replace"))
    return done.stdout.decode("utf-8", "replace")


def _tell(process: subprocess.Popen[bytes], said: deque[str]) -> None:
    assert process.stderr is not None
    with process.stderr as lines:
        for line in lines:
            text = line.decode("utf-8", "replace")
            said.append(text.rstrip("\n"))
            sys.stderr.write(text)
            sys.stderr.flush()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RemoteFailure(f"cannot read {path}: {error.strerror or error}") from error


def _word(name: str, kwargs: Mapping[str, Any], *names: str) -> str | None:
    for one in names:
        value = kwargs.get(one)
        if value is not None and value != "":
            text = str(value)
            if not isinstance(value, str | int) or isinstance(value, bool) or re.search(r"[\s\x00-\x1f\"'\\]", text):
                raise RemoteFailure(f"provider {name}: {one} {text!r:.80} cannot be used")
            return text
    return None


@contextlib.contextmanager
def _kept(key: str) -> Iterator[str]:
    """A key in a file that only this user can read."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else private_directory()  # noqa: S108  (made private)
    directory = tempfile.mkdtemp(prefix="lakeshore-key-", dir=memory)
    try:
        path = os.path.join(directory, "key")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8", newline="\n") as file:
            file.write(key if key.endswith("\n") else key + "\n")
        yield path
    finally:
        shutil.rmtree(directory, ignore_errors=True)
