"""The key rules: how a key becomes a path below the run root, what a manifest is, and that every written key is
returned.

A key is a POSIX string relative to the ambient prefix. It may climb out of the prefix with `../`, never out of the
run root, and it is never absolute. Keys compare in normal form, so that `./a.txt` and `a.txt` are one key.
Reference: python-sdk/udf.md, "The return-your-keys contract"; python-sdk/architecture/f6-scopes.md.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable
from typing import Any

from lakeshore.sdk.errors import KeyError_

_NO_KEYS = frozenset((int, float, bool, bytes, type(None)))  # most of what streams yield


def normal(key: str) -> str:
    """The form in which two spellings of one key are equal."""
    return posixpath.normpath(key)


def join(prefix: str, key: str) -> str:
    """`prefix` and `key` joined, relative to the run root (`""` is the root itself).

    Raises KeyError_ for an empty or absolute key and for one that climbs out of the run root; TypeError when it is
    no string.
    """
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, relative to the scope's prefix; got {type(key).__name__}")
    if not key:
        raise KeyError_(f'the key is empty; keys are relative to the prefix "{prefix}" ("." is the scope itself)')
    if "\0" in key:
        raise KeyError_(f"key {key!r} contains a NUL character")
    if key.startswith("/"):
        raise KeyError_(f'key {key!r} is absolute; keys are relative to the prefix "{prefix}"')
    joined = posixpath.normpath(posixpath.join(prefix, key))
    if joined == ".." or joined.startswith("../"):
        raise KeyError_(
            f'key {key!r} escapes the run root from prefix "{prefix}"; '
            "../ may climb to a parent scope, not out of the run"
        )
    return "" if joined == "." else joined


def keys_in(value: object) -> list[str] | None:
    """The keys of a manifest (`str`, `list[str]`, `tuple[str, ...]` or `dict[str, str]`), or None when `value` is
    none.
    """
    if type(value) in _NO_KEYS:
        return None
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        keys = list(value)
    elif isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            return None
        keys = list(value.values())
    else:
        return None
    return keys if all(isinstance(key, str) for key in keys) else None


def check_returned(written: Collection[str], result: object) -> None:
    """Raise KeyError_ unless every written key is in the manifest `result`."""
    if written:
        keys = keys_in(result)
        check_returned_set(written, None if keys is None else map(normal, keys))


def check_returned_set(written: Collection[str], returned: Iterable[str] | None) -> None:
    """As `check_returned`, for keys gathered from many yields; None when nothing that was yielded was a manifest."""
    if not written:
        return
    if returned is None:
        raise KeyError_(
            f"UDF wrote {len(written)} file(s) via dls.run.write ({', '.join(written)}) but did not return their keys; "
            "return the key string(s) — str, list[str], or dict[str, str] — so the outputs are wired into the graph"
        )
    known = set(returned)
    missing = [key for key in written if key not in known]
    if missing:
        raise KeyError_(
            f"UDF wrote key(s) it did not return: {missing!r}; "
            "include them in the returned manifest (or don't write them)"
        )


def manifest_of(yields: Iterable[Any], written: Collection[str] = ()) -> Any:
    """What a generator's invocation returns as one value: the concatenated manifest of a key stream, else the list
    of its yields.

    Yields of `str`, `list[str]` and `tuple[str, ...]` concatenate to one list of keys. Dicts of strings look the
    same as rows of data, so they count as partial manifests only when the call wrote one of their values (`written`,
    keys in normal form): then they merge into one dict, or, where two yields use a name for different keys, into the
    list of keys. One plain yield makes it data.
    """
    items = list(yields)
    manifests = [keys_in(item) for item in items]
    if not items or any(keys is None for keys in manifests):
        return items
    flat = [key for keys in manifests if keys is not None for key in keys]
    if not any(isinstance(item, dict) for item in items):
        return flat
    if not set(map(normal, flat)) & set(written):
        return items
    if all(isinstance(item, dict) for item in items):
        merged: dict[str, str] = {}
        for item in items:
            if any(merged.get(name, key) != key for name, key in item.items()):
                return flat
            merged.update(item)
        return merged
    return flat
