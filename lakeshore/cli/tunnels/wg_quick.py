"""A wg-quick file as the map that a tunnel's config is: `{interface: {…}, peers: [{…}]}`.

Rules: keys in camel case, those of capitals alone in small letters (`AllowedIPs` is allowedIPs, `DNS` is dns).
`Address`, `DNS` and `AllowedIPs` are lists; another key that comes twice becomes one; whole numbers are numbers.
`$secret:<name>` as a value refers to a secret. A section that wg-quick does not know is an error.
Reference: get-started/tunnels.md, "Storage shape"; C-145, C-146, C-1440.
"""

from __future__ import annotations

import re
from typing import Any

from lakeshore.config.marker import MARKER

LISTS = ("address", "dns", "allowedIPs")
REFERENCE = "$secret:"
_SECTION = re.compile(r"\[\s*(\w+)\s*\]")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


class NoWgQuick(ValueError):
    """The message names the line."""


def parsed(text: str) -> dict[str, Any]:
    """The file's text as a config. NoWgQuick."""
    interface: dict[str, Any] | None = None
    peers: list[dict[str, Any]] = []
    section: dict[str, Any] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        if said.startswith("["):
            found = _SECTION.fullmatch(said)
            name = found[1].lower() if found else ""
            if name == "peer":
                peers.append(section := {})
            elif name == "interface" and interface is None:
                interface = section = {}
            else:
                why = "a second [Interface]" if name == "interface" else f"{said} is neither [Interface] nor [Peer]"
                raise NoWgQuick(f"line {number}: {why}")
            continue
        key, equals, value = (part.strip() for part in said.partition("="))
        if not equals or not key or not value:
            raise NoWgQuick(
                f"line {number}: {(key or said).split()[0]:.40} is not <Key> = <value>"
            )  # the rest may be a key
        if section is None:
            raise NoWgQuick(f"line {number}: {key} stands before a section")
        _put(section, _camel(key), value)
    if interface is None:
        raise NoWgQuick("there is no section [Interface]")
    return {"interface": interface, "peers": peers}


def _put(section: dict[str, Any], key: str, value: str) -> None:
    if key in LISTS:
        section.setdefault(key, []).extend(part.strip() for part in value.split(",") if part.strip())
    elif key not in section:
        section[key] = _value(value)
    elif isinstance(section[key], list):
        section[key].append(_value(value))
    else:
        section[key] = [section[key], _value(value)]


def _value(text: str) -> Any:
    if text.startswith(REFERENCE) and len(text) > len(REFERENCE):
        return {MARKER: text.removeprefix(REFERENCE)}
    return int(text) if _NUMBER.fullmatch(text) else text


def _camel(key: str) -> str:
    return key.lower() if key.isupper() else key[0].lower() + key[1:]
