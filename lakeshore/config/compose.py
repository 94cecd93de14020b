"""`lakeshore.yaml`: the queues and the groups of daemons that a project is to have.

Rules: looked for in the working directory alone. What is wrong is refused with file, line and key; a key of a daemon
group that is not known is wrong, one at the top or of a queue is ignored, with a warning (at the top, `x-…` without).
null is absent. Elasticity kinds have underscores here.
Reference: get-started/compose.md; api/configuration.md, "`lakeshore.yaml` compose"; C-317…C-334, C-1424.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from .errors import ConfigError
from .yaml_tree import Tree, is_null, read_tree

FILE: Final = "lakeshore.yaml"
KINDS: Final = ("fifo", "priority", "boltzmann", "filo")
ELASTICITIES: Final = ("fixed", "fully_elastic", "pool_with_threshold", "max_count")
MOST: Final = 10_000
"""Daemons of a group: above it somebody slipped on the keyboard."""
_TOP: Final = ("version", "project", "namespace", "provider", "queues", "daemons")
_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_SLUG_SAYS: Final = "a name of lower-case letters, digits and hyphens, starting with a letter or digit"
_RENAMED: Final = {"host_setup": "setup", "lanes": "queues"}
_LONGEST: Final = 80

Reader = Callable[[Tree, yaml.Node, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A storage entry (`<name>`, or `<namespace>/<name>`) and where a job sees it."""

    storage: str
    mount_path: str
    readonly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """`count` daemons that are alike, labelled `<name>-0` and so on. `keep_alive_s` in seconds, -1 for ever."""

    name: str
    queues: tuple[str, ...]
    count: int
    provider: str | None = None
    instance_type: str | None = None
    image_id: str | None = None
    runner: str | None = None
    keep_alive_s: float | None = None
    setup: tuple[str, ...] = ()
    startup: str | None = None
    python: str | None = None
    mounts: tuple[Mount, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Of its daemons, by their numbers."""
        return [f"{self.name}-{number}" for number in range(self.count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue that is to be there. `settings` are what the file says of it, under the names that the server's routes
    have.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compose:
    """One file. A group's provider is its own or the file's; None where neither says one. `warnings` are sentences."""

    path: Path
    project: str
    groups: tuple[Group, ...]
    queues: tuple[Queue, ...] = ()
    namespace: str | None = None
    warnings: tuple[str, ...] = ()


def read_compose(path: Path | None = None) -> Compose:
    """`./lakeshore.yaml`, or the file at `path`. Raises ConfigError with file, line and key."""
    found = Path(FILE) if path is None else path
    if not found.is_file():
        hint = "name one with -f <path>" if path is None else "-f takes the file itself"
        raise ConfigError(f"there is no {found} here: {hint}" if path is None else f"there is no file {found}: {hint}")
    return read_tree(found, _compose)


def place_of(label: str) -> tuple[str, int] | None:
    """The group and the number that a label names; None for a label of another form."""
    name, _, number = label.rpartition("-")
    if not _SLUG.fullmatch(name) or not number.isascii() or not number.isdecimal() or str(int(number)) != number:
        return None
    return name, int(number)


# --- the file


def _compose(tree: Tree, node: yaml.Node | None) -> Compose:
    if node is None:
        raise ConfigError(f"{tree.path}: is empty; `version: 1`, `project` and `daemons` are required")
    warnings: list[str] = []
    said = {name: value for name, value in tree.items(node, "") if not is_null(value)}
    for name, value in said.items():
        if name not in _TOP and not name.startswith("x-"):
            warnings.append(_ignored(tree, value, name, _TOP))
    version = tree.plain(said["version"], "version") if "version" in said else None
    if type(version) is not int or version != 1:
        tree.refuse(said.get("version", node), "version", f"required, must be 1 (got {_got(version)})")
    project = _required(tree, node, said, "project", "", _slug, _SLUG_SAYS)
    daemons = said.get("daemons")
    groups = {} if daemons is None else dict(tree.items(daemons, "daemons"))
    if not groups:
        got = "null" if daemons is None else "{}"
        tree.refuse(daemons or node, "daemons", f"required, a mapping of one group or more (got {got})")
    provider = _slug(tree, said["provider"], "provider") if "provider" in said else None
    return Compose(
        path=tree.path,
        project=project,
        namespace=_slug(tree, said["namespace"], "namespace") if "namespace" in said else None,
        queues=tuple(
            _queue(tree, name, value, warnings)
            for name, value in (tree.items(said["queues"], "queues") if "queues" in said else ())
        ),
        groups=tuple(_group(tree, name, value, provider) for name, value in groups.items()),
        warnings=tuple(warnings),
    )


def _group(tree: Tree, name: str, node: yaml.Node, provider: str | None) -> Group:
    at = f"daemons.{name}"
    _name(tree, node, name, at)
    said: dict[str, Any] = {}
    nodes: dict[str, yaml.Node] = {}
    for key, value in tree.items(node, at):
        if key not in _GROUP:
            renamed = f"is called {_RENAMED[key]}" if key in _RENAMED else "no such key"
            tree.refuse(value, f"{at}.{key}", f"{renamed}; a daemon group has {', '.join(_GROUP)}")
        if not is_null(value):
            nodes[key] = value
    for key, says in (("queues", "non-empty list of queue names"), ("count", "positive integer")):
        said[key] = _required(tree, node, nodes, key, f"{at}.", _GROUP[key], says)
    for key, value in nodes.items():
        if key not in said:
            said[key] = _GROUP[key](tree, value, f"{at}.{key}")
    return Group(name=name, **{"provider": provider, **said})


def _queue(tree: Tree, name: str, node: yaml.Node, warnings: list[str]) -> Queue:
    at = f"queues.{name}"
    _name(tree, node, name, at)
    settings: dict[str, Any] = {}
    for key, value in tree.items(node, at):
        if key not in _QUEUE:
            warnings.append(_ignored(tree, value, f"{at}.{key}", tuple(_QUEUE)))
        elif not is_null(value):
            wire, read = _QUEUE[key]
            settings[wire] = read(tree, value, f"{at}.{key}")
            if known := _PARTS.get(key):
                warnings += [
                    _ignored(tree, inner, f"{at}.{key}.{part}", known)
                    for part, inner in tree.items(value, f"{at}.{key}")
                    if part not in known
                ]
    return Queue(name=name, settings=settings)


# --- values


def _required(
    tree: Tree, above: yaml.Node, said: Mapping[str, yaml.Node], key: str, at: str, read: Reader, says: str
) -> Any:
    if key not in said:
        tree.refuse(above, f"{at}{key}", f"required, {says} (got null)")
    return read(tree, said[key], f"{at}{key}")


def _name(tree: Tree, node: yaml.Node, name: str, at: str) -> None:
    if not _SLUG.fullmatch(name):
        tree.refuse(node, at, f"must be {_SLUG_SAYS}")


def _text(tree: Tree, node: yaml.Node, key: str) -> str:
    found = tree.plain(node, key)
    if not isinstance(found, str) or not found.strip():
        quoted = f'; write "{node.value}"' if type(found) in (int, float, bool) else ""
        tree.refuse(node, key, f"must be text (got {_got(found)}){quoted}")
    return found


def _slug(tree: Tree, node: yaml.Node, key: str) -> str:
    found = tree.plain(node, key)
    if not isinstance(found, str) or not _SLUG.fullmatch(found):
        quoted = f'; write "{node.value}"' if type(found) is int else ""
        tree.refuse(node, key, f"must be {_SLUG_SAYS} (got {_got(found)}){quoted}")
    return found


def _queues(tree: Tree, node: yaml.Node, key: str) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        tree.refuse(node, key, f"required, non-empty list of queue names (got {_got(tree.plain(node, key))})")
    return tuple(dict.fromkeys(_slug(tree, one, f"{key}[{at}]") for at, one in enumerate(node.value)))


def _count(tree: Tree, node: yaml.Node, key: str) -> int:
    found = tree.plain(node, key)
    if type(found) is not int or found < 1:
        tree.refuse(node, key, f"required, positive integer (got {_got(found)})")
    if found > MOST:
        tree.refuse(node, key, f"must be {MOST} at most (got {found})")
    return found


def _whole(tree: Tree, node: yaml.Node, key: str) -> int:
    found = tree.plain(node, key)
    if type(found) is not int or found < 0:
        tree.refuse(node, key, f"must be a whole number, 0 or more (got {_got(found)})")
    return found


def _share(tree: Tree, node: yaml.Node, key: str) -> float:
    found = tree.plain(node, key)
    if type(found) not in (int, float) or not 0 <= found <= 1:
        tree.refuse(node, key, f"must be a number from 0 to 1 (got {_got(found)})")
    return float(found)


def _keep_alive(tree: Tree, node: yaml.Node, key: str) -> float:
    found = tree.plain(node, key)
    if type(found) not in (int, float) or not (found == -1 or 0 <= found < 1e9):
        tree.refuse(node, key, f"must be a number of seconds, or -1 for ever (got {_got(found)})")
    return float(found) if found != int(found) else int(found)


def _setup(tree: Tree, node: yaml.Node, key: str) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode):
        got = _got(tree.plain(node, key))
        tree.refuse(node, key, f"must be a list of bash snippets (got {got}); make an entry of each: `- …`")
    return tuple(_text(tree, one, f"{key}[{at}]") for at, one in enumerate(node.value))


def _mounts(tree: Tree, node: yaml.Node, key: str) -> tuple[Mount, ...]:
    if not isinstance(node, yaml.SequenceNode):
        got = _got(tree.plain(node, key))
        tree.refuse(node, key, f"must be a list of {{storage, mount_path, readonly}} (got {got})")
    return tuple(_mount(tree, one, f"{key}[{at}]") for at, one in enumerate(node.value))


def _mount(tree: Tree, node: yaml.Node, key: str) -> Mount:
    said: dict[str, Any] = {}
    for name, value in tree.items(node, key):
        if name not in ("storage", "mount_path", "readonly"):
            tree.refuse(value, f"{key}.{name}", "no such key; a mount has storage, mount_path and readonly")
        if name == "readonly":
            said[name] = tree.plain(value, f"{key}.{name}")
            if type(said[name]) is not bool:
                tree.refuse(value, f"{key}.{name}", f"must be true or false (got {_got(said[name])})")
        else:
            said[name] = _text(tree, value, f"{key}.{name}")
    for name in ("storage", "mount_path"):
        if name not in said:
            tree.refuse(node, f"{key}.{name}", "required (got null)")
    parts = said["storage"].split("/")
    if len(parts) > 2 or not all(map(_SLUG.fullmatch, parts)):
        tree.refuse(node, f"{key}.storage", f"must be <name> or <namespace>/<name> (got {_got(said['storage'])})")
    if not said["mount_path"].startswith("/"):
        tree.refuse(node, f"{key}.mount_path", f"must begin with / (got {_got(said['mount_path'])})")
    return Mount(**said)


def _one_of(choices: tuple[str, ...]) -> Reader:
    def read(tree: Tree, node: yaml.Node, key: str) -> str:
        found = tree.plain(node, key)
        if found not in choices:
            meant = found.replace("-", "_") if isinstance(found, str) else ""
            hint = f"; write {meant}" if meant in choices else ""
            tree.refuse(node, key, f"must be one of {', '.join(choices)} (got {_got(found)}){hint}")
        return str(found)

    return read


def _elasticity(tree: Tree, node: yaml.Node, key: str) -> dict[str, Any]:
    readers: dict[str, Reader] = {
        "kind": _one_of(ELASTICITIES),
        "min": _whole,
        "max": _whole,
        "threshold": _share,
    }
    made: dict[str, Any] = {"kind": "fixed"}
    for name, value in tree.items(node, key):
        if name in _PARTS["elasticity"] and not is_null(value):
            made[name] = readers.get(name, _json)(tree, value, f"{key}.{name}")
    if "min" in made and "max" in made and made["min"] > made["max"]:
        tree.refuse(node, f"{key}.min", f"is above max ({made['min']} > {made['max']})")
    return made


def _json(tree: Tree, node: yaml.Node, key: str) -> Any:
    """A value as it travels, and as the server's rows have it: the keys of its mappings are texts."""
    try:
        return json.loads(json.dumps(tree.plain(node, key), allow_nan=False))
    except (TypeError, ValueError):  # a date, bytes, a number that is none
        quoted = f'; write "{node.value}"' if isinstance(node, yaml.ScalarNode) else ""
        tree.refuse(node, key, f"must be text, a number, true, false, a list or a mapping{quoted}")


def _json_table(tree: Tree, node: yaml.Node, key: str) -> dict[str, Any]:
    return {name: _json(tree, value, f"{key}.{name}") for name, value in tree.items(node, key)}


def _template(tree: Tree, node: yaml.Node, key: str) -> dict[str, str]:
    return {
        name: _text(tree, value, f"{key}.{name}")
        for name, value in tree.items(node, key)
        if name in _PARTS["daemon_template"] and not is_null(value)
    }


_GROUP: Final[dict[str, Reader]] = {
    "queues": _queues,
    "count": _count,
    "provider": _slug,
    "instance_type": _text,
    "image_id": _text,
    "runner": _text,
    "keep_alive_s": _keep_alive,
    "setup": _setup,
    "startup": _text,
    "python": _text,
    "mounts": _mounts,
}
_QUEUE: Final[dict[str, tuple[str, Reader]]] = {
    "kind": ("kind", _one_of(KINDS)),
    "description": ("description", _text),
    "elasticity": ("elasticity", _elasticity),
    "daemon_template": ("daemonTemplate", _template),
    "admission": ("admission", _json_table),  # these the server looks at: it knows more of them
    "kind_params": ("kindParams", _json_table),
    "run_config": ("runConfig", _json_table),
    "provider": ("providerRef", _slug),
}
_PARTS: Final = {
    "elasticity": (
        *("kind", "min", "max", "threshold", "threshold_low"),
        *("pool", "match", "steal_delay_s", "cost_weight"),
    ),
    "daemon_template": ("instance_type", "image_id", "runner"),
}


def _ignored(tree: Tree, node: yaml.Node, key: str, known: tuple[str, ...]) -> str:
    line = node.start_mark.line + 1
    return f"{tree.path}, line {line}: {key} — no such key, ignored; there are {', '.join(known)}"


def _got(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
