"""The configurations of the Google Cloud CLI: asked of `gcloud`, else read where it keeps them. No cloud is asked.

    ~/.config/gcloud/configurations/config_<name>     CLOUDSDK_CONFIG names another directory
    ~/.config/gcloud/active_config                    the name of the active one
    legacy_credentials/<account>/adc.json             the key of a service account that was activated

Rule: a key is read only by who registers it, and never shown.
Reference: cli/examples/providers-and-discover, "Discover helpers"; C-091, C-112.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .ini import sections
from .tools import ToolError, ToolMissing, json_of, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One configuration. `key_file`: the JSON of its service account on this machine, where there is one."""

    name: str
    is_active: bool
    account: str | None
    project: str | None
    region: str | None
    zone: str | None
    key_file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is; `source` is gcloud or files, `trouble` why it was not gcloud."""

    configurations: tuple[Configuration, ...]
    source: str
    trouble: str | None = None


def home() -> Path:
    """Where gcloud keeps its files."""
    return Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()


def names() -> list[str]:
    """Of the configurations, by its files alone: each is one."""
    return sorted(path.name.removeprefix("config_") for path in home().glob("configurations/config_*"))


def configurations() -> Found:
    """Every one, by name."""
    try:
        told = json_of(["gcloud", "config", "configurations", "list", "--format=json"])
        return Found(configurations=parsed(told), source="gcloud")
    except ToolMissing:
        return Found(configurations=_of_files(), source="files")
    except ToolError as error:
        return Found(configurations=_of_files(), source="files", trouble=str(error))


def configuration(name: str) -> Configuration:
    """One. ToolError for one that is not there."""
    found = configurations().configurations
    for one in found:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in found) or "none"
    raise ToolError(f"there is no gcloud configuration {name!r}", hint=f"configurations: {known}")


def key_of(one: Configuration) -> str | None:
    """The JSON of its service account; None where there is none. ToolError for a file that cannot be read."""
    if one.key_file is None:
        return None
    try:
        return Path(one.key_file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"cannot read the service account in {one.key_file}: {error}") from error


def parsed(told: Any) -> tuple[Configuration, ...]:
    """What `gcloud config configurations list --format=json` prints."""
    rows = [row for row in told if isinstance(row, Mapping)] if isinstance(told, list) else []
    made = [_made(str(row.get("name")), bool(row.get("is_active")), _map(row.get("properties"))) for row in rows]
    return tuple(sorted(made, key=lambda one: one.name))


def _of_files() -> tuple[Configuration, ...]:
    active = "default"
    with contextlib.suppress(OSError):
        active = (home() / "active_config").read_text("utf-8").strip() or active
    folder = home() / "configurations"
    return tuple(_made(name, name == active, sections(folder / f"config_{name}")) for name in names())


def _made(name: str, is_active: bool, properties: Mapping[str, Any]) -> Configuration:
    core, compute = _map(properties.get("core")), _map(properties.get("compute"))
    account = text_of(core, "account")
    return Configuration(
        name=name,
        is_active=is_active,
        account=account,
        project=text_of(core, "project"),
        region=text_of(compute, "region"),
        zone=text_of(compute, "zone"),
        key_file=_key_file(account, text_of(_map(properties.get("auth")), "credential_file_override")),
    )


def _key_file(account: str | None, override: str | None) -> str | None:
    kept = home() / "legacy_credentials" / account / "adc.json" if account and "/" not in account else None
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    for place in (override, kept, named):
        if place and _is_key(Path(place).expanduser(), account if place == named else None):
            return str(Path(place).expanduser())
    return None


def _is_key(path: Path, account: str | None) -> bool:
    """Whether a file is a service account's key; of this account, where one is given."""
    try:
        told = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    is_key = isinstance(told, dict) and told.get("type") == "service_account" and bool(told.get("private_key"))
    return is_key and account in (None, told.get("client_email"))


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
