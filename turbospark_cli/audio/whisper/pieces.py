"""The tokens of one window cut into pieces at its timestamps, and where the next window begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from turbospark_cli.audio.whisper.mel import FRAMES_PER_SECOND
from turbospark_cli.audio.whisper.vocabulary import TIME_STEP, Vocabulary

_FRAMES_PER_STEP = round(TIME_STEP * FRAMES_PER_SECOND)


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment in the making; times in seconds of its window."""

    start: float
    end: float
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of a window, the frames to go on by, and whether its last time ends the window's speech."""

    pieces: tuple[Piece, ...]
    advance: int
    complete: bool


def cut(vocabulary: Vocabulary, tokens: Sequence[int], frames: int) -> Cut:
    """Cut `tokens` between the two times of each pair; `frames` is how much sound the window holds.

    Text after the last pair may have been broken off by the window's end: the next window begins there and
    says it again. One time at the very end means that nothing follows, and no pair at all that the window is
    one piece.
    """
    times = [vocabulary.is_time(token) for token in tokens]
    complete = times[-2:] == [False, True]
    ends = [place + 1 for place, pair in enumerate(pairwise(times)) if all(pair)]
    if not ends:
        last = next((token for token in reversed(tokens) if vocabulary.is_time(token)), 0)
        seconds = vocabulary.seconds(last) if last > vocabulary.first_time else frames / FRAMES_PER_SECOND
        return Cut((Piece(0.0, seconds, tuple(tokens)),), frames, complete)
    if complete:
        ends.append(len(tokens))
    spans = [tuple(tokens[first:last]) for first, last in pairwise([0, *ends])]
    pieces = tuple(Piece(vocabulary.seconds(span[0]), vocabulary.seconds(span[-1]), span) for span in spans)
    spoken = (spans[-1][-1] - vocabulary.first_time) * _FRAMES_PER_STEP
    return Cut(pieces, frames if complete or spoken < 1 else min(spoken, frames), complete)
