"""Names in the configuration files of other programs: read where they lie, without starting anything.

A file that is not there, or cannot be read, names nothing.
Reference: cli/completion.md, "Dynamic values".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def ssh_aliases() -> list[str]:
    """Every `Host` of ~/.ssh/config and of what it includes, without patterns, in the file's order."""
    from lakeshore.remote.ssh_config import aliases  # wall: a Tab for other names does not pay for it

    return aliases()


def aws_profiles() -> list[str]:
    """The profiles of AWS's config and credentials files."""
    from lakeshore.clouds.aws import profiles  # wall: a Tab for other names does not pay for it

    return [one.name for one in profiles()]


def gcloud_configs() -> list[str]:
    """The configurations of gcloud, without starting it."""
    from lakeshore.clouds.gcloud import names  # wall: as above

    return names()


def kube_contexts() -> list[str]:
    """The contexts of every file in KUBECONFIG, else of ~/.kube/config."""
    places = [place for place in os.environ.get("KUBECONFIG", "").split(os.pathsep) if place] or ["~/.kube/config"]
    found = [name for place in places for name in _contexts("\n".join(_lines(Path(place).expanduser())))]
    return list(dict.fromkeys(found))


def _contexts(text: str) -> Iterator[str]:
    if text.lstrip().startswith("{"):
        parsed = _parsed(json.loads, text)
    else:
        # Only the part in question: certificates are long, and the YAML parser is slow.
        part = re.search(r"^contexts:.*(?:\n(?:[ \t-].*|#.*)?)*", text, re.MULTILINE)
        if part is None:
            return
        import yaml  # wall: only who has such a file pays for it

        parsed = _parsed(yaml.safe_load, part[0])
    for context in (parsed.get("contexts") if isinstance(parsed, dict) else None) or ():
        if isinstance(context, dict) and isinstance(context.get("name"), str):
            yield context["name"]


def docker_contexts() -> list[str]:
    """`default`, where docker is in use, and the contexts that were made."""
    base = Path(os.environ.get("DOCKER_CONFIG") or "~/.docker").expanduser()
    if not base.is_dir():
        return []
    made = [_parsed(json.loads, "\n".join(_lines(path))) for path in base.glob("contexts/meta/*/meta.json")]
    names = {str(meta["Name"]) for meta in made if isinstance(meta, dict) and meta.get("Name")}
    return ["default", *sorted(names - {"default"})]


def compose_groups() -> list[str]:
    """The groups of ./lakeshore.yaml."""
    return list(_groups())


def compose_names() -> list[str]:
    """Its groups, and the labels of their daemons."""
    groups = _groups()
    return [*groups, *(f"{name}-{number}" for name, count in groups.items() for number in range(count))]


def _groups() -> dict[str, int]:
    """How many daemons each group has; of a file that is refused, none."""
    from lakeshore.config.compose import read_compose  # wall: only who has such a file pays for it
    from lakeshore.config.errors import ConfigError  # wall: as above

    try:
        return {group.name: group.count for group in read_compose().groups}
    except ConfigError:
        return {}


def _parsed(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except Exception:  # noqa: BLE001  (another program's file; whatever is wrong with it is not ours to tell here)
        return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
