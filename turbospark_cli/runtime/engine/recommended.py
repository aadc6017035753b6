"""How a model is sampled when a request does not say: what its authors wrote into generation_config.json.

A value that cannot be used is passed over, as if it were not there: it is a wish, and no reason to refuse a
model. Small models depend on theirs: drawn from their whole distribution, they ramble.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

import msgspec

from turbospark_cli.runtime.requests import Sampling

_BOUNDS: Final = {
    "temperature": (0.0, 2.0),
    "top_p": (0.01, 1.0),
    "top_k": (0, 10**6),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
}


def read(folder: Path) -> Sampling:
    """The fields that the install in `folder` recommends; the others are None."""
    try:
        config = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return Sampling()
    if not isinstance(config, dict):
        return Sampling()
    found: dict[str, Any] = {}
    for name, (low, high) in _BOUNDS.items():
        value = config.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            continue
        if low <= value <= high:
            found[name] = int(value) if name == "top_k" else float(value)
    return Sampling(**found)


def complete(sampling: Sampling, recommended: Sampling) -> Sampling:
    """`sampling` with the recommended value of every field that the request left open."""
    missing = {
        name: value
        for name in _BOUNDS
        if getattr(sampling, name) is None and (value := getattr(recommended, name)) is not None
    }
    return msgspec.structs.replace(sampling, **missing) if missing else sampling
