from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turbospark_cli.serve import command, startup
from turbospark_cli.settings import Settings

Run = Callable[..., int]


class Called:
    """What `startup.run` was asked for."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.names: list[str] = []
        self.script: startup.Script | None = None

    def __call__(
        self, settings: Settings, names: list[str], script: startup.Script | None, *, ready_json: bool
    ) -> None:
        self.settings, self.names, self.script = settings, names, script


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Called:
    monkeypatch.setenv("TURBOSPARK_HOME", str(tmp_path))
    recorder = Called()
    monkeypatch.setattr(startup, "run", recorder)
    return recorder


@pytest.fixture
def server_main(monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [command.SERVER_PROGRAM, *arguments])
        with pytest.raises(SystemExit) as caught:
            command.server_main()
        return int(str(caught.value.code))

    return run


def test_the_positional_form_is_the_scripted_server(
    called: Called, server_main: Run, tokenizer_folder: Path
) -> None:
    assert server_main(str(tokenizer_folder), "9001") == 0
    assert called.script == startup.Script(tokenizer_folder, None)
    assert called.settings is not None
    assert called.settings.port == 9001
    assert called.settings.bind == "loopback"
    assert called.names == []
    assert server_main(str(tokenizer_folder)) == 0
    assert called.settings.port == 8080


def test_otherwise_it_takes_the_flags_of_serve(called: Called, server_main: Run) -> None:
    assert server_main("--model", "a", "--model", "b", "--port", "0", "--max-queue-depth", "3") == 0
    assert called.names == ["a", "b"]
    assert called.script is None
    assert called.settings is not None
    assert (called.settings.port, called.settings.max_queue_depth) == (0, 3)


def test_the_scripted_server_takes_no_key(
    called: Called, server_main: Run, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server_main(str(tokenizer_folder), "--api-key", "x" * 20) == 2
    monkeypatch.setenv("TURBOSPARK_API_KEY", "from-the-environment")
    assert server_main(str(tokenizer_folder)) == 0
    assert called.settings is not None
    assert called.settings.key() is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("DIR", "80x80"),
        ("DIR", "1", "2"),
        ("DIR", "--scripted"),
        ("/nowhere/at/all",),
        ("DIR", "--script", "/nowhere/script.json"),
        ("DIR", "--bind", "127.0.0.1"),
        ("--scripted",),
        ("--tokenizer", "DIR"),
        ("--scripted", "--tokenizer", "DIR", "--model", "m"),
        ("--no-such-flag",),
        ("--port", "70000"),
        ("--pool-size", "2"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    called: Called,
    server_main: Run,
    tokenizer_folder: Path,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert server_main(*(each.replace("DIR", str(tokenizer_folder)) for each in arguments)) == 2
    assert called.settings is None
    assert capsys.readouterr().err.startswith("error: ")


def test_a_model_that_cannot_be_loaded_ends_the_server(start_scripted: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"unknown": 1}]')
    with pytest.raises(AssertionError) as caught:
        start_scripted("--script", str(script))
    assert "error: " in str(caught.value)
    assert "script.json" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_the_module_loads_nothing_heavy() -> None:
    code = (
        "import sys, turbospark_cli.serve.command as c;"
        "heavy = {'mlx', 'numpy', 'falcon', 'granian', 'uvloop', 'msgspec', 'rich', 'prometheus_client'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
