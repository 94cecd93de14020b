"""What commands of things that are kept under a name have in common: configs from pairs and files, what they print.

Rules: to `add`, a file is where it begins and the pairs go over it; to `update`, pairs are merged into what there is
and a file replaces all of it: one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from lakeshore.client.errors import ApiError

from .exits import ExitCode
from .failures import Failure
from .output import plain, print_json, say
from .values import as_yaml, fields_of, merged, of_file

F = TypeVar("F", bound=Callable[..., Any])
Row = dict[str, Any]
KEPT_ONLY = "stored; not activated yet"
kwarg_option = click.option(
    "--kwarg",
    "pairs",
    multiple=True,
    metavar="<k=v>",
    help="A field of its config; dots nest, null takes it away. Repeatable.",
)


def file_option(what: str) -> Callable[[F], F]:
    """`--config-file`, and what the file is to a verb."""
    return click.option("--config-file", "file", type=click.Path(), metavar="<path>", help=f"YAML or JSON: {what}.")


def config_of(file: str | None, pairs: tuple[str, ...]) -> Row:
    """What an `add` was given."""
    return merged({} if file is None else of_file(file), fields_of(pairs))


def change_of(file: str | None, pairs: tuple[str, ...], *, needed: bool = True) -> Callable[[Row], Row] | None:
    """What an `update` makes of a config; None for nothing. Failure (exit 2) for both, and, when `needed`,
    for nothing.
    """
    if file is not None and pairs:
        raise Failure("--kwarg changes a config and --config-file replaces it: give one of them", code=ExitCode.USAGE)
    if file is not None:
        whole = of_file(file)
        return lambda _before: whole
    if pairs:
        change = fields_of(pairs)
        return lambda before: merged(before, change)
    if needed:
        raise Failure("say what is to change: --kwarg k=v, or --config-file <path>", code=ExitCode.USAGE)
    return None


@contextmanager
def named_secrets(kind: str) -> Iterator[None]:
    """An unknown secret is told by its name, and how one of this kind is added."""
    try:
        yield
    except ApiError as error:
        if not error.body.get("secret"):
            raise
        secret = plain(error.body["secret"])
        hint = f"`lakeshore secrets add {secret} --kind {kind} --from-file <path>` first, then this again"
        raise Failure(f"unknown secret: {secret}", hint=hint) from error


def told(row: Row, done: str, as_json: bool) -> None:
    """The row, or that it is done; warnings beside it."""
    for warning in row.get("warnings") or ():
        say(f"warning: {warning}")
    if as_json:
        print_json(row)
    else:
        click.echo(plain(done))


def removed(name: str, as_json: bool) -> None:
    """That it is gone."""
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        click.echo(f"{plain(name)} removed")


def shown(row: Mapping[str, Any], keys: tuple[str, ...], as_json: bool) -> None:
    """One of them: as JSON whole, for people the `keys` as YAML, a secret by its name."""
    if as_json:
        print_json(row)
    else:
        click.echo(as_yaml({key: row.get(key) for key in keys}), nl=False)
