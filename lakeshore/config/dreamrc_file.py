"""The text of a `.dreamrc`, turned into a `DreamRc`: YAML in which a provider's tag says what it is.

Read from YAML's own tree, so that every complaint has its line. Plain data only: any other tag is refused, nothing is
built by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from .errors import ConfigError
from .modes import BACKENDS, KNOWN_PROVIDER_TAGS, RUNNERS, DreamRc, Provider, RunConfig, Source

_TAG = "!providers."
_TAGS = ", ".join(_TAG + kind for kind in KNOWN_PROVIDER_TAGS)


def read(path: Path, source: Source) -> DreamRc:
    """The file's content. Raises ConfigError with the file, the line and the key."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    try:
        loader = yaml.SafeLoader(text)
        return _Reader(path, loader).rc(loader.get_single_node(), source)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise ConfigError(f"{path}{line}: {error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nests too deeply") from error


class _Reader:
    def __init__(self, path: Path, loader: yaml.SafeLoader) -> None:
        self._path = path
        self._loader = loader

    def rc(self, node: yaml.Node | None, source: Source) -> DreamRc:
        if node is None or _is_null(node):
            return DreamRc(path=self._path, source=source)
        default_mode = "local"
        named_at: yaml.Node | None = None
        modes: dict[str, RunConfig] = {}
        providers: dict[str, Provider] = {}
        root: list[tuple[str, yaml.Node]] = []
        for key, value in self._items(node, ""):
            if key == "default_mode":
                default_mode, named_at = self._text(value, key), value
            elif key in ("modes", "mode"):
                for name, mode in self._items(value, key):
                    if name in modes:
                        self._refuse(mode, f"{key}.{name}", "is declared twice; keep one")
                    modes[name] = self._mode(self._items(mode, f"{key}.{name}"), f"{key}.{name}.")
            elif key == "providers":
                providers = {name: self._provider(name, entry) for name, entry in self._items(value, key)}
            else:
                root.append((key, value))
        modes.setdefault("local", RunConfig())
        if named_at is not None and default_mode not in modes and default_mode != "default":
            known = ", ".join(sorted(modes))
            self._refuse(named_at, "default_mode", f"there is no mode {default_mode!r}; there are {known}")
        return DreamRc(
            default_mode=default_mode,
            modes=modes,
            providers=providers,
            root=self._mode(iter(root), ""),
            path=self._path,
            source=source,
        )

    def _provider(self, name: str, node: yaml.Node) -> Provider:
        key = f"providers.{name}"
        kind = node.tag.removeprefix(_TAG)
        if not node.tag.startswith(_TAG):
            self._refuse(node, key, f"must be a mapping with a tag that says what it is: {_TAGS}")
        if kind not in KNOWN_PROVIDER_TAGS:
            self._refuse(node, key, f"unknown tag {node.tag}; known are {_TAGS}")
        if isinstance(node, yaml.ScalarNode) and not node.value:  # the tag alone
            return Provider(name=name, kind=kind)
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, key, f"{node.tag} takes a mapping of the launcher's arguments")
        kwargs = {of: self._plain(value, f"{key}.{of}") for of, value in self._items(node, key)}
        dispatch = kwargs.get("dispatch")
        if dispatch is not None and dispatch not in ("direct", "daemon"):
            self._refuse(node, f"{key}.dispatch", f"must be direct or daemon, got {dispatch!r}")
        return Provider(name=name, kind=kind, kwargs=kwargs)

    def _mode(self, items: Iterator[tuple[str, yaml.Node]], prefix: str) -> RunConfig:
        known: dict[str, Callable[[yaml.Node, str], Any]] = {
            "backend": lambda node, key: self._one_of(node, key, BACKENDS),
            "server": self._optional_text,
            "tags": self._texts,
            "runner": lambda node, key: self._one_of(node, key, RUNNERS, subprocess="process"),
            "resources": self._table,
            "image": self._optional_text,
            "env": self._environment,
            "timeout_s": self._seconds,
            "provider": self._optional_text,
        }
        fields: dict[str, Any] = {}
        extras: dict[str, Any] = {}
        for key, node in items:
            if key in known:
                fields[key] = known[key](node, prefix + key)
            else:
                extras[key] = self._plain(node, prefix + key)
        return RunConfig(**fields, extras=extras)

    # -- values

    def _text(self, node: yaml.Node, key: str) -> str:
        found = self._plain(node, key)
        if not isinstance(found, str) or not found:
            self._refuse(node, key, f"must be a string, got {_said(found)}")
        return found

    def _optional_text(self, node: yaml.Node, key: str) -> str | None:
        return None if _is_null(node) else self._text(node, key)

    def _one_of(self, node: yaml.Node, key: str, choices: tuple[str, ...], **aliases: str) -> str:
        found = self._plain(node, key)
        found = aliases.get(found, found) if isinstance(found, str) else found
        if found not in choices:
            self._refuse(node, key, f"must be one of {', '.join(choices)}, got {_said(found)}")
        return str(found)

    def _texts(self, node: yaml.Node, key: str) -> list[str]:
        found = self._plain(node, key)
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            self._refuse(node, key, f"must be a list of strings, got {_said(found)}")
        return found

    def _table(self, node: yaml.Node, key: str) -> dict[str, Any]:
        return {name: self._plain(value, f"{key}.{name}") for name, value in self._items(node, key)}

    def _environment(self, node: yaml.Node, key: str) -> dict[str, str]:
        for name, value in self._items(node, key):
            if not isinstance(value, yaml.ScalarNode) or _is_null(value):
                self._refuse(value, f"{key}.{name}", "must be a string; quote it")
        return {name: str(value.value) for name, value in self._items(node, key)}

    def _seconds(self, node: yaml.Node, key: str) -> float | None:
        found = self._plain(node, key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < float("inf"):
            self._refuse(node, key, f"must be a number of seconds above 0, got {_said(found)}")
        return found

    # -- the tree

    def _items(self, node: yaml.Node, key: str) -> Iterator[tuple[str, yaml.Node]]:
        """The pairs of a mapping; merge keys (`<<`) are filled in, and each name is there once."""
        if _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, key, "must be a mapping")
        written: set[str] = set()
        for name, _value in node.value:
            text = str(name.value)
            if not isinstance(name, yaml.ScalarNode):
                self._refuse(name, key, "has a key that is no text")
            if text in written and name.tag != "tag:yaml.org,2002:merge":
                self._refuse(name, f"{key}.{text}".removeprefix("."), "stands here twice; keep one")
            written.add(text)
        self._loader.flatten_mapping(node)
        yield from {str(name.value): value for name, value in node.value}.items()

    def _plain(self, node: yaml.Node, key: str) -> Any:
        """The value of a node, of YAML's own types."""
        try:
            return self._loader.construct_document(node)
        except yaml.constructor.ConstructorError as error:
            self._refuse(node, key, str(error.problem))
        except ValueError as error:  # a date such as 2026-02-31
            self._refuse(node, key, str(error))

    def _refuse(self, node: yaml.Node, key: str, what: str) -> NoReturn:
        raise ConfigError(f"{self._path}, line {node.start_mark.line + 1}: {key or 'the file'} — {what}")


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _said(value: object) -> str:
    return "nothing" if value is None else repr(value)
