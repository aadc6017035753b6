"""README's first screen is true: its curl line and its script get an answer from the real model."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from turbospark_cli.cli import COMMANDS
from turbospark_cli.serve.app import PATHS

README: Final = (Path(__file__).resolve().parent.parent / "README.md").read_text()
DEFAULT_URL: Final = "http://127.0.0.1:8080"


def _table(section: str) -> str:
    """The first table under the heading `section`."""
    _, _, rest = README.partition(f"\n## {section}\n")
    return "\n".join(line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|"))


def test_the_table_of_routes_is_the_app() -> None:
    named = set(re.findall(r"/[a-z0-9/_]*[a-z]", _table("The server")))
    assert named == set(PATHS)


def test_the_table_of_commands_is_the_command_line() -> None:
    named = set(re.findall(r"`turbospark ([a-z]+)", _table("The command line")))
    assert named == {row.name for row in COMMANDS if not row.hidden}


def _block(language: str, start: str) -> str:
    """The first code block in `language` that begins with `start`."""
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if block.startswith(start))


@pytest.fixture(scope="module")
def url(starter: Path) -> Iterator[str]:
    """Address of `turbospark serve` with the starter model."""
    command = [sys.executable, "-m", "turbospark_cli", "serve", "--port", "0", "--json"]
    home = starter.parents[2]
    process = subprocess.Popen(
        command, env=os.environ | {"TURBOSPARK_HOME": str(home)}, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            yield ready["url"]
        finally:
            process.send_signal(signal.SIGTERM)


def test_the_curl_line_gets_an_answer(url: str) -> None:
    words = shlex.split(_block("sh", "curl"))
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert (words[0], set(options)) == ("curl", {"-H", "-d"})
    name, _, value = options["-H"].partition(": ")
    address = words[1].replace(DEFAULT_URL, url)
    request = urllib.request.Request(address, options["-d"].encode(), {name: value})  # noqa: S310
    with urllib.request.urlopen(request) as response:  # noqa: S310
        answer = json.load(response)
    assert answer["choices"][0]["message"]["content"]


def test_the_script_gets_an_answer(url: str) -> None:
    script = _block("python", "from openai")
    assert script.count("\n") == 4
    assert DEFAULT_URL in script
    run = subprocess.run(
        [sys.executable, "-c", script.replace(DEFAULT_URL, url)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
