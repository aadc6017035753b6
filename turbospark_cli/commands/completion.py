"""`turbospark completion SHELL`: the script that teaches a shell to complete turbospark.

The scripts ask turbospark itself on every Tab press, through Typer's variable protocol. The copies under
completions/ are made from here; a test fails when they are stale.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from turbospark_cli import console

Shell = Literal["bash", "zsh", "fish"]

FILES: Final[dict[Shell, str]] = {"bash": "turbospark.bash", "zsh": "_turbospark", "fish": "turbospark.fish"}

# Found through fpath, the whole file is the body of zsh's first completion, which must then answer too.
_ZSH_FIRST_CALL: Final = """
if [[ $funcstack[1] == _turbospark ]]; then
  _turbospark_completion "$@"
fi"""


def script(shell: Shell) -> str:
    """The whole text of the completion script for `shell`."""
    from typer import completion

    make = completion.get_completion_script  # type: ignore[attr-defined]
    text: str = make(prog_name="turbospark", complete_var="_TURBOSPARK_COMPLETE", shell=shell)
    return text + (_ZSH_FIRST_CALL if shell == "zsh" else "") + "\n"


def command(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell.

    bash: source it from ~/.bashrc. zsh: save it as _turbospark in a folder of $fpath. fish: save it as
    ~/.config/fish/completions/turbospark.fish.
    """
    console.print_out(script(shell).rstrip("\n"))
