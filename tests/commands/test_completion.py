"""The completion scripts: fresh, and understood by a real bash and a real zsh."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from turbospark_cli.cli import COMMANDS
from turbospark_cli.commands import completion
from turbospark_cli.commands.completion import Shell
from turbospark_cli.models.completion import write_names

FOLDER = Path(__file__).parents[2] / "completions"
DEADLINE = 120.0  # seconds; a busy machine starts a shell slowly


@pytest.mark.parametrize("shell", completion.FILES)
def test_the_committed_scripts_are_fresh(shell: Shell) -> None:
    assert (FOLDER / completion.FILES[shell]).read_text() == completion.script(shell), (
        "run `make completions`"
    )


def test_the_folder_holds_nothing_else() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(completion.FILES.values())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a shell that finds a turbospark with two installed models, and no settings of the user's."""
    program = tmp_path / "bin" / "turbospark"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m turbospark_cli "$@"\n')
    program.chmod(0o755)
    write_names(tmp_path / "home", ["smollm2-135m", "gemma4"])
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(tmp_path),
        "TURBOSPARK_HOME": str(tmp_path / "home"),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }


# Asks for the completions of the words that are given, by the function that the script registered.
_BASH = r"""
source "$1"; shift
registered=$(complete -p turbospark)
function=${registered#*-F }; function=${function%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
"$function" turbospark
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["turbospark", "ser"], {"serve"}),
        (["turbospark", ""], {row.name for row in COMMANDS if not row.hidden}),
        (["turbospark", "run", "sm"], {"smollm2-135m"}),
        (["turbospark", "bench", ""], {"smollm2-135m", "gemma4"}),
        (["turbospark", "models", "sh"], {"show"}),
        (["turbospark", "completion", "z"], {"zsh"}),
        (["turbospark", "run", "--top"], {"--top-p", "--top-k"}),
        (["turbospark", "bench", "-o", "json"], {"json", "jsonl"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bash_completes(environment: dict[str, str], line: list[str], expected: set[str]) -> None:
    script = FOLDER / completion.FILES["bash"]
    done = subprocess.run(
        ["bash", "--norc", "-c", _BASH, "bash", str(script), *line],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.removesuffix("\n").split("\n")) == expected
    assert done.stderr == ""


_ZSH_SETUP = r"""
fpath=({folder} $fpath)
autoload -Uz compinit; compinit -u -D
dump() {{ print -r -- "$BUFFER" > {answer}.new; mv {answer}.new {answer} }}
zle -N dump; bindkey '^T' dump
PS1='ready''> '
"""


# Runs zsh on a terminal of its own; killed, it takes the terminal and so zsh with it.
_ON_A_TERMINAL = "import pty; pty.spawn(['zsh', '-f', '-i'])"


def _zsh_line_after_tab(environment: dict[str, str], tmp_path: Path, typed: str) -> str:
    """Type into a fresh interactive zsh, press Tab, and see what the line became."""
    answer = tmp_path / "answer"
    answer.unlink(missing_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _ON_A_TERMINAL],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    ) as zsh:
        assert zsh.stdin is not None
        assert zsh.stdout is not None
        try:
            zsh.stdin.write(_ZSH_SETUP.format(folder=FOLDER, answer=answer).encode())
            _read_until(zsh.stdout, lambda seen: b"ready> " in seen)
            zsh.stdin.write(typed.encode() + b"\t\x14")
            _read_until(zsh.stdout, lambda _: answer.exists())
        finally:
            zsh.kill()
    return answer.read_text().removesuffix("\n")


def _read_until(output: IO[bytes], done: Callable[[bytes], bool]) -> None:
    """Read what the shell writes until `done` with it."""
    seen = b""
    limit = time.monotonic() + DEADLINE
    while not done(seen):
        assert time.monotonic() < limit, seen.decode(errors="replace")
        if select.select([output], [], [], 0.05)[0]:
            seen += os.read(output.fileno(), 65536)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed; .ci/run installs it")
def test_zsh_completes(environment: dict[str, str], tmp_path: Path) -> None:
    lines = {
        "turbospark ser": "turbospark serve ",
        "turbospark run sm": "turbospark run smollm2-135m ",
        "turbospark models sh": "turbospark models show ",
        "turbospark bench --conc": "turbospark bench --concurrency ",
    }
    completed = {typed: _zsh_line_after_tab(environment, tmp_path, typed) for typed in lines}
    assert completed == lines
