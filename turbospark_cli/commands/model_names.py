"""Completes the names of installed models, from one small file and with nothing heavy loaded."""

from __future__ import annotations

from turbospark_cli import settings
from turbospark_cli.errors import TurbosparkError
from turbospark_cli.models.completion import read_names


def complete_installed(incomplete: str) -> list[str]:
    """The installed models whose names begin with `incomplete`; none when settings cannot be read."""
    try:
        home = settings.load().settings.home
    except TurbosparkError:  # a Tab press is no place to complain
        return []
    return [name for name in read_names(home) if name.startswith(incomplete)]
