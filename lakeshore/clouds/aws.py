"""The profiles of AWS's two files, and their keys. Read only, and no cloud is asked.

    ~/.aws/config        [default], [profile <name>]   AWS_CONFIG_FILE names another
    ~/.aws/credentials   [<name>]                      AWS_SHARED_CREDENTIALS_FILE names another

Rule: a secret key is read only by who registers it, and never shown.
Reference: cli/examples/providers-and-discover, "Discover helpers"; C-090, C-111.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from .ini import sections
from .tools import ToolError

_OTHERS = ("sso-session ", "services ", "plugins", "preview")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile. `kind`: keys, session (keys that expire), sso, role, process, or none. `files`: where it stands."""

    name: str
    region: str | None
    kind: str
    key_id: str | None
    files: tuple[str, ...]
    keypair: str | None = field(default=None, repr=False)
    """`<access key id>:<secret access key>`, where it has keys that do not expire."""

    @property
    def key_shown(self) -> str | None:
        """The end of its key's id, by which people know it."""
        return None if self.key_id is None else f"…{self.key_id[-4:]}"


def config_file() -> Path:
    """Where regions and roles are."""
    return Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()


def credentials_file() -> Path:
    """Where keys are."""
    return Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()


def profiles() -> list[Profile]:
    """Every one, those of the config file first."""
    configured = {
        name.removeprefix("profile ").strip(): told
        for name, told in sections(config_file()).items()
        if not name.startswith(_OTHERS)
    }
    kept = sections(credentials_file())
    return [_profile(name, configured.get(name), kept.get(name)) for name in dict.fromkeys([*configured, *kept])]


def profile(name: str) -> Profile:
    """One. ToolError for one that is not there."""
    found = profiles()
    for one in found:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in found) or "none"
    raise ToolError(
        f"there is no AWS profile {name!r} in {config_file()} or {credentials_file()}", hint=f"profiles: {known}"
    )


def _profile(name: str, configured: dict[str, str] | None, kept: dict[str, str] | None) -> Profile:
    told = {**(configured or {}), **(kept or {})}
    key, secret = told.get("aws_access_key_id"), told.get("aws_secret_access_key")
    kind = "none"
    if key and secret:
        kind = "session" if told.get("aws_session_token") else "keys"
    elif told.get("sso_session") or told.get("sso_start_url"):
        kind = "sso"
    elif told.get("role_arn"):
        kind = "role"
    elif told.get("credential_process"):
        kind = "process"
    return Profile(
        name=name,
        region=told.get("region"),
        kind=kind,
        key_id=key or None,
        files=tuple(file for file, said in (("config", configured), ("credentials", kept)) if said is not None),
        keypair=f"{key}:{secret}" if kind == "keys" else None,
    )
