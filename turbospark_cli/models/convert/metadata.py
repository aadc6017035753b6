"""Typed access to a GGUF file's metadata: each value is checked for type and range, or refused by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from turbospark_cli.errors import ConversionFailed


@dataclass(frozen=True, slots=True)
class Metadata:
    """The key-value pairs of one file. Every getter raises ConversionFailed, which names the key."""

    values: dict[str, Any]

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer within `low` and `high`; `default` when the key is absent."""
        value = self.values.get(key, default)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]  # the same number given per layer
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._unusable(key)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number; `default` when the key is absent."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._unusable(key)
        if not math.isfinite(value) or value <= 0:
            raise self._unusable(key)
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string; `default` when the key is absent."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self._unusable(key)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A boolean; `default` when the key is absent."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._unusable(key)
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._unusable(key)
        return value

    def numbers(self, key: str, length: int) -> list[int] | list[float]:
        """A list of `length` finite numbers."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) != length:
            raise self._unusable(key)
        if not all(isinstance(item, int | float) and math.isfinite(item) for item in value):
            raise self._unusable(key)
        return value

    def has(self, key: str) -> bool:
        """Whether the key is there at all."""
        return key in self.values

    def _unusable(self, key: str) -> ConversionFailed:
        state = "holds an unusable value for" if key in self.values else "lacks"
        return ConversionFailed(f"The GGUF file {state} {key}.")
