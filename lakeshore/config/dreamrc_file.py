"""The text of a `.dreamrc`, turned into a `DreamRc`: YAML in which a provider's tag says what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from .marker import MARKER
from .modes import (
    BACKENDS,
    DEFAULT,
    KNOWN_PROVIDER_TAGS,
    RUNNERS,
    TAG,
    DreamRc,
    Provider,
    RunConfig,
    Source,
)
from .yaml_tree import Tree, is_null, parse_tree, read_tree, said

_TAGS = ", ".join(TAG + kind for kind in KNOWN_PROVIDER_TAGS)


def read(path: Path, source: Source) -> DreamRc:
    """The file's content. Raises ConfigError with the file, the line and the key."""
    return read_tree(path, lambda tree, node: _Reader(tree, checked=True).rc(node, source))


def parse(text: str, path: Path, source: Source) -> DreamRc:
    """A text that was made of what a server said, where `backend` and `runner` may be any word. Raises ConfigError."""
    return parse_tree(text, path, lambda tree, node: _Reader(tree, checked=False).rc(node, source))


class _Reader:
    def __init__(self, tree: Tree, *, checked: bool) -> None:
        self._tree = tree
        self._checked = checked

    def rc(self, node: yaml.Node | None, source: Source) -> DreamRc:
        tree = self._tree
        if node is None or is_null(node):
            return DreamRc(path=tree.path, source=source)
        default_mode = "local"
        named_at: yaml.Node | None = None
        modes: dict[str, RunConfig] = {}
        providers: dict[str, Provider] = {}
        root: list[tuple[str, yaml.Node]] = []
        for key, value in tree.items(node, ""):
            if key == "default_mode":
                default_mode, named_at = tree.text(value, key), value
            elif key in ("modes", "mode"):
                for name, mode in tree.items(value, key):
                    if name in modes:
                        tree.refuse(mode, f"{key}.{name}", "is declared twice; keep one")
                    modes[name] = self._mode(tree.items(mode, f"{key}.{name}"), f"{key}.{name}.")
            elif key == "providers":
                providers = {name: self._provider(name, entry) for name, entry in tree.items(value, key)}
            else:
                root.append((key, value))
        modes.setdefault("local", RunConfig())
        if named_at is not None and default_mode not in modes and default_mode != DEFAULT:
            known = ", ".join(sorted(modes))
            tree.refuse(named_at, "default_mode", f"there is no mode {default_mode!r}; there are {known}")
        return DreamRc(
            default_mode=default_mode,
            modes=modes,
            providers=providers,
            root=self._mode(iter(root), ""),
            path=tree.path,
            source=source,
        )

    def _provider(self, name: str, node: yaml.Node) -> Provider:
        tree, key = self._tree, f"providers.{name}"
        kind = node.tag.removeprefix(TAG)
        if not node.tag.startswith(TAG):
            tree.refuse(node, key, f"must be a mapping with a tag that says what it is: {_TAGS}")
        if kind not in KNOWN_PROVIDER_TAGS:
            tree.refuse(node, key, f"unknown tag {node.tag}; known are {_TAGS}")
        if isinstance(node, yaml.ScalarNode) and not node.value:  # the tag alone
            return Provider(name=name, kind=kind)
        if not isinstance(node, yaml.MappingNode):
            tree.refuse(node, key, f"{node.tag} takes a mapping of the launcher's arguments")
        kwargs = tree.table(node, key)
        dispatch = kwargs.get("dispatch")
        if dispatch is not None and dispatch not in ("direct", "daemon"):
            tree.refuse(node, f"{key}.dispatch", f"must be direct or daemon, got {dispatch!r}")
        return Provider(name=name, kind=kind, kwargs=kwargs)

    def _mode(self, items: Iterator[tuple[str, yaml.Node]], prefix: str) -> RunConfig:
        tree = self._tree
        known: dict[str, Callable[[yaml.Node, str], Any]] = {
            "backend": lambda node, key: self._one_of(node, key, BACKENDS),
            "server": tree.optional_text,
            "tags": tree.texts,
            "runner": lambda node, key: self._one_of(node, key, RUNNERS, subprocess="process"),
            "resources": tree.table,
            "image": tree.optional_text,
            "env": self._environment,
            "timeout_s": self._seconds,
            "provider": tree.optional_text,
        }
        fields: dict[str, Any] = {}
        extras: dict[str, Any] = {}
        for key, node in items:
            if key in known:
                fields[key] = known[key](node, prefix + key)
            else:
                if key == "match":
                    self._match(node, prefix + key)
                extras[key] = tree.plain(node, prefix + key)
        return RunConfig(**fields, extras=extras, written=frozenset(fields))

    def _one_of(self, node: yaml.Node, key: str, choices: tuple[str, ...], **aliases: str) -> str:
        found = self._tree.plain(node, key)
        found = aliases.get(found, found) if isinstance(found, str) else found
        if found not in choices and (self._checked or not isinstance(found, str)):
            self._tree.refuse(node, key, f"must be one of {', '.join(choices)}, got {said(found)}")
        return str(found)

    def _match(self, node: yaml.Node, key: str) -> None:
        """What a call asks of a worker besides its tags and its runner."""
        for name, words in self._tree.items(node, key):
            if name not in ("tags", "runners"):
                self._tree.refuse(words, f"{key}.{name}", "is none of tags and runners")
            self._tree.texts(words, f"{key}.{name}")

    def _environment(self, node: yaml.Node, key: str) -> dict[str, Any]:
        return {name: self._variable(value, f"{key}.{name}") for name, value in self._tree.items(node, key)}

    def _variable(self, node: yaml.Node, key: str) -> Any:
        """As it is written: `on` is the word. What a server keeps may refer to a secret."""
        if isinstance(node, yaml.ScalarNode) and not is_null(node):
            return str(node.value)
        found = None if self._checked else self._tree.plain(node, key)
        if not isinstance(found, dict) or MARKER not in found:
            self._tree.refuse(node, key, "must be a string; quote it")
        return found

    def _seconds(self, node: yaml.Node, key: str) -> float | None:
        found = self._tree.plain(node, key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < float("inf"):
            self._tree.refuse(node, key, f"must be a number of seconds above 0, got {said(found)}")
        return found
