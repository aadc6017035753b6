"""Real speech for tests: eleven seconds of John F. Kennedy's inaugural address, in the public domain."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import soundfile

Array = np.ndarray[Any, np.dtype[np.float32]]

PATH: Final = Path(__file__).parent / "kennedy.flac"
KENNEDY: Final = (
    "And so my fellow Americans, ask not what your country can do for you, "
    "ask what you can do for your country."
)


def kennedy() -> Array:
    """The samples, 16 kHz."""
    samples: Array
    samples, rate = soundfile.read(PATH, dtype="float32")
    assert rate == 16_000
    return samples


def words(text: str) -> list[str]:
    """The words of a text, as they are compared."""
    return re.findall(r"[a-z0-9']+", text.lower())
