"""The offline grid: a model in this process, read and written at each combination of sizes."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from turbospark_cli import console
from turbospark_cli.commands.bench.flags import OfflineFlags, sizes
from turbospark_cli.commands.bench.report import Report, markdown, middle, shown, warn_about
from turbospark_cli.commands.bench.statistics import Figures, Stream, decode_rate, milliseconds
from turbospark_cli.commands.hosted import find_install, generate, load_engine
from turbospark_cli.errors import UsageError
from turbospark_cli.runtime.engine.backend import Backend
from turbospark_cli.runtime.events import Finished, TextDelta
from turbospark_cli.runtime.requests import GenerationRequest, Sampling, TokenPrompt

_COLUMNS: Final = (
    "model",
    "prompt",
    "generate",
    "batch",
    "depth",
    "prompt_tok_s",
    "decode_tok_s",
    "ttft_ms",
    "wall_s",
    "cpu_s",
    "spread",
)
_FIRST_PLAIN_ID: Final = 100  # smaller ids are often control tokens


@dataclass(frozen=True, slots=True)
class Cell:
    """One row: `batch` sequences that each read `prompt` tokens after `depth` others and write `generate`."""

    batch: int
    depth: int
    prompt: int
    generate: int

    @property
    def headline(self) -> str:
        return "decode_tok_s" if self.generate > 1 else "prompt_tok_s"

    @property
    def label(self) -> str:
        return f"-p {self.prompt} -n {self.generate} -b {self.batch} -d {self.depth}"


def cells(flags: OfflineFlags) -> list[Cell]:
    """Every combination of the lists in `flags`. Raises UsageError when there is nothing to measure."""
    batches, depths = sizes("-b", flags.batch or "1", least=1), sizes("-d", flags.depth or "0")
    prompts, counts = sizes("-p", flags.prompt or "512"), sizes("-n", flags.generate or "128")
    grid = itertools.product(batches, depths, prompts, counts)
    found = [Cell(batch, depth, prompt, count) for batch, depth, prompt, count in grid if prompt + count]
    if not found:
        raise UsageError("There is nothing to measure: -p and -n are both 0.")
    return found


def run(models: Sequence[str], flags: OfflineFlags, rounds: int, report: Report) -> None:
    """Measure each model at each combination and write the figures."""
    if not models:
        raise UsageError("Name a model, or a server with --url.", hint="turbospark bench smollm2-135m")
    grid = cells(flags)
    rows = []
    for name in models:
        install = find_install(name, may_pull=not flags.no_pull)
        engine = load_engine(install, max_batch=max(cell.batch for cell in grid))
        console.note(f"{install.id}: {engine.info.detail}; {rounds} rounds after a warm-up")
        for cell in grid:
            figures = measure(engine, cell, rounds)
            warn_about(f"{install.id} {cell.label}", figures, cell.headline)
            record: Figures = {"model": install.id, "device": engine.info.detail, **figures}
            report.add(record)
            rows.append([shown(record[column]) for column in _COLUMNS])
    report.show(markdown(_COLUMNS, rows))
    report.finish()


def measure(engine: Backend, cell: Cell, rounds: int) -> Figures:
    """The medians of `rounds` rounds after one to warm up. Raises ContextLengthExceeded."""
    _round(engine, cell)
    figures = middle([_round(engine, cell) for _ in range(rounds)], cell.headline)
    return asdict(cell) | figures


def _round(engine: Backend, cell: Cell) -> Figures:
    """Reading and writing are measured by runs of their own, so that neither is part of the other."""
    wall, cpu = time.perf_counter(), time.process_time()
    reading = _reading_seconds(engine, cell) if cell.prompt else None
    writing = None
    if cell.generate > 1:
        streams = _run(engine, cell.batch, cell.depth + cell.prompt or 1, cell.generate)
        writing = decode_rate(streams, cell.batch)
    return {
        "prompt_tok_s": None if reading is None else cell.batch * cell.prompt / reading,
        "ttft_ms": milliseconds(reading),
        "decode_tok_s": writing,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }


def _reading_seconds(engine: Backend, cell: Cell) -> float:
    """Seconds to read the prompts; what lies before them (`depth`) is taken off by a run without them."""
    whole = _seconds(engine, cell.batch, cell.depth + cell.prompt)
    before = _seconds(engine, cell.batch, cell.depth) if cell.depth else 0.0
    return max(whole - before, 1e-9)


def _seconds(engine: Backend, batch: int, length: int) -> float:
    started = time.perf_counter()
    _run(engine, batch, length, 1)
    return time.perf_counter() - started


def _run(engine: Backend, batch: int, length: int, count: int) -> list[Stream]:
    """`batch` sequences of random prompts at once, each until it has written `count` tokens."""
    requests = [
        GenerationRequest(
            "bench", TokenPrompt(ids), Sampling(temperature=0.0), max_tokens=count, ignore_eos=True
        )
        for ids in _prompts(engine, batch, length)
    ]
    streams = [Stream(sent=time.perf_counter()) for _ in requests]
    for events in generate(engine, requests):
        now = time.perf_counter()
        for place, event in events:
            if isinstance(event, TextDelta):
                streams[place].stamps.append(now)
            elif isinstance(event, Finished):
                streams[place].tokens = event.usage.completion_tokens
    return [stream for stream in streams if stream.stamps]


def _prompts(engine: Backend, batch: int, length: int) -> Iterator[tuple[int, ...]]:
    """Random ids: every prompt is new, so that no cache can help."""
    rng = random.Random()
    width = engine.info.vocab_size
    lowest = min(_FIRST_PLAIN_ID, width - 1)
    for _ in range(batch):
        yield tuple(rng.randrange(lowest, width) for _ in range(length))
