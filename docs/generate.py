"""Writes docs/reference from the code, where each command, setting and error is described once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Final

import typer

from turbospark_cli import cli, errors, settings

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
_NOTE: Final = "<!-- Written by docs/generate.py (`make docs`). Edit the code, not this page. -->"
_BRANCH: Final = re.compile(
    r"^[│├└─ ]*(?P<name>\w+) +exit (?P<exit>\d+) +HTTP (?P<status>\d+) *(?P<about>.*)$"
)


def pages() -> dict[str, str]:
    """The text of every page of the reference, by file name."""
    helps = {" ".join((cli.PROGRAM, *words)): _help(words) for words in _commands()}
    flags = set(re.findall(r"--[a-z-]+", "\n".join(helps.values())))
    return {"cli.md": _cli(helps), "settings.md": _settings(flags), "errors.md": _errors()}


def _page(title: str, *paragraphs: str) -> str:
    return "\n\n".join((_NOTE, f"# {title}", *paragraphs)) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _commands() -> Iterator[tuple[str, ...]]:
    """The words of each command that `--help` lists, a group before its members."""
    yield ()
    for row in cli.COMMANDS:
        if row.hidden:
            continue
        yield (row.name,)
        target = getattr(import_module(row.module), row.attribute)
        if isinstance(target, typer.Typer):
            yield from (
                (row.name, info.name) for info in target.registered_commands if info.name and not info.hidden
            )


def _help(words: Sequence[str]) -> str:
    """What the command prints for `--help`, on a terminal of 80 columns."""
    run = subprocess.run(
        [sys.executable, "-m", "turbospark_cli", *words, "--help"],
        env=os.environ | {"COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return "\n".join(line.rstrip() for line in run.stdout.strip().splitlines())


def _cli(helps: Mapping[str, str]) -> str:
    sections = [f"## {command}\n\n```text\n{text}\n```" for command, text in helps.items()]
    return _page(
        "Commands",
        "Results go to stdout, everything else to stderr. Exit codes: see [errors](errors.md).",
        *sections,
    )


def _default(value: object) -> str:
    if value is MISSING or value is None or value == ():
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _settings(flags: set[str]) -> str:
    """`flags` are those that any command takes."""
    rows = []
    for each in fields(settings.Settings):
        facts = settings.metadata(each.name)
        key = f"`{each.name}`" if facts["config"] else ""
        flag = f"`{facts['flag']}`" if facts["flag"] in flags else ""
        rows.append((flag, f"`{facts['env']}`", key, _default(each.default), facts["help"]))
    return _page(
        "Settings",
        "A value is taken from the first of these places that has one: the flag, the variable, the key in "
        f"`{settings.CONFIG_NAME}` in the home folder, the default. A command takes the flags that its "
        "`--help` lists; the variables and keys hold for all commands.",
        _table(("Flag", "Variable", "Key", "Default", "What it does"), rows),
    )


def _descendants(cls: type[errors.TurbosparkError]) -> Iterator[type[errors.TurbosparkError]]:
    yield cls
    for each in cls.__subclasses__():
        yield from _descendants(each)


def _errors() -> str:
    """Facts from the classes, words from the tree at the top of errors.py. ValueError when the two differ."""
    drawn = {
        match["name"]: match for line in (errors.__doc__ or "").splitlines() if (match := _BRANCH.match(line))
    }
    classes = {
        cls.__name__: cls for cls in _descendants(errors.TurbosparkError) if cls.__module__ == errors.__name__
    }
    facts = {name: (cls.exit_code, cls.status) for name, cls in classes.items()}
    if facts != {name: (int(match["exit"]), int(match["status"])) for name, match in drawn.items()}:
        raise ValueError("the tree at the top of errors.py differs from the classes below it")
    rows = [
        (f"`{cls.code}`", str(cls.exit_code), str(cls.status), drawn[name]["about"])
        for name, cls in classes.items()
    ]
    return _page(
        "Errors",
        "One tree of errors serves the shell and the server: a command exits with the exit code, a response "
        "has the HTTP status and the code. Further exit codes: 0 is success, 130 is Ctrl-C.",
        _table(("Code", "Exit", "HTTP", "When"), rows),
    )


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


if __name__ == "__main__":
    main()
