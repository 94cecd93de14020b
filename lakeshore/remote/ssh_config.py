"""The user's ssh configuration as data: which hosts it names, and what it says of each.

Rules, as ssh has them: the first value of a keyword wins; a `Host` line's patterns are `*`, `?` and `!`; `Include` is
read where it stands, relative names below ~/.ssh. A `Match` block's lines count for nobody here, for they may run
programs. A file that is not there, or cannot be read, says nothing. Nothing is started.
Reference: cli/examples/providers-and-discover, "SSH"; ssh_config(5).
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

USUAL = "~/.ssh/config"
SENT = ("hostname", "user", "port", "identityfile", "proxyjump")
"""What a provider's record can say; every other directive is for this machine alone."""
_INCLUDES = 16  # ssh's own limit of nesting
_WORD = re.compile(r'"([^"]*)"|(\S+)')
_LINE = re.compile(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*)")
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One directive: its keyword as it is written, and its words."""

    keyword: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.keyword.lower()


_BEGIN, _END = Line(keyword="", words=()), Line(keyword="", words=())  # around what was included


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """What the configuration says of one alias. `stripped`: directives that stay here, as they are written."""

    alias: str
    hostname: str
    user: str
    port: int
    identity_file: str | None
    proxy_jump: str | None
    stripped: tuple[str, ...]

    @property
    def target(self) -> str:
        """Where it leads: two aliases with the same one are the same host and account."""
        return f"{self.user}@{self.hostname.lower()}:{self.port}" + (
            f" via {self.proxy_jump}" if self.proxy_jump else ""
        )


def aliases(path: str | None = None) -> list[str]:
    """Every `Host` without patterns, in the file's order."""
    named = (word for line in _lines(path) if line.name == "host" for word in line.words)
    return list(dict.fromkeys(word for word in named if not re.search(r"[*?!]", word)))


def entries(path: str | None = None) -> list[HostEntry]:
    """What is said of each of `aliases`."""
    lines = list(_lines(path))
    return [_entry(alias, lines) for alias in aliases(path)]


def entry(alias: str, path: str | None = None) -> HostEntry:
    """What is said of an alias, also of one that no `Host` names."""
    return _entry(alias, list(_lines(path)))


def _entry(alias: str, lines: list[Line]) -> HostEntry:
    said: dict[str, str] = {}
    stripped: list[str] = []
    here, around = True, [True]  # whether lines count, and did where each file was included
    for line in lines:
        if line is _BEGIN:
            around.append(here)
        elif line is _END:
            here = around.pop()
        elif line.name == "host":
            here = around[-1] and _matches(alias, line.words)
        elif line.name == "match":
            here = around[-1] and line.words[:1] == ("all",)
        elif here and line.words and line.name not in said:
            value = " ".join(line.words)
            said[line.name] = value
            if line.name not in SENT:
                stripped.append(f"{line.keyword} {value}")
    user = said.get("user") or _me()
    hostname = _expanded(said.get("hostname", alias), alias, user).replace("%%", "%")
    port = said.get("port", "22")
    identity = said.get("identityfile")
    jump = said.get("proxyjump")
    return HostEntry(
        alias=alias,
        hostname=hostname,
        user=user,
        port=int(port) if port.isdecimal() else 22,
        identity_file=_expanded(identity, hostname, user)
        if identity and identity.lower() != "none"
        else _default_key(),
        proxy_jump=jump if jump and jump.lower() != "none" else None,
        stripped=tuple(stripped),
    )


def _matches(alias: str, patterns: tuple[str, ...]) -> bool:
    found = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        if fnmatchcase(alias, pattern.removeprefix("!").replace("[", "[[]")):
            if negated:
                return False
            found = True
    return found


def _expanded(text: str, host: str, user: str) -> str:
    for token, value in (("%h", host), ("%n", host), ("%r", user), ("%u", _me()), ("%d", os.path.expanduser("~"))):
        text = text.replace(token, value)
    return os.path.expanduser(text)


def _default_key() -> str | None:
    usual = (os.path.expanduser(f"~/.ssh/{name}") for name in _DEFAULT_KEYS)
    return next((path for path in usual if os.path.isfile(path)), None)


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _lines(path: str | None) -> Iterator[Line]:
    return _read(Path(USUAL if path is None else path).expanduser(), _INCLUDES)


def _read(path: Path, deeper: int) -> Iterator[Line]:
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError:
        return
    for row in text.splitlines():
        found = None if row.lstrip().startswith("#") else _LINE.match(row)
        if found is None:
            continue
        line = Line(keyword=found[1], words=tuple(quoted or bare for quoted, bare in _WORD.findall(found[2])))
        if line.name == "include" and deeper:
            for word in line.words:
                pattern = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(word))
                for included in sorted(glob(pattern)):
                    yield _BEGIN
                    yield from _read(Path(included), deeper - 1)
                    yield _END
        else:
            yield line
