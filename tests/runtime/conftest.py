"""Fixtures for the runtime: it runs over the fake engine, and on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.runtime.harness import FAKE_ENGINE, attachment
from turbospark_cli.runtime.instance import Limits
from turbospark_cli.runtime.observer import Observer
from turbospark_cli.runtime.runtime import Runtime
from turbospark_cli.runtime.supervisor import Policy

StartRuntime = Callable[..., Awaitable[Runtime]]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Sockets, pipes and processes differ between the loops; what runs inside an engine uses neither."""
    if item.path.parent == Path(__file__).parent:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def start_runtime() -> AsyncIterator[StartRuntime]:
    """Starts runtimes over one fake engine; waits until it is ready unless `wait` is false; stops them."""
    running: list[Runtime] = []

    async def start(
        *,
        limits: Limits | None = None,
        policy: Policy | None = None,
        observer: Observer | None = None,
        wait: bool = True,
        **switches: Any,
    ) -> Runtime:
        runtime = Runtime(
            [attachment(**switches)],
            limits=limits or Limits(),
            policy=policy or Policy(),
            observer=observer,
            command=FAKE_ENGINE,
        )
        running.append(runtime)
        await runtime.start()
        if wait:
            await runtime.settled()
        return runtime

    yield start
    for runtime in running:
        await runtime.stop()
