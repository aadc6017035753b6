"""The load generator: so many streams at a time, or so many new ones a second, against one server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import httpx2

from turbospark_cli.commands.bench import cpu, prompts
from turbospark_cli.commands.bench.client import open_client, stream_chat
from turbospark_cli.commands.bench.statistics import Figures, Stream, summarize
from turbospark_cli.commands.bench.target import Target

_LONG_ANSWER: Final = 8  # tokens: what counts is how long its prompt keeps the others waiting
_LONG_NUMBER: Final = 1_000_000  # far from those of the level's own requests


@dataclass(frozen=True, slots=True)
class Plan:
    """What every level sends; lengths in tokens, times in seconds."""

    lengths: list[int]
    max_tokens: int
    requests: int | None = None  # None: two for each stream of the level
    long_tokens: int | None = None  # one more prompt of this length, sent when all streams are running
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class Level:
    """`width` streams at a time or, with `rate`, that many new ones a second whatever is running."""

    width: int
    rate: float | None = None

    @property
    def label(self) -> str:
        return f"{self.width} at a time" if self.rate is None else f"{self.rate:g} a second"


@dataclass(slots=True)
class _Run:
    """One level under way."""

    client: httpx2.AsyncClient
    target: Target
    plan: Plan
    numbers: Iterator[int]  # of the requests still to send
    seed: int
    begun: list[asyncio.Event]  # of the first requests: text has arrived, or will not
    streams: list[Stream] = field(default_factory=list)

    async def one(self, number: int) -> None:
        length = self.plan.lengths[number % len(self.plan.lengths)]
        begun = self.begun[number] if number < len(self.begun) else asyncio.Event()
        stream = self._new_stream()
        await self._send(length, self.plan.max_tokens, number, stream, begun)

    async def long(self, length: int) -> None:
        """Once the first requests are running, send one long prompt into the middle of them."""
        for begun in self.begun:
            await begun.wait()
        stream = self._new_stream(extra=True)
        await self._send(length, _LONG_ANSWER, _LONG_NUMBER, stream, asyncio.Event())

    def _new_stream(self, *, extra: bool = False) -> Stream:
        stream = Stream(sent=time.perf_counter(), extra=extra)
        self.streams.append(stream)
        return stream

    async def _send(
        self, length: int, max_tokens: int, number: int, stream: Stream, begun: asyncio.Event
    ) -> None:
        prompt = prompts.text(length, self.seed + number)
        await stream_chat(self.client, self.target, prompt, max_tokens, stream, begun)

    async def worker(self) -> None:
        for number in self.numbers:
            await self.one(number)


def measure(target: Target, plan: Plan, level: Level, seed: int) -> Figures:
    """Run one level; prompts of different seeds share no beginning."""
    before = None if target.pid is None else cpu.tree_seconds(target.pid)
    started = time.perf_counter()
    streams = asyncio.run(_run(target, plan, level, seed))
    wall = time.perf_counter() - started
    figures = summarize(streams, level.width, wall)
    if target.pid is not None and before is not None:
        figures["server_cpu_s"] = cpu.tree_seconds(target.pid) - before
    figures["error"] = next((stream.error for stream in streams if stream.error), None)
    figures["long_ttft_ms"] = next((s.first * 1000 for s in streams if s.extra and s.good), None)
    return figures


async def _run(target: Target, plan: Plan, level: Level, seed: int) -> list[Stream]:
    count = plan.requests or 2 * level.width
    async with open_client(level.width, plan.timeout) as client:
        begun = [asyncio.Event() for _ in range(min(level.width, count))]
        run = _Run(client, target, plan, iter(range(count)), seed, begun)
        async with asyncio.TaskGroup() as group:
            if plan.long_tokens is not None:
                group.create_task(run.long(plan.long_tokens))
            if level.rate is not None:
                group.create_task(_arrivals(run, level.rate))
            else:
                for _ in range(level.width):
                    group.create_task(run.worker())
    return run.streams


async def _arrivals(run: _Run, rate: float) -> None:
    """Poisson arrivals: the load of many clients that do not know of each other."""
    rng = random.Random(run.seed)
    async with asyncio.TaskGroup() as group:
        for number in run.numbers:
            group.create_task(run.one(number))
            await asyncio.sleep(rng.expovariate(rate))
