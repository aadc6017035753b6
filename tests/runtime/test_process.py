"""One engine process: what it is given, what is kept of its output, how it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.runtime.harness import DEADLINE, runs, until
from turbospark_cli.runtime.process import EngineProcess, describe_exit

Spawn = Callable[[str], Awaitable[EngineProcess]]


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    """Starts processes that run the given lines of Python."""
    started: list[EngineProcess] = []

    async def start(code: str) -> EngineProcess:
        process = await EngineProcess.spawn((sys.executable, "-c", code))
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()
        await process.wait(DEADLINE)
        process.socket.close()


async def test_it_gets_the_other_end_of_the_socket(spawn: Spawn) -> None:
    process = await spawn("import socket, sys; socket.socket(fileno=int(sys.argv[2])).sendall(b'hello')")
    process.socket.settimeout(DEADLINE)
    assert process.socket.recv(10) == b"hello"
    assert await process.wait(DEADLINE) == 0


async def test_it_sees_the_server_hang_up(spawn: Spawn) -> None:
    code = "import socket, sys; sys.exit(len(socket.socket(fileno=int(sys.argv[2])).recv(1)) + 7)"
    process = await spawn(code)
    process.socket.close()
    assert await process.wait(DEADLINE) == 7


async def test_the_last_lines_of_both_outputs_are_kept(spawn: Spawn) -> None:
    code = "import sys\nfor n in range(100): print(n, file=sys.stderr, flush=True)\nprint('x' * 9999)"
    process = await spawn(code)
    assert await process.wait(DEADLINE) == 0
    lines = process.last_lines
    assert lines[-2:] == ["99", "x" * 500]
    assert len(lines) == 20


async def test_it_has_no_input_and_no_secrets(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("TURBOSPARK_API_KEY", "HF_TOKEN", "TURBOSPARK_TEST")
    for name in names:
        monkeypatch.setenv(name, "canary")
    code = f"import os, sys; print([sys.stdin.read(), *(n for n in {names} if n in os.environ)])"
    process = await spawn(code)
    assert await process.wait(DEADLINE) == 0
    assert process.last_lines == ["['', 'TURBOSPARK_TEST']"]


async def test_ctrl_c_in_the_terminal_is_not_for_it(spawn: Spawn) -> None:
    process = await spawn("import time; time.sleep(1000)")
    assert os.getsid(process.pid) == process.pid
    assert os.getsid(process.pid) != os.getsid(0)


async def test_kill_ends_its_children_too(spawn: Spawn) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)"
    )
    process = await spawn(code)
    await until(lambda: bool(process.last_lines))
    child = int(process.last_lines[0])
    assert runs(child)
    process.kill()
    assert await process.wait(DEADLINE) == -signal.SIGKILL
    await until(lambda: not runs(child))
    process.kill()  # once more does nothing


async def test_waiting_has_an_end(spawn: Spawn) -> None:
    process = await spawn("import time; time.sleep(1000)")
    assert await process.wait(0.01) is None


@pytest.mark.parametrize(
    ("code", "clause"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-signal.SIGKILL, "was killed by SIGKILL, perhaps for lack of memory"),
        (-250, "was killed by signal 250"),
    ],
)
def test_endings_in_words(code: int, clause: str) -> None:
    assert describe_exit(code) == clause
