"""A YAML file as a tree whose every complaint names the file, the line and the key.

Plain data only: any tag but YAML's own is refused, nothing is built by name. Merge keys (`<<`) are filled in, and a key
that stands twice is refused. JSON is YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import yaml

from .errors import ConfigError

T = TypeVar("T")
MOST: Final = 100_000
"""Values of a file, those that aliases repeat counted each time."""
_LONGEST: Final = 200


def read_tree(path: Path, use: Callable[[Tree, yaml.Node | None], T]) -> T:
    """What `use` makes of the file's tree; its root is None for an empty file. Raises ConfigError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return parse_tree(text, path, use)


def parse_tree(text: str, path: Path, use: Callable[[Tree, yaml.Node | None], T]) -> T:
    """The same of a text that came from `path`."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _weigh(node, path, {})
        return use(Tree(path, loader), node)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise ConfigError(f"{path}{line}: {error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nests too deeply") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """A file that is one mapping with keys of text, as plain values; an empty file is an empty one."""

    def use(tree: Tree, node: yaml.Node | None) -> dict[str, Any]:
        return {} if node is None else tree.table(node, "")

    return read_tree(path, use)


class Tree:
    """Reads values from nodes; `key` is what a complaint calls the node."""

    def __init__(self, path: Path, loader: yaml.SafeLoader) -> None:
        self.path = path
        self._loader = loader
        self._merged: set[int] = set()
        """Mappings whose merge keys are filled in: what they replace stands there twice since."""

    def text(self, node: yaml.Node, key: str) -> str:
        found = self.plain(node, key)
        if not isinstance(found, str) or not found:
            self.refuse(node, key, f"must be a string, got {said(found)}")
        return found

    def optional_text(self, node: yaml.Node, key: str) -> str | None:
        return None if is_null(node) else self.text(node, key)

    def texts(self, node: yaml.Node, key: str) -> list[str]:
        found = self.plain(node, key)
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            self.refuse(node, key, f"must be a list of strings, got {said(found)}")
        return found

    def table(self, node: yaml.Node, key: str) -> dict[str, Any]:
        return {name: self.plain(value, f"{key}.{name}".removeprefix(".")) for name, value in self.items(node, key)}

    def integer(self, node: yaml.Node, key: str) -> int:
        found = self.plain(node, key)
        if type(found) is not int:
            self.refuse(node, key, f"must be an integer, got {said(found)}")
        return found

    def items(self, node: yaml.Node, key: str) -> Iterator[tuple[str, yaml.Node]]:
        """The pairs of a mapping; merge keys are filled in, and each name is there once."""
        if is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, key, "must be a mapping")
        if id(node) not in self._merged:
            self._merge(node, key)
        yield from {str(name.value): value for name, value in node.value}.items()

    def _merge(self, node: yaml.MappingNode, key: str) -> None:
        written: set[str] = set()
        for name, _value in node.value:
            text = str(name.value)
            if not isinstance(name, yaml.ScalarNode):
                self.refuse(name, key, "has a key that is no text")
            if text in written and name.tag != "tag:yaml.org,2002:merge":
                self.refuse(name, f"{key}.{text}".removeprefix("."), "stands here twice; keep one")
            written.add(text)
        self._loader.flatten_mapping(node)
        self._merged.add(id(node))

    def plain(self, node: yaml.Node, key: str) -> Any:
        """The value of a node, of YAML's own types."""
        try:
            return self._loader.construct_document(node)
        except yaml.constructor.ConstructorError as error:
            self.refuse(node, key, str(error.problem))
        except ValueError as error:  # a date such as 2026-02-31
            self.refuse(node, key, str(error))
        except (LookupError, AttributeError):  # `!!int ""`, `!!bool abc`
            self.refuse(node, key, "is not what its tag says")

    def refuse(self, node: yaml.Node, key: str, what: str) -> NoReturn:
        raise ConfigError(f"{self.path}, line {node.start_mark.line + 1}: {key or 'the file'} — {what}")


def is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def said(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _weigh(node: yaml.Node, path: Path, known: dict[int, int]) -> int:
    """The values in a node. A few lines of aliases of aliases stand for more than a machine holds: ConfigError."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    weight = known.get(id(node))
    if weight is None:
        known[id(node)] = 0
        parts = node.value if isinstance(node, yaml.SequenceNode) else [one for pair in node.value for one in pair]
        weight = known[id(node)] = 1 + sum(_weigh(part, path, known) for part in parts)
    line = node.start_mark.line + 1
    if weight == 0:
        raise ConfigError(f"{path}, line {line}: is a part of itself")
    if weight > MOST:
        raise ConfigError(f"{path}, line {line}: stands for more than {MOST:,} values, with what its aliases repeat")
    return weight
