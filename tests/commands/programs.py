"""Running turbospark itself, with the starter model that the tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# A shell that starts pytest in the background ignores Ctrl-C for all that it starts; here it shall count.
_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from turbospark_cli.cli import main; main()"
)


def command_line(*arguments: str) -> list[str]:
    """The arguments of a process that is `turbospark ARGUMENTS`."""
    return [sys.executable, "-c", _PROGRAM, *arguments]


def environment(home: Path) -> dict[str, str]:
    """This one, with `home` as turbospark's and no other setting."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURBOSPARK_")}
    return inherited | {"TURBOSPARK_HOME": str(home), "COLUMNS": "100"}


def home_of(starter: Path) -> Path:
    """The home folder that holds an install."""
    return starter.parents[2]


def turbospark(home: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run to the end with `text` piped in."""
    return subprocess.run(
        command_line(*arguments),
        input=text,
        capture_output=True,
        text=True,
        env=environment(home),
        check=False,
    )


@contextmanager
def scripted_server(tokenizer: Path, home: Path, script: Path | None = None) -> Iterator[dict[str, Any]]:
    """A running `turbospark serve --scripted`; yields what it said when it was ready."""
    flags = ["--scripted", "--tokenizer", str(tokenizer), "--port", "0", "--json"]
    if script is not None:
        flags += ["--script", str(script)]
    with subprocess.Popen(
        command_line("serve", *flags), stdout=subprocess.PIPE, text=True, env=environment(home)
    ) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.terminate()
