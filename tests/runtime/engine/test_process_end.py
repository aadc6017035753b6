"""How an engine process ends: a load that is refused, a server that hangs up, bytes that are no messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.engine.families import FAMILIES
from tests.runtime.engine.process import DEADLINE, EngineProcess, engine, scripted
from tests.runtime.engine.tiny import config, write_install, write_tokenizer
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.channel import Load, Ping, Pong, Step, Submit
from turbospark_cli.runtime.requests import GenerationRequest, Sampling, TextPrompt, TokenPrompt


@pytest.fixture
def played(tmp_path: Path) -> Iterator[EngineProcess]:
    """A scripted engine that is ready and never answers."""
    write_tokenizer(tmp_path)
    (tmp_path / "script.json").write_text('[{"text": "x", "delay": 3600}]')
    with engine(scripted(tmp_path, tmp_path / "script.json")) as running:
        running.ready()
        yield running


@pytest.mark.parametrize(
    ("prepare", "code", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "corrupt_install", "config.json cannot be read"),
        (lambda f: (f / "config.json").write_text("{"), "corrupt_install", "config.json cannot be read"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "corrupt_install", "weights do not fit"),
        (
            lambda f: (f / "config.json").write_text(json.dumps(config("gpt9"))),
            "invalid_request",
            "'gpt9' is not supported",
        ),
        (
            lambda f: (f / "config.json").write_text(json.dumps(config("llama", model_file="x.py"))),
            "invalid_request",
            "never does",
        ),
        (lambda f: (f / "tokenizer.json").write_text("no"), "corrupt_install", "tokenizer.json"),
    ],
)
def test_a_damaged_install_is_told_and_the_process_ends(
    prepare: object, code: str, words: str, tmp_path: Path
) -> None:
    folder = write_install(tmp_path / "hidden", FAMILIES["llama-gqa"].config)
    prepare(folder)  # type: ignore[operator]
    with engine(Load("text", "tiny", str(folder))) as running:
        said = running.receive()
        assert isinstance(said, channel.LoadFailed)
        assert said.code == code
        assert words in said.message
        assert "hidden" not in said.message
        assert running.gone() == 0


def test_a_bad_script_is_told(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    for content in ('[{"match": "("}]', '{"text": 1}', '[{"txt": "x"}]', "nonsense"):
        (tmp_path / "s.json").write_text(content)
        with engine(scripted(tmp_path, tmp_path / "s.json")) as running:
            said = running.receive()
            assert isinstance(said, channel.LoadFailed)
            assert said.code == "usage"
    with engine(scripted(tmp_path, tmp_path / "none.json")) as running:
        assert isinstance(running.receive(), channel.LoadFailed)


def test_a_hang_up_before_anything_was_said() -> None:
    with engine(None) as running:
        running.socket.close()
        assert running.gone() == 0


def test_a_hang_up_while_idle(played: EngineProcess) -> None:
    played.socket.close()
    assert played.gone() == 0


def test_a_hang_up_while_it_waits_for_a_delay(played: EngineProcess) -> None:
    played.send(Submit(1, GenerationRequest("m", TextPrompt("x")), start=True))
    played.ping()
    played.socket.close()
    assert played.gone() == 0


def test_a_hang_up_in_the_middle_of_a_message(played: EngineProcess) -> None:
    played.socket.sendall(b"\x00\x00\x10\x00only a part")
    played.socket.close()
    assert played.gone() == 0


def test_a_hang_up_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    folder = write_install(tmp_path, FAMILIES["llama-gqa"].config)
    with engine(Load("text", "tiny", str(folder))) as running:
        running.ready()
        running.send(
            Submit(
                1, GenerationRequest("m", TokenPrompt((1, 2)), Sampling(), 2000, ignore_eos=True), start=True
            )
        )
        running.until(lambda m: isinstance(m, Step))
        running.socket.close()
        assert running.gone() == 0


def test_a_hang_up_while_it_loads(tmp_path: Path) -> None:
    """A load that never ends: its config is a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "config.json")
    held = os.open(tmp_path / "config.json", os.O_RDWR)
    try:
        with engine(Load("text", "tiny", str(tmp_path))) as running:
            running.socket.close()
            assert running.gone() == 0
    finally:
        os.close(held)


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02hi", b"GET / HTTP/1.1\r\n\r\n"])
def test_garbage_ends_the_process(played: EngineProcess, garbage: bytes) -> None:
    played.socket.sendall(garbage)
    assert played.gone() in {0, 1}


def test_a_first_message_that_is_no_load_ends_the_process() -> None:
    with engine(None) as running:
        running.send(Ping(1))
        assert running.gone() == 1


def test_ctrl_c_is_the_servers_to_handle(played: EngineProcess) -> None:
    played.process.send_signal(signal.SIGINT)
    assert played.ping() == [Pong(7)]


def test_an_engine_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL: the parent says no good-bye."""
    write_tokenizer(tmp_path)
    parent = (
        "import sys, pathlib\n"
        "from tests.runtime.engine.process import EngineProcess, scripted\n"
        f"running = EngineProcess(scripted(pathlib.Path({str(tmp_path)!r})))\n"
        "running.ready()\n"
        "print(running.process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        watch = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        process.kill()
        process.wait(DEADLINE)
    _wait_for_end(pid, watch)


def _wait_for_end(pid: int, watch: int | None) -> None:
    if watch is None:  # no process descriptors on this system
        for _ in range(int(DEADLINE * 100)):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            threading.Event().wait(0.01)
        pytest.fail("the engine outlived its parent")
    import select

    try:
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        assert poll.poll(DEADLINE * 1000), "the engine outlived its parent"
    finally:
        os.close(watch)
