"""Reaches one of our modules by name, and says plainly when that part is not built yet.

Everything that resolves late (the package's names, the documented import paths) goes through here, so the sentence
is the same.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `import dreamlake.lakeshore` pays for every module that is loaded here
if TYPE_CHECKING:
    from types import ModuleType


def has(module: str) -> bool:
    """Whether this version has `module`."""
    from importlib.util import find_spec  # wall: only who asks for a name pays for it

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package is there
        return False


def missing(module: str) -> ImportError:
    """The error for a part that this version does not have."""
    return ImportError(f"not built yet: {module}", name=module)


def absent(name: str, module: str) -> type:
    """What stands for a documented name whose module is not built yet: it imports, and says so when it is used."""

    def refuse(*_: object, **__: object) -> None:
        raise missing(module)

    return type(name, (), {"__new__": refuse, "__module__": module, "__doc__": str(missing(module))})


def built(module: str) -> ModuleType:
    """Import `module`. Raises ImportError `not built yet: ...` when this version does not have it."""
    from importlib import import_module  # wall: as above

    if not has(module):
        raise missing(module)
    return import_module(module)
