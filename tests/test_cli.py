"""The command line's root: the list of commands, what is imported for it, errors and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from turbospark_cli import __version__, cli
from turbospark_cli.errors import (
    ModelNotFound,
    NotEnoughMemory,
    ServerUnreachable,
    TurbosparkError,
    UsageError,
)
from turbospark_cli.nearest import nearest

HEAVY = (
    "mlx",
    "mlx_lm",
    "transformers",
    "tokenizers",
    "numpy",
    "falcon",
    "granian",
    "uvloop",
    "httpx2",
    "huggingface_hub",
    "prometheus_client",
    "gguf",
    "jinja2",
    "rich",
    "pydantic",
    "asyncio",
    "soundfile",
    "sounddevice",
)


def turbospark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A real run of the program, as a user would start it."""
    return subprocess.run(
        [sys.executable, "-m", "turbospark_cli", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "100"} | environment,
        check=False,
    )


def test_no_command_prints_help_with_examples() -> None:
    bare = turbospark()
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == turbospark("--help").stdout
    assert len(re.findall(r"^    .*turbospark ", bare.stdout, re.MULTILINE)) == 4


def test_the_list_of_commands_shows_no_alias() -> None:
    listed = re.findall(r"^  (\w+)  ", turbospark("-h").stdout.partition("Commands:")[2], re.MULTILINE)
    assert listed == ["serve", "run", "transcribe", "models", "bench", "completion"]


def test_version() -> None:
    assert turbospark("--version").stdout == f"turbospark {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        (),
        ("--version",),
        *((row.name, "--help") for row in cli.COMMANDS),
        ("models", "pull", "--help"),
    ],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    script = (
        "import json, sys\n"
        "from turbospark_cli.cli import main\n"
        "sys.argv = ['turbospark', *json.loads(sys.argv[1])]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "turbospark_cli.cli" in loaded
    assert not loaded & set(HEAVY)


def test_the_list_of_commands_imports_no_command() -> None:
    script = (
        "import sys\n"
        "from turbospark_cli import cli\n"
        "command = cli.typer.main.get_command(cli.app)\n"
        "cli.run_guarded(lambda: command.main(['--help'], standalone_mode=False))\n"
        "print([row.module for row in cli.COMMANDS if row.module in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("row", cli.COMMANDS, ids=lambda row: row.name)
def test_every_command_can_be_asked_for_help(row: cli.Row) -> None:
    asked = turbospark(row.name, "--help")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith(f"Usage: turbospark {row.name} ")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("sreve",), ["serve", "transcribe"]),
        (("models", "lst"), ["list"]),
    ],
)
def test_an_unknown_command_names_the_nearest(arguments: tuple[str, ...], names: list[str]) -> None:
    done = turbospark(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    said, empty, hint = done.stderr.rstrip("\n").split("\n")
    assert said.startswith("error: ")
    assert repr(arguments[-1]) in said
    assert empty == ""
    assert hint.startswith("hint: Nearest: ")
    assert len(hint.partition(".")[0].split(", ")) == 3
    assert all(name in hint for name in names)


def test_a_group_without_a_command_prints_its_help() -> None:
    bare = turbospark("models")
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == turbospark("models", "--help").stdout
    assert "pull" in bare.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--colour",), "--colour"),
        (("run",), "MODEL"),
        (("run", "m", "p", "--temperature", "hot"), "temperature"),
        (("run", "m", "p", "--top-p", "2"), "top-p"),
        (("completion", "tcsh"), "tcsh"),
    ],
)
def test_a_wrong_command_line_is_told_in_our_shape(arguments: tuple[str, ...], part: str) -> None:
    done = turbospark(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert part in done.stderr.partition("\n")[0]
    assert "\n\nhint: turbospark" in done.stderr
    assert "Traceback" not in done.stderr


def _raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("u"), 2),
        (ModelNotFound("m"), 3),
        (ServerUnreachable("s"), 5),
        (NotEnoughMemory("n"), 6),
        (TurbosparkError("t"), 1),
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_becomes_its_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    assert cli.run_guarded(_raising(error)) == code
    said = capsys.readouterr().err
    if isinstance(error, TurbosparkError):
        assert said == f"error: {error.message}\n"
    else:
        assert said == ""


@pytest.mark.parametrize(("result", "code"), [(None, 0), (7, 7), ("text", 0)])
def test_a_result_becomes_an_exit_code(result: object, code: int) -> None:
    assert cli.run_guarded(lambda: result) == code


def test_our_own_fault_is_one_sentence_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURBOSPARK_DEBUG", raising=False)
    assert cli.run_guarded(_raising(KeyError("lost"))) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "error: This is a fault in turbospark: KeyError: 'lost'\n\nhint: TURBOSPARK_DEBUG=1"
    )
    assert "Traceback" not in said


def test_debug_adds_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURBOSPARK_DEBUG", "1")
    assert cli.run_guarded(_raising(ModelNotFound("No such model."))) == 3
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):")
    assert said.endswith("error: No such model.\n")


def test_a_reader_who_leaves_is_no_failure(tmp_path: Path) -> None:
    script = "import sys; from turbospark_cli.cli import main; sys.stdin.readline(); main()"
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", script, "completion", "bash"],
        stdin=subprocess.PIPE,
        stdout=write,
        stderr=subprocess.PIPE,
        env=os.environ | {"HOME": str(tmp_path)},
        text=True,
    ) as process:
        os.close(write)
        os.close(read)
        _, said = process.communicate("go\n")
    assert (process.returncode, said) == (0, "")


def test_ctrl_c_while_the_program_is_still_being_imported_is_quiet() -> None:
    script = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'turbospark_cli.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from turbospark_cli.__main__ import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "code"), [("--version >&-", 0), ("--version <&- >&- 2>&-", 0), ("run any <&-", 2)]
)
def test_it_runs_without_a_standard_stream(arguments: str, code: int) -> None:
    """As a service or a cron job may start it."""
    command = f'exec "{sys.executable}" -m turbospark_cli {arguments}'
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert "fault" not in ended.stderr


def test_text_that_the_terminal_cannot_show_does_not_end_the_answer() -> None:
    script = (
        "from turbospark_cli import cli, console\n"
        "cli.run_guarded(lambda: console.print_out('caf\\xe9 \\u2014'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        check=False,
    )
    assert (ended.stdout, ended.stderr) == (b"caf\xe9 ?\n", b"")


def test_colour_can_be_turned_off_for_every_command() -> None:
    assert turbospark("--no-color", "sreve").stderr.startswith("error: ")


def test_nearest_names_are_the_most_alike_first() -> None:
    assert nearest("sreve", ["models", "serve", "run", "bench"])[0] == "serve"
    assert nearest("x", ["b", "a"]) == ["a", "b"]
    assert nearest("LLAMA", ["whisper", "llama"], 1) == ["llama"]
