"""A safetensors file, written tensor by tensor so that memory holds one of them at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

Dtype = Literal["F32", "F16", "BF16", "U32"]
_NUMPY: Final[dict[Dtype, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # its bits; numpy has no such type
    "U32": np.dtype("<u4"),
}
_ALIGN: Final = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What one tensor of the file will be."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * _NUMPY[self.dtype].itemsize


def write(path: Path, plans: Sequence[Plan], arrays: Iterable[np.ndarray[Any, Any]]) -> None:
    """Write the planned tensors; `arrays` yields their values in the same order."""
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for plan in plans:
        span = [offset, offset + plan.size]
        header[plan.name] = {"dtype": plan.dtype, "shape": plan.shape, "data_offsets": span}
        offset += plan.size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGN)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for plan, array in zip(plans, arrays, strict=True):
            if array.shape != plan.shape or array.dtype != _NUMPY[plan.dtype]:
                raise ValueError(
                    f"{plan.name} is {array.dtype}{array.shape}, planned {plan.dtype}{plan.shape}"
                )
            file.write(np.ascontiguousarray(array).data)
