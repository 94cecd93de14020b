"""`lakeshore completion`: prints a script for a shell. What the scripts ask, `completing.suggest` answers.

Reference: cli/completion.md.
"""

from __future__ import annotations

import click

from .completing import bash, fish, zsh
from .completing.tree import nodes

SHELLS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}


@click.command(
    epilog='bash, zsh: eval "$(lakeshore completion bash)" in ~/.bashrc or ~/.zshrc. '
    "fish: lakeshore completion fish > ~/.config/fish/completions/lakeshore.fish"
)
@click.argument("shell", type=click.Choice(tuple(SHELLS), case_sensitive=False))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes Tab complete commands, options and names."""
    program = ctx.find_root().command
    assert isinstance(program, click.Group)
    click.echo(SHELLS[shell](list(nodes(program))), nl=False)
