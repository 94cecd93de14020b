"""A command that takes any other `--<key> <value>` as a field of a config, with a word about it.

Reference: cli/examples/storage-code-mounts.md; C-160, C-598, C-1422.
"""

from __future__ import annotations

import difflib
from typing import Any

import click

from ..output import say

FOLDED = "lakeshore.folded"


class Folding(click.Command):
    """Pairs of unknown options go to `folded(ctx)` as `key=value`; one without a value is a mistake as elsewhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        known = {name: param for param in params for name in (*param.opts, *param.secondary_opts)}
        left: list[str] = []
        pairs: list[str] = []
        waiting = list(args)
        while waiting:
            word = waiting.pop(0)
            if word == "--":
                left += [word, *waiting]
                break
            name, equals, value = word.partition("=")
            if not name.startswith("--") or name in known:
                left.append(word)
                if name in known and not equals and _takes_value(known[name]) and waiting:
                    left.append(waiting.pop(0))
            elif equals:
                pairs.append(f"{name[2:]}={value}")
            elif waiting and not waiting[0].startswith("--"):
                pairs.append(f"{name[2:]}={waiting.pop(0)}")
            else:
                left.append(word)
        ctx.meta[FOLDED] = tuple(pairs)
        rest = super().parse_args(ctx, left)
        for pair in pairs:
            _tell(f"--{pair.partition('=')[0]}", [name for name in known if name.startswith("--")])
        return rest


def folded(ctx: click.Context) -> tuple[str, ...]:
    """The pairs, in their order."""
    found: tuple[str, ...] = ctx.meta.get(FOLDED, ())
    return found


def _takes_value(param: Any) -> bool:
    return not (param.is_flag or param.count)


def _tell(name: str, known: list[str]) -> None:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    meant = f"; did you mean {near[0]}?" if near else ""
    say(f"warning: {name} is no option of this command: it is stored as a field of the config{meant}")
