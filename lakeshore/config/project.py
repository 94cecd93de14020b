"""`.lakeshore` and `.lakeshore.local`: what `lakeshore daemon launch` takes for granted in a project.

Rules: looked for from the working directory upwards, as far as the first directory that has either file, or `.git`. Of
both, a key of `.lakeshore.local` replaces that of `.lakeshore` whole, lists too. Paths of scripts are meant from the
file's own directory. A directory of such a name (this machine's queues are in ~/.lakeshore) is no file. Keys that are
not known are left for others.
Reference: api/configuration.md, "`.lakeshore` project defaults"; nymph/daemon-lifecycle.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from .errors import ConfigError
from .yaml_tree import Tree, is_null, read_tree

FILES = (".lakeshore", ".lakeshore.local")
"""The later one counts more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectDefaults:
    """What a launch does unless its flags say otherwise. None and empty: nothing said. `keep_alive_s` in seconds, -1
    for ever. `files` are those that were read.
    """

    provider: str | None = None
    name: str | None = None
    runners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    keep_alive_s: int | None = None
    capacity: dict[str, Any] = field(default_factory=dict)
    bootstrap_script: Path | None = None
    setup_scripts: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()

    def under(
        self,
        *,
        provider: str | None = None,
        name: str | None = None,
        runners: Sequence[str] = (),
        tags: Sequence[str] = (),
        queues: Sequence[str] = (),
        keep_alive_s: int | None = None,
        capacity: dict[str, Any] | None = None,
        bootstrap_script: Path | None = None,
        setup_scripts: Sequence[Path] = (),
        no_setup: bool = False,
    ) -> ProjectDefaults:
        """What flags make of it: each replaces, `setup_scripts` come after those of the files, `no_setup` leaves no
        script at all.
        """
        given = {
            "provider": provider,
            "name": name,
            "runners": tuple(runners),
            "tags": tuple(tags),
            "queues": tuple(queues),
            "capacity": capacity,
            "bootstrap_script": bootstrap_script,
        }
        said: dict[str, Any] = {key: value for key, value in given.items() if value}
        if keep_alive_s is not None:
            said["keep_alive_s"] = keep_alive_s
        said["setup_scripts"] = (*self.setup_scripts, *setup_scripts)
        if no_setup:
            said |= {"bootstrap_script": None, "setup_scripts": ()}
        return replace(self, **said)

    def scripts(self) -> tuple[str | None, tuple[str, ...]]:
        """The text of the bootstrap script and of the setup scripts. Raises ConfigError for one that cannot be read."""
        first = None if self.bootstrap_script is None else _text_of(self.bootstrap_script)
        return first, tuple(map(_text_of, self.setup_scripts))


def project_defaults(start: Path | None = None) -> ProjectDefaults:
    """Those of the project that `start` (the working directory) is in. Raises ConfigError with file, line and key."""
    found = find_files(start)
    said: dict[str, Any] = {}
    for path in found:
        said |= read_tree(path, _daemon)
    return ProjectDefaults(**said, files=found)


def find_files(start: Path | None = None) -> tuple[Path, ...]:
    """The files of the first directory that has one, upwards from `start`."""
    here = Path.cwd() if start is None else start.absolute()
    for directory in (here, *here.parents):
        found = tuple(directory / name for name in FILES if (directory / name).is_file())
        if found or (directory / ".git").exists():
            return found
    return ()


def _daemon(tree: Tree, node: yaml.Node | None) -> dict[str, Any]:
    if node is None:
        return {}
    block = dict(tree.items(node, "")).get("daemon")
    if block is None or is_null(block):
        return {}
    said: dict[str, Any] = {}
    items = dict(tree.items(block, "daemon"))
    for name, value in items.items():
        key = f"daemon.{name}"
        if name == "lanes":
            if "queues" in items:
                tree.refuse(value, key, "is the old word for queues, which is there, too; keep queues")
            name = "queues"
        if name in _KEYS and not is_null(value):
            said[name] = _KEYS[name](tree, value, key)
    return said


def _texts(tree: Tree, node: yaml.Node, key: str) -> tuple[str, ...]:
    return tuple(tree.texts(node, key))


def _script(tree: Tree, node: yaml.Node, key: str) -> Path:
    return _placed(tree, tree.text(node, key))


def _scripts(tree: Tree, node: yaml.Node, key: str) -> tuple[Path, ...]:
    return tuple(_placed(tree, text) for text in tree.texts(node, key))


def _placed(tree: Tree, text: str) -> Path:
    return tree.path.parent / Path(text).expanduser()


_KEYS: dict[str, Callable[[Tree, yaml.Node, str], Any]] = {
    "provider": Tree.text,
    "name": Tree.text,
    "runners": _texts,
    "tags": _texts,
    "queues": _texts,
    "keep_alive_s": Tree.integer,
    "capacity": Tree.table,
    "bootstrap_script": _script,
    "setup_scripts": _scripts,
}


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the script {path}: {error}") from error
