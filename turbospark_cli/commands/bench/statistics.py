"""What a measured stream is, and the figures that a set of streams adds up to.

Offline runs and servers are measured by the same record, so that their figures mean the same.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Figures = dict[str, float | int | str | None]


@dataclass(slots=True)
class Stream:
    """One request as it was seen; times are `time.perf_counter()` seconds."""

    sent: float
    stamps: list[float] = field(default_factory=list)  # arrivals of text, in order
    tokens: int = 0  # generated: as the server counted them, else one for each arrival
    prompt_tokens: int | None = None
    finish: str | None = None
    error: str | None = None
    extra: bool = False  # the long prompt in the middle: not part of the level's own figures

    @property
    def good(self) -> bool:
        """Whether it ended as it should and said something."""
        return self.error is None and bool(self.stamps)

    @property
    def first(self) -> float:
        """Seconds from sending to the first text."""
        return self.stamps[0] - self.sent

    @property
    def rate(self) -> float | None:
        """Tokens a second after the first one; None for a stream of one arrival."""
        seconds = self.stamps[-1] - self.stamps[0]
        return (self.tokens - 1) / seconds if seconds > 0 else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` (0 to 1) of the values lie, interpolated; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Iterable[float | None]) -> float | None:
    """The median of those that are there."""
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def spread(values: Iterable[float | None]) -> float | None:
    """Half the range over the median: 0.1 reads "plus or minus 10 %". None for fewer than two values."""
    present = [value for value in values if value is not None]
    if len(present) < 2 or not (middle := statistics.median(present)):
        return None
    return (max(present) - min(present)) / 2 / middle


def gaps(stream: Stream) -> list[float]:
    """Seconds between arrivals."""
    return [later - earlier for earlier, later in zip(stream.stamps, stream.stamps[1:], strict=False)]


def decode_rate(streams: Sequence[Stream], width: int) -> float | None:
    """Tokens a second, all streams together, while at least `width` of them were decoding at once.

    The time before a stream's first text and after its last does not count, so prompts of any length may
    be mixed. None when `width` streams never decoded together.
    """
    windows = _busy_windows(streams, width)
    seconds = sum(end - start for start, end in windows)
    if seconds <= 0:
        return None
    tokens = 0.0
    for stream in streams:
        weight = stream.tokens / len(stream.stamps)
        inside = sum(any(start < stamp <= end for start, end in windows) for stamp in stream.stamps)
        tokens += weight * inside
    return tokens / seconds


def _busy_windows(streams: Sequence[Stream], width: int) -> list[tuple[float, float]]:
    """The spans of time in which at least `width` streams lie between their first and last text."""
    changes = sorted(
        (moment, step) for s in streams for moment, step in ((s.stamps[0], 1), (s.stamps[-1], -1))
    )
    windows: list[tuple[float, float]] = []
    active, opened = 0, 0.0
    for moment, step in changes:
        before, active = active, active + step
        if before < width <= active:
            opened = moment
        elif active < width <= before:
            windows.append((opened, moment))
    return windows


def summarize(streams: Sequence[Stream], width: int, wall: float) -> Figures:
    """The figures of one level: `width` streams at a time, `wall` seconds in all; times in milliseconds."""
    own = [stream for stream in streams if not stream.extra]
    good = [stream for stream in own if stream.good]
    first = [stream.first for stream in good]
    between = [gap for stream in good for gap in gaps(stream)]
    tokens = sum(stream.tokens for stream in good)
    return {
        "requests": len(streams),
        "errors": sum(not stream.good for stream in streams),
        "prompt_tokens": median(stream.prompt_tokens for stream in good),
        "tokens": tokens,
        "ttft_p50_ms": milliseconds(percentile(first, 0.5)),
        "ttft_p95_ms": milliseconds(percentile(first, 0.95)),
        "itl_p50_ms": milliseconds(percentile(between, 0.5)),
        "itl_p95_ms": milliseconds(percentile(between, 0.95)),
        "itl_p99_ms": milliseconds(percentile(between, 0.99)),
        "itl_max_ms": milliseconds(max(between, default=None)),
        "stream_tok_s": median(stream.rate for stream in good),
        "decode_tok_s": decode_rate(good, min(width, len(good))) if good else None,
        "total_tok_s": tokens / wall,
        "wall_s": wall,
    }


def milliseconds(seconds: float | None) -> float | None:
    """Seconds as milliseconds."""
    return None if seconds is None else seconds * 1000
