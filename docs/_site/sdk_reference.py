"""reference/sdk.md: every public name of dreamlake.lakeshore, from its own signature and docstring."""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import Any

import dreamlake.lakeshore as dls
from prose import doc_of, one_line

HEAD = """<!-- about: Every public name of dreamlake.lakeshore: signatures, what it returns and raises. -->

# SDK

`import dreamlake.lakeshore as dls`. Names resolve when they are first used, so that the import costs
nothing that you do not use.
Times are seconds. An *invocation id* is a ULID: 26 characters, `str`. Made from the docstrings of version {version}.
"""
GROUPS = {
    "Functions": ("udf", "UDF", "thunk", "Thunk"),
    "Inside a body": ("run", "scope", "RunContext"),
    "Queues": ("SyncQueue", "Queue", "Topic", "Job"),
    "Planes": ("Dispatch", "HttpDispatch"),
    "Workers": ("run_worker", "arun_worker"),
    "Errors": ("DispatchError", "errors"),
    "Bytes": ("wire",),
}


def page() -> str:
    """The whole page."""
    absent = {name: said for name in dls.__all__ if (said := _not_built(getattr(dls, name))) is not None}
    grouped = {name for names in GROUPS.values() for name in names}
    more = [name for name in dls.__all__ if name not in grouped and name not in absent]
    lines = [HEAD.format(version=dls.__version__)]
    for title, names in {**GROUPS, **({"More": tuple(more)} if more else {})}.items():
        lines.append(f"## {title}\n")
        for name in names:
            lines += _entry(name, getattr(dls, name))
    if absent:
        lines.append("## Named, not built yet\n\nThese import, and say so when they are used.\n")
        lines += [f"- `{name}`: {said}" for name, said in absent.items()]
    return "\n".join(lines) + "\n"


def _not_built(thing: Any) -> str | None:
    said = inspect.getdoc(thing) or ""
    return said if inspect.isclass(thing) and said.startswith("not built yet") else None


def _entry(name: str, thing: Any) -> list[str]:
    lines = [f"### {name}\n"]
    if inspect.ismodule(thing):
        return lines + _module(name, thing)
    if inspect.isclass(thing):
        lines.append(_code(f"class {name}{_constructor(thing)}"))
    elif inspect.isroutine(thing):
        lines.append(_code(f"{name}{signature(thing)}"))
    lines.append(doc_of(thing) + "\n")
    cls = thing if inspect.isclass(thing) else type(thing) if not inspect.isroutine(thing) else None
    return lines if cls is None else lines + _members(f"{name}.", cls)


def _constructor(cls: type) -> str:
    if issubclass(cls, Exception):
        bases = ", ".join(base.__name__ for base in cls.__bases__)
        return f"({bases})"
    return signature(cls.__init__, bound=True).removesuffix(" -> None")


def _members(owner: str, cls: type) -> list[str]:
    lines = []
    init = "" if dataclasses.is_dataclass(cls) or "__init__" not in vars(cls) else doc_of(cls.__init__)
    if init and not owner.startswith("run."):
        lines.append(init + "\n")
    for name, raw in vars(cls).items():
        if name.startswith("_") or isinstance(raw, types.MemberDescriptorType):
            continue
        if isinstance(raw, property):
            lines += [f"#### {owner}{name}\n", _code(f"{name}: {_plain(_returns(raw.fget))}"), doc_of(raw) + "\n"]
        elif inspect.isroutine(getattr(cls, name)):
            method = getattr(cls, name)
            word = "async def " if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) else ""
            lines += [f"#### {owner}{name}\n", _code(f"{word}{name}{signature(method, bound=True)}")]
            lines.append(doc_of(method) + "\n")
    return lines


def _module(name: str, module: types.ModuleType) -> list[str]:
    lines = [doc_of(module) + "\n", "| name | |", "| --- | --- |"]
    public = getattr(module, "__all__", None) or [item for item in dir(module) if not item.startswith("_")]
    for item in public:
        thing = getattr(module, item)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            lines.append(f"| `{name}.{item}` | {one_line(inspect.getdoc(thing) or '')} |")
        else:
            lines.append(f"| `{name}.{item}` | `{str(thing).replace('|', chr(92) + '|')[:80]}` |")
    return [*lines, ""]


def signature(function: Any, *, bound: bool = False) -> str:
    """`(x: int, *, y: str = "a") -> str`; without `self` when bound. Broken into lines where it is long."""
    found = inspect.signature(function)
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    plain = [
        item.replace(annotation=inspect.Parameter.empty)
        if item.annotation is inspect.Parameter.empty
        else item.replace(annotation=_Plain(item.annotation))
        for item in parameters
    ]
    shown = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    back = "" if found.return_annotation is inspect.Signature.empty else f" -> {_plain(found.return_annotation)}"
    if len(shown) + len(back) < 90:
        return shown + back
    lines = _split(shown[1:-1])
    return "(\n" + "".join(f"    {line},\n" for line in lines) + f"){back}"


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [*parts, text[begin:].strip()]


class _Plain:
    """An annotation whose text is shown without quotes."""

    def __init__(self, annotation: Any) -> None:
        self.text = _plain(annotation)

    def __repr__(self) -> str:
        return self.text


def _plain(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _returns(function: Any) -> Any:
    return inspect.signature(function).return_annotation


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"
