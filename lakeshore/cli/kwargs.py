"""`--kwarg k=v` and `--kwargs-file`: the arguments of a provider.

    dots nest         aws.region=x     ->  {"aws": {"region": "x"}}
    whole numbers, true, false, null, and what begins with { or [ are read as JSON; everything else is text
    null, in a merge, takes the key away

Reference: cli/examples/providers-and-discover; C-087…C-089, C-097, C-373…C-375.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

_JSON = re.compile(r"-?(0|[1-9]\d{0,17})|true|false|null|[{\[].*", re.DOTALL)


def kwargs_of(pairs: Iterable[str], option: str = "--kwarg") -> dict[str, Any]:
    """The tree that the flags say; a null is None. click.BadParameter for what makes none."""
    found: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        keys = path.split(".")
        if not equals or not all(keys):
            raise click.BadParameter(f"{path!r} is not k=v (dots nest: a.b=v)", param_hint=f"'{option}'")
        place = found
        for key in keys[:-1]:
            inner = place.setdefault(key, {})
            if not isinstance(inner, dict):
                raise click.BadParameter(f"{key!r} is a value and cannot hold {path!r}", param_hint=f"'{option}'")
            place = inner
        if isinstance(place.get(keys[-1]), dict):
            raise click.BadParameter(f"{path!r} holds values already", param_hint=f"'{option}'")
        place[keys[-1]] = _value(text, path, option)
    return found


def file_of(path: Path, option: str = "--kwargs-file") -> dict[str, Any]:
    """The map that a file of YAML or JSON is."""
    import yaml  # wall: only who names such a file pays for it

    try:
        value: Any = yaml.safe_load(path.read_text("utf-8"))
        json.dumps(value, allow_nan=False)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise click.BadParameter(f"cannot be used: {said}", param_hint=f"'{option}'") from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise click.BadParameter("must be a map, of YAML or JSON", param_hint=f"'{option}'")
    return value


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`old` with what `new` says, maps merged; None takes a key away."""
    result = dict(old)
    for key, value in new.items():
        before = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and "$secret" not in value:
            result[key] = merged(before if isinstance(before, dict) and "$secret" not in before else {}, value)
        else:
            result[key] = value
    return result


def _value(text: str, path: str, option: str) -> Any:
    if not _JSON.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{path!r} is not JSON: {error}", param_hint=f"'{option}'") from error
