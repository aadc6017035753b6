"""Reading prompts in pieces, between the decode steps of those who already run.

One piece is at most `chunk` tokens, so a long prompt delays running streams by one piece at a time. The
prompt with the fewest tokens left is read first; one that has been passed over too often comes first
whatever its length, so that short requests are quick and long ones are not starved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import mlx.core as mx

from turbospark_cli.runtime.engine.sequence import Sequence
from turbospark_cli.runtime.engine.text_model import TextModel

_PATIENCE: Final = 8  # times a prompt may be passed over


@dataclass(slots=True)
class Reading:
    """A prompt being read: `done` of its tokens are in `caches`."""

    sequence: Sequence
    caches: list[Any]
    done: int = 0
    passed_over: int = 0
    logits: mx.array | None = field(default=None)  # (1, vocab) once the whole prompt is read

    @property
    def left(self) -> int:
        return len(self.sequence.prompt.ids) - self.done


class Prefill:
    """The prompts that wait to be read or are being read."""

    def __init__(self, model: TextModel, chunk: int) -> None:
        self._model = model
        self._chunk = chunk
        self._readings: list[Reading] = []

    def __len__(self) -> int:
        return len(self._readings)

    def add(self, sequence: Sequence) -> None:
        self._readings.append(Reading(sequence, self._model.new_cache()))

    def remove(self, sequence_id: int) -> Sequence | None:
        """Forget a sequence, wherever its prompt stands."""
        for reading in self._readings:
            if reading.sequence.id == sequence_id:
                self._readings.remove(reading)
                return reading.sequence
        return None

    def advance(self, room: int) -> Iterator[Reading | tuple[Sequence, Exception]]:
        """Read up to one chunk of tokens; yields each reading that is complete, at most `room` of them.

        A prompt whose reading raises is given back with its exception and is not read any further.
        """
        tokens = self._chunk
        while self._readings and tokens > 0 and room > 0:
            reading = self._next()
            count = min(tokens, reading.left)
            tokens -= count
            try:
                self._read(reading, count)
            except Exception as error:  # noqa: BLE001 - one sequence's fault must not reach its neighbours
                self._readings.remove(reading)
                yield reading.sequence, error
                continue
            if reading.logits is not None:
                self._readings.remove(reading)
                room -= 1
                yield reading

    def _next(self) -> Reading:
        chosen = min(self._readings, key=lambda r: (r.passed_over < _PATIENCE, r.left))
        for reading in self._readings:
            reading.passed_over += 1
        chosen.passed_over = 0
        return chosen

    def _read(self, reading: Reading, count: int) -> None:
        ids = reading.sequence.prompt.ids[reading.done : reading.done + count]
        if count == reading.left:
            reading.logits = self._model.read_last(ids, reading.caches)
            mx.eval(reading.logits)
        else:
            self._model.read(ids, reading.caches)
        reading.done += count
