"""Sound of any sample rate to the rate that models listen at, as a stream and sample for sample in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from turbospark_cli.audio.transcript import SAMPLE_RATE

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound


def resampled(blocks: Iterable[Sound], rate: int) -> Iterator[Sound]:
    """`blocks` of mono sound at `rate` Hz, at SAMPLE_RATE; the filter's delay is taken off, its tail kept.

    What is not a number becomes silence, and what is beyond full scale is clipped: one such sample in
    a float file would otherwise silence everything around it.
    """
    import numpy as np
    import soxr

    if rate == SAMPLE_RATE:
        for block in blocks:
            yield np.clip(np.nan_to_num(block, copy=False), -1.0, 1.0)
        return
    stream = soxr.ResampleStream(rate, SAMPLE_RATE, num_channels=1, dtype="float32")
    for block in blocks:
        finite = np.clip(np.nan_to_num(block, copy=False), -1.0, 1.0)
        if len(chunk := stream.resample_chunk(finite)):
            yield chunk
    if len(chunk := stream.resample_chunk(np.empty(0, np.float32), last=True)):
        yield chunk
