"""The runtime over the project's own engine process, with its scripted backend and a real tokenizer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.runtime.harness import only_instance, send, until
from turbospark_cli.errors import ContextLengthExceeded, ModelNotFound
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.events import Failed, Finished, Started
from turbospark_cli.runtime.generation import Place
from turbospark_cli.runtime.instance import Limits
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, Message
from turbospark_cli.runtime.runtime import Attachment, Runtime

LONG_STORY = " ".join(["word"] * 200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of single bytes, and a script."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={byte: number for number, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    script = [
        {"match": "long", "text": LONG_STORY, "interval": 0.005},
        {"match": "broken", "text": "Well,", "error": "The script says so."},
        {"text": "It is sunny."},
    ]
    (tmp_path / "script.json").write_text(json.dumps(script))
    return tmp_path


@pytest.fixture
async def runtime(folder: Path) -> AsyncIterator[Runtime]:
    load = channel.Load("scripted", "sunny", str(folder), str(folder / "script.json"), max_batch=2)
    runtime = Runtime([Attachment(load, ("weather",), 17)], limits=Limits(max_queue_depth=8))
    await runtime.start()
    yield runtime
    await runtime.stop()


def ask(text: str, max_tokens: int | None = None) -> GenerationRequest:
    return GenerationRequest("sunny", ChatPrompt((Message("user", text),)), max_tokens=max_tokens)


async def test_an_answer(runtime: Runtime) -> None:
    client = await send(runtime, ask("How is the weather?")).done()
    assert client.text == "It is sunny."
    assert isinstance(client.events[0], Started)
    (ending,) = client.endings
    assert isinstance(ending, Finished)
    assert (ending.reason, ending.usage.completion_tokens) == ("stop", 12)
    assert ending.usage.prompt_tokens == client.generation.prompt_tokens == len("How is the weather?")


async def test_the_budget_is_the_clients(runtime: Runtime) -> None:
    client = await send(runtime, ask("How?", max_tokens=5)).done()
    assert client.text == "It is"
    (ending,) = client.endings
    assert isinstance(ending, Finished)
    assert ending.reason == "length"


async def test_an_error_after_text(runtime: Runtime) -> None:
    client = await send(runtime, ask("broken")).done()
    assert client.text == "Well,"
    (ending,) = client.endings
    assert isinstance(ending, Failed)
    assert ending.message == "The script says so."


async def test_a_prompt_that_does_not_fit(runtime: Runtime) -> None:
    assert isinstance((await send(runtime, ask("x" * 40_000)).done()).error, ContextLengthExceeded)


async def test_slots_queue_and_checks(runtime: Runtime) -> None:
    await runtime.settled()
    running = [await send(runtime, ask("long")).at(Place.RUNNING) for _ in range(2)]
    waiting = [await send(runtime, ask("hello")).at(Place.WAITING) for _ in range(3)]
    assert isinstance((await send(runtime, ask("x" * 40_000)).done()).error, ContextLengthExceeded)
    await running[0].leave()
    for client in waiting:
        assert (await client.done()).text == "It is sunny."
    assert (await running[1].done()).text == LONG_STORY
    (stats,) = runtime.stats()
    assert (stats.running, stats.waiting) == (0, 0)


async def test_a_killed_engine(runtime: Runtime) -> None:
    await runtime.settled()
    streams = [await send(runtime, ask("long")).at(Place.RUNNING) for _ in range(2)]
    await until(lambda: all(stream.text for stream in streams))
    process = only_instance(runtime).supervisor.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    for stream in streams:
        (ending,) = (await stream.done()).endings
        assert isinstance(ending, Failed)
    assert (await send(runtime, ask("again")).done()).text == "It is sunny."


async def test_many_at_once(runtime: Runtime) -> None:
    await runtime.settled()
    for _ in range(20):
        clients = [send(runtime, ask("hello")) for _ in range(10)]
        assert {(await client.done()).text for client in clients} == {"It is sunny."}


async def test_lives_leave_nothing_behind(runtime: Runtime) -> None:
    await runtime.settled()

    async def open_descriptors() -> int:
        return len(await asyncio.to_thread(os.listdir, "/dev/fd"))

    before = await open_descriptors()
    for _ in range(2):
        process = only_instance(runtime).supervisor.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: runtime.models()[0].state == "restarting")
        await runtime.settled()
    assert await open_descriptors() == before


async def test_the_card(runtime: Runtime) -> None:
    assert runtime.models()[0].state == "loading"
    assert runtime.health().state == "loading"
    (card,) = await runtime.settled()
    assert (card.id, card.aliases, card.created, card.state) == ("sunny", ("weather",), 17, "ready")
    assert card.info is not None
    assert card.info.vocab_size == 256
    assert runtime.health().state == "ok"
    assert runtime.find("weather:latest") == runtime.resolve("anything") == card
    with pytest.raises(ModelNotFound):
        runtime.find("anything")


async def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    runtime = Runtime([Attachment(channel.Load("scripted", "empty", str(tmp_path)))])
    await runtime.start()
    (card,) = await runtime.settled()
    assert card.state == "failed"
    assert card.reason is not None
    assert card.reason.startswith("The model empty cannot be loaded: ")
    assert runtime.health().state == "failed"
    await runtime.stop()
