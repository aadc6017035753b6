"""The text engine: a continuous batch over our own scheduler, on mlx-lm's models.

DESIGN. `step` does one round: read up to one chunk of waiting prompts, let what is complete join, launch the
next token of every row, and only then look at the tokens of the round before. The device computes while
Python handles text, at the price that a row which turns out to have ended was given one token too many;
that token is dropped. Rows that reach their budget are known beforehand and cost nothing.

Guarantees: events of one sequence come in order and end with `Finished` or `Failed`; an aborted sequence is
out of the batch before the next token is launched; what a sequence generates does not depend on its
neighbours, up to rounding. One thread calls everything here except `prepare`.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import mlx.core as mx

from turbospark_cli.runtime.channel import EngineInfo
from turbospark_cli.runtime.engine import loader, logprobs, recommended, sampling
from turbospark_cli.runtime.engine.batch import Batch
from turbospark_cli.runtime.engine.device import Device
from turbospark_cli.runtime.engine.prefill import Prefill, Reading
from turbospark_cli.runtime.engine.prompts import PromptReader
from turbospark_cli.runtime.engine.sequence import Prompt, Sequence
from turbospark_cli.runtime.engine.text_model import TextModel
from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.events import Event, Failed, Started
from turbospark_cli.runtime.requests import GenerationRequest

_DEFAULT_CONTEXT: Final = 4096  # for a config.json that does not say
_log = logging.getLogger(__name__)

Events = list[tuple[int, Event]]


@dataclass(slots=True)
class _Row:
    """A running sequence; `launched` counts the tokens that have been launched for it."""

    sequence: Sequence
    sampler: sampling.Sampler
    launched: int = 0


@dataclass(frozen=True, slots=True)
class _Launched:
    """The tokens of one round, maybe still being computed: one per row."""

    rows: tuple[_Row, ...]
    tokens: mx.array  # (rows,)
    logprobs: tuple[logprobs.PendingLogprobs | None, ...]


_NOTHING: Final = _Launched((), mx.zeros((0,), dtype=mx.int32), ())


class TextEngine:
    """Generates text for many sequences at once."""

    def __init__(self, folder: Path, device: Device, max_batch: int) -> None:
        """Load the install in `folder`. Raises CorruptInstall, InvalidRequest or NotEnoughMemory."""
        config = loader.read_json(folder / "config.json")
        model = loader.load(folder, config, device)
        self._tokenizer = Tokenizer(folder)
        self._recommended = recommended.read(folder)
        self._model = TextModel(model, device)
        self._device = device
        self._max_batch = max_batch if self._model.batchable else 1
        context = _context_length(config)
        self._prompts = PromptReader(self._tokenizer, context, self._model.vocab_size)
        self._waiting: deque[Sequence] = deque()
        self._prefill = Prefill(self._model, device.prefill_chunk)
        self._batch = Batch(self._model)
        self._launched = _NOTHING
        self.info = EngineInfo(
            context_length=context,
            vocab_size=self._model.vocab_size,
            device=device.kind,
            detail=device.detail,
            weights_bytes=loader.weights_bytes(model),
        )

    @property
    def idle(self) -> bool:
        """Nothing to do until the next `start`."""
        return not (self._waiting or len(self._prefill) or self._launched.rows)

    @property
    def pause(self) -> float:
        """A model never waits."""
        return 0.0

    def prepare(self, request: GenerationRequest) -> Prompt:
        """Render, tokenize and check; from any thread. Raises InvalidRequest or ContextLengthExceeded."""
        return self._prompts.read(request)

    def start(self, sequence_id: int, request: GenerationRequest, prompt: Prompt) -> None:
        """Let a prepared request run."""
        self._waiting.append(Sequence(sequence_id, request, prompt, self._tokenizer))

    def abort(self, sequence_id: int) -> None:
        """Forget a sequence; no event of it follows. Unknown ids are ignored."""
        for sequence in self._waiting:
            if sequence.id == sequence_id:
                self._waiting.remove(sequence)
                return
        if self._prefill.remove(sequence_id) is None:
            for row in self._launched.rows:
                if row.sequence.id == sequence_id:
                    row.sequence.finished = True

    def step(self) -> Events:
        """One round for everybody; the events of all sequences, in order."""
        events: Events = []
        joining = self._read_prompts(events)
        # Taken now: a row that only waits for its last token to be looked at leaves `_launched` on the way.
        concerned = [row.sequence for row in self._launched.rows] + [r.sequence for r in joining]
        try:
            before = self._regroup(joining)
            self._launch(before)
            self._collect(before, events)
        except Exception as error:  # noqa: BLE001 - whatever MLX raises ends this round's sequences, not the engine
            self._fail(concerned, error, events)
        return events

    def _read_prompts(self, events: Events) -> list[Reading]:
        """Take in waiting sequences while there is room and read one chunk of prompts."""
        running = sum(not row.sequence.finished for row in self._launched.rows)
        while self._waiting and running + len(self._prefill) < self._max_batch:
            sequence = self._waiting.popleft()
            self._prefill.add(sequence)
            events.append((sequence.id, Started(len(sequence.prompt.ids))))
        joining: list[Reading] = []
        for result in self._prefill.advance(self._max_batch - running):
            if isinstance(result, Reading):
                joining.append(result)
            else:
                events.append((result[0].id, _failure(result[1])))
        return joining

    def _regroup(self, joining: list[Reading]) -> _Launched:
        """Bring the batch to those who get another token; returns the tokens nobody has looked at yet.

        The result holds rows that are only waiting for their last token to be looked at, after the rows
        that go on, which come first and in the batch's order.
        """
        launched = self._launched
        first = [self._first_token(reading) for reading in joining]
        rows = [*launched.rows, *(row for part in first for row in part.rows)]
        tokens = mx.concatenate([launched.tokens, *(part.tokens for part in first)])
        figures = [*launched.logprobs, *(figure for part in first for figure in part.logprobs)]
        in_batch = len(launched.rows)
        keep = [i for i, row in enumerate(launched.rows) if _goes_on(row)]
        fresh = [i for i, row in enumerate(rows[in_batch:]) if _goes_on(row)]
        if keep == list(range(self._batch.size)) and not fresh:
            places = keep
        else:
            caches = [(joining[i].caches, joining[i].done) for i in fresh]
            order = self._batch.regroup(keep, caches)
            candidates = keep + [in_batch + i for i in fresh]
            places = [candidates[i] for i in order]
        ending = [i for i, row in enumerate(rows) if i not in set(places) and not row.sequence.finished]
        if places + ending == list(range(len(rows))):
            return _Launched(tuple(rows), tokens, tuple(figures))
        order = places + ending
        if not order:
            return _NOTHING
        return _Launched(
            tuple(rows[i] for i in order), tokens[mx.array(order)], tuple(figures[i] for i in order)
        )

    def _first_token(self, reading: Reading) -> _Launched:
        """Choose the token that follows a prompt."""
        sequence = reading.sequence
        wanted = recommended.complete(sequence.request.sampling, self._recommended)
        sampler = sampling.Sampler(wanted, sequence.seed, sequence.prompt.ids, self._model.vocab_size)
        return self._choose(cast("mx.array", reading.logits), (_Row(sequence, sampler),))

    def _choose(self, logits: mx.array, rows: tuple[_Row, ...]) -> _Launched:
        choice = sampling.choose(logits, [row.sampler for row in rows], full_sort=self._device.full_sort)
        figures: list[logprobs.PendingLogprobs | None] = []
        for i, row in enumerate(rows):
            row.launched += 1
            top = row.sequence.request.top_logprobs
            figures.append(
                None
                if top is None
                else logprobs.pending(choice.logits[i : i + 1], choice.tokens[i : i + 1], top)
            )
        return _Launched(rows, choice.tokens, tuple(figures))

    def _launch(self, before: _Launched) -> None:
        """Start computing the next token of every row in the batch."""
        size = self._batch.size
        if not size:
            self._launched = _NOTHING
            return
        logits = self._batch.decode(before.tokens[:size])
        self._launched = self._choose(logits, before.rows[:size])
        figures = [array for item in self._launched.logprobs if item is not None for array in item.arrays()]
        mx.async_eval(self._launched.tokens, *figures)  # type: ignore[no-untyped-call]

    def _collect(self, launched: _Launched, events: Events) -> None:
        """Look at the tokens of the round before and turn them into events."""
        if not launched.rows:
            return
        ids: list[int] = launched.tokens.tolist()  # type: ignore[assignment]
        for row, token_id, figure in zip(launched.rows, ids, launched.logprobs, strict=True):
            logprob = figure.read(token_id, self._tokenizer) if figure is not None else None
            events.extend((row.sequence.id, event) for event in row.sequence.accept(token_id, logprob))

    def _fail(self, sequences: list[Sequence], error: Exception, events: Events) -> None:
        """A fault in the shared round ends everyone in it; prompts that wait are not concerned."""
        for sequence in sequences:
            if not sequence.finished:
                sequence.finished = True
                events.append((sequence.id, _failure(error)))
        self._launched = _NOTHING
        self._batch = Batch(self._model)


def _goes_on(row: _Row) -> bool:
    return not row.sequence.finished and row.launched < row.sequence.prompt.budget


def _failure(error: Exception) -> Failed:
    _log.error("a sequence failed: %s", type(error).__name__)
    return Failed("internal_error", "The engine met an error while generating; try again.")


def _context_length(config: dict[str, object]) -> int:
    """Tokens, from whichever key this family uses; wrappers keep it in `text_config`."""
    inner = config.get("text_config")
    for source in (config, inner if isinstance(inner, dict) else {}):
        for key in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "n_ctx"):
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return value
    return _DEFAULT_CONTEXT
