"""Scripts for another host: plain text beside this file, run there by `bash -s`, in need of bash and python3 only.

    values   each becomes an assignment before the script, quoted: nothing of a user's is ever part of its text
    answers  lines `<nonce> <name> <value>` on stdout; whatever a login's start-up files print is not mistaken for one

A script ends with `answer end ok`, so that one that arrived in part, or died, is not taken for one that went well.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

_NAME = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a script answered. `error` is its sentence when it gave up, `hint` what to do."""

    values: Mapping[str, str]
    lines: Mapping[str, list[str]] = field(default_factory=dict)
    """All of those that were answered, in order."""
    complete: bool = False

    @property
    def error(self) -> str | None:
        return self.values.get("error")

    @property
    def hint(self) -> str | None:
        return self.values.get("hint")

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")


def compose(name: str, values: Mapping[str, str]) -> tuple[str, str]:
    """(the text of one of our scripts with its values, the nonce of its answers). ValueError for a NUL in a value."""
    nonce = secrets.token_hex(8)
    assigned = []
    for key, value in {"nonce": nonce, **values}.items():
        if not _NAME.fullmatch(key) or "\0" in value:
            raise ValueError(f"{key} cannot be given to a script")
        assigned.append(f"{key}={shlex.quote(value)}\n")
    here = files(__package__)
    common = here.joinpath("common.sh").read_text("utf-8")
    return "".join(assigned) + common + here.joinpath(f"{name}.sh").read_text("utf-8"), nonce


def report_of(out: str, nonce: str) -> Report:
    """The answers in what a script printed."""
    lines: dict[str, list[str]] = {}
    for line in out.splitlines():
        found, _, rest = line.partition(" ")
        if found == nonce:
            name, _, value = rest.partition(" ")
            lines.setdefault(name, []).append(value)
    values = {name: found[-1] for name, found in lines.items()}
    return Report(values=values, lines=lines, complete=values.get("end") == "ok")
