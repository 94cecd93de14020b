"""What `--field k=v` and `--kwarg k=v` say, and how it goes into what there is.

    resources.gpu=1          a dot nests: {"resources": {"gpu": 1}}
    true false null 1 -2.5   are JSON's; what begins with [, { or " is JSON; everything else is text
    creds.$secret=name       a reference to a secret; its name is text, whatever it looks like
    key=null                 takes the key away

Rule: merging goes into maps and replaces everything else; a reference to a secret is replaced whole.
Reference: cli.md; api/configuration.md, "Server-stored modes"; get-started/mounts.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from lakeshore.client.steering import in_yaml
from lakeshore.config.marker import MARKER

from .exits import ExitCode
from .failures import Failure

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_LARGEST = 2**63


def fields_of(pairs: Iterable[str], flag: str = "--kwarg") -> dict[str, Any]:
    """The pairs as one map, the later of two winning. click.BadParameter for what is none, or no value."""
    found: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise _wrong(flag, f"{pair!r} is not key=value")
        inner = found
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise _wrong(flag, f"{pair!r}: {key} is given a value of its own, too")
        if isinstance(inner.get(keys[-1]), dict):
            raise _wrong(flag, f"{pair!r}: {path} holds values already")
        inner[keys[-1]] = text if keys[-1] == MARKER else _value(text, pair, flag)
    return found


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `change` in it; what is null there goes."""
    made = dict(base)
    for key, value in change.items():
        before = made.get(key)
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping) and not _refers(value):
            into = before if isinstance(before, Mapping) and not _refers(before) else {}
            made[key] = merged(into, value)
        else:
            made[key] = value
    return made


def slug_of(word: str) -> str:
    """An alias, a profile or the like as the name of a resource. Failure for one that makes none."""
    found = re.sub(r"[^a-z0-9-]+", "-", word.lower()).strip("-")
    if not found:
        raise Failure(f"{word} makes no name", hint="--name gives it one", code=ExitCode.USAGE)
    return found


class _Masked(str):
    """Where a secret stands."""

    __slots__ = ()


def masked(value: Any) -> Any:
    """For people: each reference to a secret as `<secret: name>`."""
    if isinstance(value, Mapping):
        if _refers(value):
            return _Masked(f"<secret: {value[MARKER]}>")
        return {key: masked(inner) for key, inner in value.items()}
    return [masked(inner) for inner in value] if isinstance(value, list) else value


def _refers(value: Mapping[str, Any]) -> bool:
    return MARKER in value


def _value(text: str, pair: str, flag: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] in ("[", "{", '"'):
        try:
            return json.loads(text)
        except ValueError as error:
            raise _wrong(flag, f"{pair!r}: the value begins as JSON and is none: {error}") from error
    if _NUMBER.fullmatch(text):
        number = json.loads(text)
        if abs(number) < _LARGEST:
            return number
    return text


def _wrong(flag: str, why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint=f"'{flag}'")


def of_file(path: str | Path) -> dict[str, Any]:
    """What `--config-file` or `--kwargs-file` names, YAML or JSON: one mapping, as JSON has it.

    ConfigError with file, line and key.
    """
    from lakeshore.config.yaml_tree import read_mapping  # wall: YAML is for who names a file

    # A date without quotes is text again.
    found: dict[str, Any] = json.loads(json.dumps(read_mapping(Path(path)), default=str))
    return found


def as_yaml(value: Any) -> str:
    """For people, in the order that it has, secrets masked."""
    import yaml  # wall: as above

    class Dumper(yaml.SafeDumper):
        """With secrets between quotes."""

    Dumper.add_representer(
        _Masked, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
    )
    Dumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
        ),
    )
    return in_yaml(yaml.dump(masked(value), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000))
