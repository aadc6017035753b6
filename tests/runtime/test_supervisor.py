"""Deaths of engines in every form, and what everybody hears of them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.runtime.conftest import StartRuntime
from tests.runtime.harness import (
    DEADLINE,
    FAKE_ENGINE,
    FOREVER,
    SLOW,
    alive,
    attachment,
    engine_pid,
    only_instance,
    request,
    runs,
    send,
    until,
)
from turbospark_cli.errors import EngineUnavailable, TurbosparkError
from turbospark_cli.runtime.events import Failed, TextDelta
from turbospark_cli.runtime.generation import Place
from turbospark_cli.runtime.pulse import PulseLimits
from turbospark_cli.runtime.runtime import Attachment, Runtime
from turbospark_cli.runtime.supervisor import Policy, State

QUICK_PULSE = PulseLimits(interval=0.05, stalled_after=0.2, kill_after=0.6)


@pytest.mark.parametrize("run", range(3))
async def test_kill_9_during_eight_streams(start_runtime: StartRuntime, run: int) -> None:
    runtime = await start_runtime(slots=8)
    pid = engine_pid(runtime)
    streams = [send(runtime, request(tokens=FOREVER, interval=0.001)) for _ in range(8)]
    token = random.randint(1, 40)
    await until(lambda: min(len(stream.text.split()) for stream in streams) >= token)
    os.kill(pid, signal.SIGKILL)
    for stream in streams:
        await stream.done()
        (ending,) = stream.endings
        assert isinstance(ending, Failed)
        assert stream.events[-1] is ending
        assert ending.code == "engine_unavailable"
        assert ending.message == (
            "The engine ended unexpectedly while it was answering; a new one is being started."
        )
        assert ending.retry_after is not None
    assert runtime.models()[0].state == "restarting"
    assert (await send(runtime, request(tokens=2)).done()).text == "1 2 "
    assert engine_pid(runtime) != pid
    assert not alive(pid), "a zombie was left"
    (stats,) = runtime.stats()
    assert (stats.running, stats.waiting, stats.restarts) == (0, 0, 1)


async def test_everyone_hears_of_a_death(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    running = await send(runtime, request(tokens=FOREVER, hang_at=2)).at(Place.RUNNING)
    await until(lambda: bool(running.events))
    checking = await send(runtime).at(Place.CHECKING)
    os.kill(engine_pid(runtime), signal.SIGKILL)
    await until(lambda: runtime.models()[0].state == "restarting")
    late = send(runtime, request(tokens=1))
    assert isinstance((await checking.done()).error, EngineUnavailable)
    assert checking.error is not None
    assert checking.error.retry_after is not None
    assert len((await running.done()).endings) == 1
    assert (await late.done()).text == "1 "


async def test_a_death_reaches_the_queue(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    await send(runtime).at(Place.RUNNING)
    waiting = await send(runtime).at(Place.WAITING)
    os.kill(engine_pid(runtime), signal.SIGKILL)
    (ending,) = (await waiting.done()).endings
    assert isinstance(ending, Failed)
    assert "before this request was started" in ending.message
    assert ending.retry_after is not None


@pytest.mark.parametrize("fault", ["exit_at", "garbage_at"])
async def test_an_engine_that_ends_or_babbles(start_runtime: StartRuntime, fault: str) -> None:
    runtime = await start_runtime()
    switches: dict[str, Any] = {"tokens": FOREVER, "interval": SLOW, fault: 3}
    stream = await send(runtime, request(**switches)).done()
    assert [type(event) for event in stream.events[-1:]] == [Failed]
    assert isinstance(stream.events[-2], TextDelta), "what came before the fault is kept"
    assert (await send(runtime, request(tokens=1)).done()).text == "1 "


async def test_three_deaths_are_a_failure(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(policy=Policy(cooldown=3600))
    for _ in range(3):
        await until(lambda: runtime.models()[0].state == "ready")
        await send(runtime, request(exit_at=1, tokens=2)).done()
    await until(lambda: runtime.models()[0].state == "failed")
    reason = "The engine of fake ended 3 times within 60 s; the last one exited with code 3."
    assert runtime.models()[0].reason == reason
    assert (runtime.health().state, runtime.health().detail) == ("failed", reason)
    error = (await send(runtime).done()).error
    assert isinstance(error, EngineUnavailable)
    assert (error.message, error.retry_after) == (reason, 60)
    # An explicit load tries again.
    runtime.load("fake")
    await until(lambda: runtime.models()[0].state != "failed")
    assert (await send(runtime, request(tokens=1)).done()).text == "1 "
    assert runtime.models()[0].reason is None


async def test_a_failed_model_is_tried_again(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(policy=Policy(deaths=1, cooldown=0.2))
    await send(runtime, request(exit_at=1)).done()
    await until(lambda: runtime.models()[0].state == "failed")
    await until(lambda: runtime.models()[0].state == "ready")
    assert (await send(runtime, request(tokens=1)).done()).text == "1 "


async def test_deaths_far_apart_are_no_failure(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(policy=Policy(deaths=2, window=0.0))
    for _ in range(3):
        await send(runtime, request(exit_at=1)).done()
        assert (await send(runtime, request(tokens=1)).done()).text == "1 "


async def test_a_crash_while_loading(start_runtime: StartRuntime, tmp_path: Path) -> None:
    runtime = await start_runtime(lives=str(tmp_path / "lives"), crash_loads=2)
    assert runtime.models()[0].state == "ready"
    assert runtime.stats()[0].restarts == 2
    assert (await send(runtime, request(tokens=1)).done()).text == "1 "


async def test_crashing_at_every_load(
    start_runtime: StartRuntime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    runtime = await start_runtime(wait=False, lives=str(tmp_path / "lives"), crash_loads=99)
    parked = send(runtime)
    (card,) = await runtime.settled()
    assert card.state == "failed"
    assert card.reason is not None
    assert "was killed by SIGSEGV" in card.reason
    assert (tmp_path / "lives").read_text() == "xxx"
    assert isinstance((await parked.done()).error, EngineUnavailable)
    assert "fake engine: crashing while loading" in caplog.text


async def test_a_refusal_to_load_is_final(start_runtime: StartRuntime, tmp_path: Path) -> None:
    runtime = await start_runtime(
        wait=False, load_failed="The weights are damaged.", policy=Policy(cooldown=0)
    )
    parked = send(runtime)
    (card,) = await runtime.settled()
    assert (card.state, card.reason) == (
        "failed",
        "The model fake cannot be loaded: The weights are damaged.",
    )
    error = (await parked.done()).error
    assert isinstance(error, EngineUnavailable)
    assert error.message == card.reason
    assert runtime.stats()[0].restarts == 0


async def test_an_engine_that_cannot_be_started() -> None:
    runtime = Runtime([attachment()], command=("/nonexistent/python",))
    await runtime.start()
    (card,) = await runtime.settled()
    assert card.state == "failed"
    assert card.reason is not None
    assert "could not be started (No such file or directory)" in card.reason
    await runtime.stop()


async def test_a_stopped_process_stalls_and_recovers(start_runtime: StartRuntime) -> None:
    pulse = PulseLimits(interval=0.05, stalled_after=0.2, kill_after=3600)
    runtime = await start_runtime(policy=Policy(pulse=pulse))
    pid = engine_pid(runtime)
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: runtime.health().state == "stalled")
    late = send(runtime, request(tokens=1))
    os.kill(pid, signal.SIGCONT)
    await until(lambda: runtime.health().state == "ok")
    assert (await late.done()).text == "1 "
    assert engine_pid(runtime) == pid


async def test_a_silent_engine_is_replaced(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(policy=Policy(pulse=QUICK_PULSE))
    pid = engine_pid(runtime)
    stream = await send(runtime).at(Place.RUNNING)
    os.kill(pid, signal.SIGSTOP)
    (ending,) = (await stream.done()).endings
    assert isinstance(ending, Failed)
    assert (await send(runtime, request(tokens=1)).done()).text == "1 "
    assert not alive(pid)


async def test_an_engine_stuck_in_one_step_is_replaced(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(policy=Policy(pulse=QUICK_PULSE))
    stream = await send(runtime, request(tokens=FOREVER, interval=SLOW, hang_at=3)).done()
    assert len(stream.endings) == 1
    assert runtime.models()[0].state in ("restarting", "ready")


async def test_our_own_sleep_is_not_the_engines(start_runtime: StartRuntime) -> None:
    pulse = PulseLimits(interval=0.05, stalled_after=0.2, kill_after=1.0)
    runtime = await start_runtime(policy=Policy(pulse=pulse))
    pid = engine_pid(runtime)
    stream = await send(runtime, request(tokens=FOREVER, interval=3600)).at(Place.RUNNING)
    await until(lambda: bool(stream.events))
    for _ in range(2):
        time.sleep(pulse.kill_after * 1.5)  # noqa: ASYNC251 - the whole server is suspended
        await asyncio.sleep(pulse.interval * 2)
    assert engine_pid(runtime) == pid
    assert runtime.stats()[0].restarts == 0
    await stream.leave()


async def test_stop_ends_everything(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(slots=1)
    pid = engine_pid(runtime)
    running = await send(runtime).at(Place.RUNNING)
    await until(lambda: bool(running.events))
    waiting = await send(runtime).at(Place.WAITING)
    await runtime.stop()
    assert not alive(pid)
    for client in (running, waiting):
        (ending,) = (await client.done()).endings
        assert ending == Failed("engine_unavailable", "The server is stopping.")
    assert isinstance((await send(runtime).done()).error, EngineUnavailable)
    assert only_instance(runtime).supervisor.restarts == 0
    await runtime.stop()


async def test_stop_ends_an_engine_that_does_not_listen(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(policy=Policy(stop_grace=0.1))
    pid = engine_pid(runtime)
    os.kill(pid, signal.SIGSTOP)
    await runtime.stop()
    assert not alive(pid)


async def test_stop_while_loading(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(wait=False, load_seconds=3600, policy=Policy(stop_grace=0.1))
    parked = await send(runtime).at(Place.PARKED)
    await runtime.stop()
    assert isinstance((await parked.done()).error, EngineUnavailable)
    assert only_instance(runtime).supervisor.process is None


async def test_stop_while_failed(start_runtime: StartRuntime) -> None:
    runtime = await start_runtime(load_failed="no", policy=Policy(cooldown=3600))
    assert [card.state for card in await runtime.settled()] == ["failed"]
    await runtime.stop()
    assert only_instance(runtime).supervisor.state is State.STOPPING
    assert only_instance(runtime).supervisor.process is None


SERVER = textwrap.dedent("""
    import asyncio, sys
    from turbospark_cli.runtime.channel import Load
    from turbospark_cli.runtime.runtime import Attachment, Runtime

    async def main():
        runtime = Runtime([Attachment(Load("scripted", "fake", ""))], command=sys.argv[1:])
        await runtime.start()
        await runtime.settled()
        attached, = runtime._registry.models
        print(attached.instance.supervisor.process.pid, flush=True)
        await asyncio.sleep(3600)

    asyncio.run(main())
""")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_no_engine_outlives_its_server(how: signal.Signals) -> None:
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
        [sys.executable, "-P", "-c", SERVER, *FAKE_ENGINE], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(await asyncio.to_thread(server.stdout.readline))
        assert runs(pid)
        server.send_signal(how)
        await asyncio.to_thread(server.wait, DEADLINE)
        await until(lambda: not runs(pid))


async def test_two_models_live_apart() -> None:
    other = msgspec.structs.replace(attachment().load, model_id="other")
    runtime = Runtime([attachment(), Attachment(other)], command=FAKE_ENGINE)
    await runtime.start()
    try:
        await runtime.settled()
        attached = {model.id: model.instance for model in runtime._registry.models}
        stream = await send(runtime, request("other", tokens=FOREVER, interval=SLOW)).at(Place.RUNNING)
        process = attached["fake"].supervisor.process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: runtime.models()[0].state == "restarting")
        seen = len(stream.events)
        await until(lambda: len(stream.events) > seen + 2)
        assert not stream.endings
        with pytest.raises(TurbosparkError, match="not attached"):
            runtime.generate(request("third"))
        await stream.leave()
    finally:
        await runtime.stop()
