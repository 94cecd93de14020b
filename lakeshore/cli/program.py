"""The click program, and how its mistakes are told.

Every expected failure ends here as `error: <sentence>` (and `hint: …`) on stderr with an `ExitCode`.
"""

from __future__ import annotations

import sys

import click

from lakeshore.client.answers import STUMBLES, misread
from lakeshore.client.errors import ApiError
from lakeshore.config.errors import ConfigError
from lakeshore.net.errors import NetError

from .exits import ExitCode
from .failures import Failure
from .groups import ASKED, Program, note_dreamrc
from .named import Named
from .output import plain
from .table import ALIASES


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from lakeshore._version import __version__  # wall: asked for among other options only

        click.echo(f"lakeshore {__version__}")
        ctx.exit()


@click.group("lakeshore", cls=Program, aliases=ALIASES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--namespace", type=Named("namespaces"), metavar="<slug>", help="The namespace to work in (LAKESHORE_NAMESPACE)."
)
@click.option(
    "--dreamrc",
    metavar="<path>",
    expose_value=False,
    callback=note_dreamrc,
    help="The .dreamrc to use (DREAMRC); also after any command.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
@click.pass_context
def program(ctx: click.Context, namespace: str | None) -> None:
    """Run Python functions on machines that are not your laptop."""
    ctx.obj = namespace


def run(arguments: list[str]) -> int:
    """Run the command that `arguments` name; its exit code."""
    context: click.Context | None = None
    try:
        # Not `program.main`: it has its own ideas about Ctrl-C, broken pipes and exit codes.
        with program.make_context("lakeshore", list(arguments)) as context:
            code = program.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        return _say(error.format_message(), None, ExitCode.USAGE)
    except (click.Abort, EOFError):
        click.echo(err=True)
        return ExitCode.INTERRUPTED
    except Failure as error:
        return _say(str(error), error.hint, error.code)
    except ConfigError as error:
        return _say(str(error), None, ExitCode.USAGE)
    except ApiError as error:
        return _say(str(error), error.hint, ExitCode.FAILED)
    except NetError as error:
        return _say(str(error), None, ExitCode.FAILED)
    except STUMBLES as error:
        asked = None if context is None else context.meta.get(ASKED)
        if asked is None or asked.answered is None:  # a mistake of ours: nobody else has said anything yet
            raise
        said = misread(error, asked.answered)
        return _say(str(said), said.hint, ExitCode.FAILED)
    return code if isinstance(code, int) else ExitCode.OK


def _usage(error: click.UsageError) -> ExitCode:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # a group without its verb: its help is the answer
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    hint = None
    if isinstance(error, click.NoSuchOption) and (hint := _stands_by_itself(error)):
        error = click.NoSuchOption(error.option_name, ctx=error.ctx)  # and nothing that is merely spelled alike
    message = error.format_message().rstrip(".")
    told = "" if error.ctx is None else error.ctx.get_help()
    last = sys.stderr.isatty()  # there a long help would leave nothing else on the screen: the mistake goes below it
    if told and last:
        click.echo(told + "\n", err=True)
    _say(message[:1].lower() + message[1:], hint, ExitCode.USAGE)
    if told and not last:
        click.echo("\n" + told, err=True)
    return ExitCode.USAGE


def _stands_by_itself(error: click.NoSuchOption) -> str | None:
    """What to say to who typed `--name x` where `<name>` is a word of its own."""
    if (ctx := error.ctx) is None:
        return None
    word = f"<{error.option_name.lstrip('-')}>"
    alone = any(isinstance(param, click.Argument) and param.metavar == word for param in ctx.command.params)
    return f"{word} stands by itself: `{ctx.command_path} {word} …`" if alone else None


def _say(message: str, hint: str | None, code: ExitCode) -> ExitCode:
    click.echo(f"error: {plain(message)}", err=True)  # it may quote a server
    if hint:
        click.echo(f"hint: {plain(hint)}", err=True)
    return code
