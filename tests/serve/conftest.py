"""A real server for the tests of this folder: the script `turbospark-server` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SCRIPT = [
    {"match": "^count slowly", "text": "one two three four five six seven eight nine ten", "interval": 0.05},
    {"match": "^never", "text": "x", "delay": 600},
    {"match": "^wait a bit", "text": "waited", "delay": 0.4},
    {"match": "^fail now", "text": "", "error": "This was scripted to fail."},
    {"match": "^fail later", "text": "some text", "interval": 0.01, "error": "This was scripted to fail."},
    {"match": "^umlaut", "text": "Grüße, 世界 🙂"},
    {"match": "^empty", "text": ""},
]
DEADLINE_S = 30.0


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of single bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


class ServerProcess:
    """`turbospark-server` with the given flags, ready when this returns."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None) -> None:
        code = "from turbospark_cli.serve.command import server_main; server_main()"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TURBOSPARK_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**clean, **(env or {})},
        )
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors)
        self._reader.start()
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        if not self.ready_line:
            self.end()
            raise AssertionError("".join(self.errors))
        self.ready: dict[str, Any] = json.loads(self.ready_line)
        self.url: str = self.ready["url"]
        self.port = int(self.url.rpartition(":")[2])

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def end(self, number: int = signal.SIGINT) -> int:
        """Sends the signal, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit code, once it has ended."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code

    def connect(self) -> socket.socket:
        """A raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of `name` that have all of `labels`."""
        total = 0.0
        for line in httpx2.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith((f"{name} ", f"{name}{{")) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rpartition(" ")[2])
        return total


@pytest.fixture(scope="session")
def script_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return path


StartServer = Callable[..., ServerProcess]


@pytest.fixture(scope="session")
def start_server() -> Iterator[StartServer]:
    """Starts servers; those that still run at the end are ended."""
    started: list[ServerProcess] = []

    def start(*flags: str, env: dict[str, str] | None = None) -> ServerProcess:
        started.append(ServerProcess(*flags, env=env))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.end()


@pytest.fixture(scope="session")
def start_scripted(tokenizer_folder: Path, script_file: Path, start_server: StartServer) -> StartServer:
    """Starts scripted servers on free ports."""

    def start(*flags: str, env: dict[str, str] | None = None) -> ServerProcess:
        common = ("--scripted", "--tokenizer", str(tokenizer_folder), "--script", str(script_file))
        return start_server(*common, "--port", "0", "--json", *flags, env=env)

    return start


@pytest.fixture(scope="session")
def scripted(start_scripted: StartServer) -> ServerProcess:
    """One server that all tests share: they leave it as it was."""
    return start_scripted("--max-batch", "4", "--max-queue-depth", "2")


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Waits for a condition, generously."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.005)

    return wait
