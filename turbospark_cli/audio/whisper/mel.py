"""The log-mel spectrogram that Whisper hears, computed as the sound arrives.

DESIGN. Sound comes in chunks of any size; frames go out in order as soon as their samples are there, so
memory holds little more than the frames asked for. What a frame holds here is the logarithm alone. The last
step of Whisper's recipe, the floor below the loudest value, needs to know that value: `scaled` takes it.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]

SAMPLE_RATE: Final = 16_000
HOP: Final = 160  # samples from frame to frame
FRAMES_PER_SECOND: Final = SAMPLE_RATE // HOP
_SPAN: Final = 400  # samples of one frame, a Hann window around its centre
_HALF: Final = _SPAN // 2
_BATCH: Final = 500  # frames computed at once, which bounds the memory beside them
_QUIETEST: Final = np.float32(1e-10)
_RANGE: Final = np.float32(8.0)  # powers of ten that count below the loudest value
_LINEAR_UNTIL: Final = 1000.0  # Hz; from there the mel scale is logarithmic
_HZ_PER_MEL: Final = 200.0 / 3
_LOG_STEP: Final = np.log(6.4) / 27


class LogMel:
    """Turns chunks of sound into frames: arrays (frames, mels) of base-ten logarithms.

    The sound is mirrored before its first sample and silent after its last; n samples give n // 160 frames.
    """

    def __init__(self, mels: int) -> None:
        self._filters = filter_bank(mels).T.copy()
        self._window = np.hanning(_SPAN + 1)[:-1].astype(np.float32)
        self._pending = np.zeros(0, np.float32)  # begins where the next frame begins, once that has begun
        self._begun = False
        self._samples = 0
        self._frames = 0

    def push(self, sound: Array) -> Array:
        """The frames that are complete now that `sound` has arrived."""
        self._samples += len(sound)
        self._pending = np.concatenate([self._pending, sound.astype(np.float32, copy=False)])
        if not self._begun:
            if len(self._pending) <= _HALF:
                return np.zeros((0, self._filters.shape[1]), np.float32)
            self._begin()
        return self._take((len(self._pending) - _SPAN) // HOP + 1)

    def finish(self) -> Array:
        """The last frames; call it once, after the last chunk."""
        silence = np.zeros(_SPAN + HOP, np.float32)
        self._pending = np.concatenate([self._pending, silence])
        if not self._begun:
            self._begin()
        return self._take(self._samples // HOP - self._frames)

    def _begin(self) -> None:
        self._pending = np.concatenate([self._pending[_HALF:0:-1], self._pending])
        self._begun = True

    def _take(self, count: int) -> Array:
        parts = [np.zeros((0, self._filters.shape[1]), np.float32)]
        parts += [self._logarithms(first, min(_BATCH, count - first)) for first in range(0, count, _BATCH)]
        if count > 0:
            self._pending = self._pending[count * HOP :]
            self._frames += count
        return np.concatenate(parts)

    def _logarithms(self, first: int, count: int) -> Array:
        spans = np.lib.stride_tricks.sliding_window_view(self._pending, _SPAN)[first * HOP :: HOP][:count]
        bins = np.fft.rfft(spans * self._window, axis=-1)
        power = (bins.real**2 + bins.imag**2).astype(np.float32, copy=False)
        logarithms: Array = np.log10(np.maximum(power @ self._filters, _QUIETEST))
        return logarithms


def scaled(frames: Array, loudest: float, count: int) -> Array:
    """The encoder's input: `count` frames, of which those after `frames` are empty."""
    made = np.zeros((count, frames.shape[1]), np.float32)
    np.maximum(frames, np.float32(loudest) - _RANGE, out=made[: len(frames)])
    made[: len(frames)] += 4
    made[: len(frames)] /= 4
    return made


@functools.cache
def filter_bank(mels: int) -> Array:
    """Triangles (mels, 201) of equal area, spaced evenly on Slaney's mel scale from 0 to 8 kHz."""
    bins = np.linspace(0, SAMPLE_RATE / 2, _SPAN // 2 + 1)
    edges = _hertz(np.linspace(0, _mel(SAMPLE_RATE / 2), mels + 2))
    widths = np.diff(edges)
    rising = (bins - edges[:-2, None]) / widths[:-1, None]
    falling = (edges[2:, None] - bins) / widths[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    bank: Array = (triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)
    return bank


def _mel(hertz: float) -> float:
    if hertz < _LINEAR_UNTIL:
        return hertz / _HZ_PER_MEL
    return float(_LINEAR_UNTIL / _HZ_PER_MEL + np.log(hertz / _LINEAR_UNTIL) / _LOG_STEP)


def _hertz(mel: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    corner = _LINEAR_UNTIL / _HZ_PER_MEL
    curved = _LINEAR_UNTIL * np.exp(_LOG_STEP * (np.maximum(mel, corner) - corner))
    return np.where(mel < corner, mel * _HZ_PER_MEL, curved)
