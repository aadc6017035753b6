"""The command line: one table of commands and the one place where errors become exit codes.

A row of COMMANDS names the module that holds the command. That module is imported only when its command
is run, asked for its help or completed; `turbospark --help` imports none of them. The contract of a
command module:

- one command: a function with annotated Typer parameters; its docstring is its help;
- a group of commands: `app`, a `typer.Typer(rich_markup_mode=None, add_completion=False)`; a callback of its
  own is welcome, and without a subcommand the group prints its help;
- at its top it imports the standard library, typer and light modules only (console, settings, errors);
- it raises errors of `turbospark_cli.errors` and never prints one, nor catches KeyboardInterrupt for good;
- it returns None, or raises `typer.Exit(code)` for an exit code that is not an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer import completion
from typer.core import TyperGroup

from turbospark_cli import __version__, console
from turbospark_cli.errors import TurbosparkError, UsageError

PROGRAM: Final = "turbospark"
COMPLETE_VARIABLE: Final = "_TURBOSPARK_COMPLETE"
_INTERRUPTED: Final = 130

# "\b" keeps the line breaks.
_EXAMPLES: Final = """\b
Examples:
  turbospark serve
  turbospark run smollm2-135m "Why is the sky blue?"
  git diff | turbospark run smollm2-135m "Explain this change."
  turbospark transcribe talk.mp3 -o talk.srt
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One command: where it lives and how the list of commands describes it."""

    name: str
    module: str
    attribute: str  # a function, or the Typer app of a group
    help: str
    member: str | None = None  # only this command of the group
    hidden: bool = False


def _model_alias(name: str, member: str) -> Row:
    """A hidden top-level spelling of `models MEMBER`, for people who come from other tools."""
    return Row(name, "turbospark_cli.models.command", "app", f"Same as models {member}.", member, hidden=True)


COMMANDS: Final = (
    Row("serve", "turbospark_cli.serve.command", "command", "Serve models over HTTP."),
    Row("run", "turbospark_cli.commands.run", "command", "Ask a model one question."),
    Row("transcribe", "turbospark_cli.audio.command", "command", "Write down what is said in audio files."),
    Row("models", "turbospark_cli.models.command", "app", "Pull, list, show and remove models."),
    Row("bench", "turbospark_cli.commands.bench.command", "command", "Measure a model or a running server."),
    Row("completion", "turbospark_cli.commands.completion", "command", "Print a shell's completion script."),
    _model_alias("pull", "pull"),
    _model_alias("list", "list"),
    _model_alias("ls", "list"),
    _model_alias("show", "show"),
    _model_alias("rm", "rm"),
)


class NamingGroup(TyperGroup):
    """A group that answers an unknown command with the nearest names.

    The contexts that Typer hands to these methods are of a private class, hence Any.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a reader who closes the pipe has had enough, which is no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            console.drop_stdout()
            raise typer.Exit(0) from None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; a group that was given nothing at all prints its help and is done."""
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            console.print_out(ctx.get_help().rstrip())
            raise typer.Exit
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        """The --help of this group, with a default that needs no conversion.

        PERF: for a flag without a default Typer loads pydantic, which doubles the time of every help text.
        """
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The name, the command and its arguments. Raises UsageError for a name that nobody knows."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            raise self._unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: Any, name: str) -> UsageError:
        from turbospark_cli.nearest import nearest

        known = [each for each in self.list_commands(ctx) if not self.commands[each].hidden]
        return UsageError(
            f"There is no command {name!r} in {ctx.command_path}.",
            hint=f"Nearest: {', '.join(nearest(name, known))}. All of them: {ctx.command_path} --help",
        )


class LazyGroup(NamingGroup):
    """The root: lists placeholders and imports a command's module when that command is resolved."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As in NamingGroup, with the real command in place of its placeholder."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None or name is None:
            return name, command, rest
        return name, build_command(_ROWS[name], ctx), rest


_ROWS: Final = {row.name: row for row in COMMANDS}


def build_command(row: Row, ctx: typer.Context) -> Any:
    """Import the module of `row` and build its command."""
    target = getattr(import_module(row.module), row.attribute)
    if not isinstance(target, typer.Typer):
        single = typer.Typer(rich_markup_mode=None, add_completion=False)
        single.command(name=row.name)(target)
        return typer.main.get_command(single)
    target.info.cls = NamingGroup
    if target.registered_callback is None:
        target.callback()(_nothing)
    group: Any = typer.main.get_command(target)
    if not group.help:
        group.help = row.help
    return group.get_command(ctx, row.member) if row.member else group


def _nothing() -> None:
    pass


app = typer.Typer(
    cls=LazyGroup,
    name=PROGRAM,
    help="Open models on this machine: a private server and a shell tool.",
    epilog=_EXAMPLES,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print_out(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Write no colours.")] = False,
) -> None:
    console.configure(no_color)
    if ctx.invoked_subcommand is None:
        console.print_out(ctx.get_help().rstrip())


for _row in COMMANDS:
    app.command(name=_row.name, help=_row.help, hidden=_row.hidden)(_nothing)


def main() -> None:
    """Run the command line and exit with its code."""
    if COMPLETE_VARIABLE in os.environ:
        # Typer renders the help of completions through rich whenever that can be imported; a Tab press
        # must not wait for it.
        sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
        completion.get_completion_inspect_parameters()  # registers the shells
    sys.exit(run_guarded(lambda: typer.main.get_command(app).main(prog_name=PROGRAM, standalone_mode=False)))


def run_guarded(action: Callable[[], object]) -> int:
    """Call `action` and turn whatever it raises into an exit code, with the error on stderr."""
    console.prepare()
    try:
        result = action()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        console.drop_stdout()
        return 0
    except TurbosparkError as error:
        return _report(error, error.exit_code)
    except typer.TyperException as error:
        return _report(_as_usage(error), error.exit_code)
    except typer.Abort:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last frame: anything else would be a traceback for the user
        fault = TurbosparkError(
            f"This is a fault in {PROGRAM}: {type(error).__name__}: {error}",
            hint="TURBOSPARK_DEBUG=1 shows where it happened.",
        )
        return _report(fault, fault.exit_code)
    return result if isinstance(result, int) else 0


def _report(error: TurbosparkError, exit_code: int) -> int:
    if os.environ.get("TURBOSPARK_DEBUG") == "1":
        import traceback

        console.note(traceback.format_exc().rstrip())
    console.print_error(error)
    return exit_code


def _as_usage(error: typer.TyperException) -> UsageError:
    """A parser's complaint in our own words and shape."""
    context: typer.Context | None = getattr(error, "ctx", None)
    path = PROGRAM if context is None else context.command_path
    message = error.format_message().replace("\n\t", " ").replace("Value error, ", "")
    return UsageError(message, hint=f"{path} --help shows the usage.")
