"""Compares the signatures that a page prints with the project's own.

What a page prints must be accepted by name, by position and with the printed default. More parameters may exist when a
caller can leave them out.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from importlib import import_module
from typing import Any

Parameter = inspect.Parameter


def differences(text: str, target: str) -> list[str]:
    """What the project lacks of the signatures in `text`; `target` is "module:name"."""
    module, name = target.split(":")
    owner = getattr(import_module(module), name)
    found: list[str] = []
    for printed in printed_signatures(text):
        actual = owner if printed.name == name else inspect.getattr_static(owner, printed.name, None)
        if actual is None:
            found.append(f"{name} has no {printed.name}")
            continue
        found += [f"{printed.name}: {what}" for what in _compare(printed, actual)]
    return found


def printed_signatures(text: str) -> Iterator[ast.FunctionDef]:
    """Each `name(parameters) -> result` of a block; `dp.name(...)` is a method called `name`."""
    for statement in _statements(text):
        head = statement.split("(", 1)[0]
        function = ast.parse(f"def {head.rpartition('.')[2]}{statement[len(head) :]}: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        yield function


def _statements(text: str) -> Iterator[str]:
    words: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            if words:
                yield " ".join(words).replace(" . ", ".")
            words = []
        elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            words.append(token.string)


def _compare(printed: ast.FunctionDef, actual: Any) -> Iterator[str]:
    own = [p for p in inspect.signature(actual).parameters.values() if p.name != "self"]
    by_name = {p.name: p for p in own}
    arguments = printed.args
    first_default = len(arguments.args) - len(arguments.defaults)
    defaults = {arguments.args[first_default + i].arg: d for i, d in enumerate(arguments.defaults)}
    defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    for place, argument in enumerate(arguments.args):
        if place >= len(own) or own[place].name != argument.arg or own[place].kind is Parameter.KEYWORD_ONLY:
            yield f"{argument.arg} is not parameter number {place + 1}"
    for argument in arguments.kwonlyargs:
        if argument.arg not in by_name:
            yield f"{argument.arg}= is not taken"
    for name, default in defaults.items():
        if name in by_name and by_name[name].default != ast.literal_eval(default):
            yield f"{name} defaults to {by_name[name].default!r}, not to {ast.literal_eval(default)!r}"
    known = {a.arg for a in (*arguments.args, *arguments.kwonlyargs)}
    for parameter in own:
        optional = parameter.default is not Parameter.empty or parameter.kind in (
            Parameter.VAR_KEYWORD,
            Parameter.VAR_POSITIONAL,
        )
        if parameter.name not in known and not optional:
            yield f"{parameter.name} must be given, and the page does not know it"
