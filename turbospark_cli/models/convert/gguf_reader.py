"""GGUF files, read with every count, size and offset checked against the file before it is used.

DESIGN. The `gguf` package has a reader, but it builds a numpy view per metadata item (5 s for a vocabulary of
49,152) and follows a hostile array count for as long as it says. This one walks the header once and takes
the format's constants from the package. Little-endian versions 2 and 3 only.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert.metadata import Metadata

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MOST_ITEMS: Final = 65_536  # tensors, and metadata keys
_LONGEST_STRING: Final = 16 * 1024 * 1024  # bytes
_LONGEST_ARRAY: Final = 16 * 1024 * 1024  # items
_MOST_DIMS: Final = 4
_LARGEST_DIM: Final = 2**31
_DEFAULT_ALIGNMENT: Final = 32
_LARGEST_ALIGNMENT: Final = 65_536
_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its type, its shape with the contiguous dimension last, and its raw blocks."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    data: Bytes  # shape (rows, bytes of a row), on the mapped file


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The metadata and the tensors of a file, which stays mapped as long as a tensor is held."""

    metadata: Metadata
    tensors: dict[str, Tensor]


def read(path: Path) -> GgufFile:
    """Open a GGUF file; ConversionFailed says what is wrong with it."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except ValueError:
        raise ConversionFailed("The GGUF file is empty.") from None
    cursor = _Cursor(data.data)
    if cursor.take(4) != _MAGIC:
        raise ConversionFailed("The file is not a GGUF file.")
    version = cursor.scalar("I")
    if version not in _VERSIONS:
        raise ConversionFailed("The GGUF file has a version that is not supported; 2 and 3 are.")
    tensor_count, key_count = cursor.count(_MOST_ITEMS, "tensors"), cursor.count(_MOST_ITEMS, "keys")
    metadata = _read_metadata(cursor, key_count)
    headers = [_read_header(cursor) for _ in range(tensor_count)]
    start = _align(cursor.offset, _alignment(metadata))
    tensors = {header.name: _locate(header, data, start) for header in headers}
    if len(tensors) != tensor_count:
        raise ConversionFailed("The GGUF file names a tensor twice.")
    return GgufFile(Metadata(metadata), tensors)


@dataclass(frozen=True, slots=True)
class _Header:
    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int  # from the start of the data section


class _Cursor:
    """A position in the file; every read beyond the end is ConversionFailed."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.offset = 0

    def take(self, size: int) -> bytes:
        end = self.offset + size
        if end > len(self._data):
            raise ConversionFailed("The GGUF file ends in the middle of its header.")
        piece = bytes(self._data[self.offset : end])
        self.offset = end
        return piece

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, most: int, what: str) -> int:
        number: int = self.scalar("Q")
        if number > most:
            raise ConversionFailed(
                f"The GGUF file claims {number} {what}, more than the {most} that are allowed."
            )
        return number

    def string(self) -> str:
        try:
            return self.take(self.count(_LONGEST_STRING, "bytes in one string")).decode()
        except UnicodeDecodeError:
            raise ConversionFailed("The GGUF file holds a string that is not UTF-8.") from None

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        return self.scalar(_scalar_code(kind))

    def _array(self) -> list[Any]:
        kind = self.scalar("I")
        length = self.count(_LONGEST_ARRAY, "items in one array")
        if kind == _STRING:
            return [self.string() for _ in range(length)]
        code = _scalar_code(kind)  # an array of arrays is refused here
        return list(struct.unpack(f"<{length}{code}", self.take(length * struct.calcsize("<" + code))))


def _scalar_code(kind: int) -> str:
    code = _SCALARS.get(kind)
    if code is None:
        raise ConversionFailed(f"The GGUF file holds metadata of the unknown type {kind}.")
    return code


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    if len(metadata) != count:
        raise ConversionFailed("The GGUF file holds a metadata key twice.")
    return metadata


def _read_header(cursor: _Cursor) -> _Header:
    name = cursor.string()
    dims = cursor.scalar("I")
    if not 1 <= dims <= _MOST_DIMS:
        raise ConversionFailed(
            f"A tensor of the GGUF file has {dims} dimensions; 1 to {_MOST_DIMS} are allowed."
        )
    shape = tuple(cursor.scalar("Q") for _ in range(dims))
    if not all(1 <= size < _LARGEST_DIM for size in shape):
        raise ConversionFailed("A tensor of the GGUF file has a dimension that is not possible.")
    number = cursor.scalar("I")
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        raise ConversionFailed(f"A tensor of the GGUF file has the unknown type {number}.") from None
    return _Header(name, kind, shape[::-1], cursor.scalar("Q"))


def _alignment(metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or not 1 <= alignment <= _LARGEST_ALIGNMENT
        or alignment.bit_count() != 1
    ):
        raise ConversionFailed("The GGUF file has an alignment that is not a power of two.")
    return alignment


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _locate(header: _Header, data: Bytes, start: int) -> Tensor:
    block, block_bytes = GGML_QUANT_SIZES[header.type]
    *outer, columns = header.shape
    if columns % block:
        raise ConversionFailed("A tensor of the GGUF file has rows that are not whole blocks.")
    rows, row_bytes = math.prod(outer), columns // block * block_bytes
    first = start + header.offset
    end = first + rows * row_bytes
    if end > len(data):
        raise ConversionFailed("A tensor of the GGUF file lies beyond the end of the file.")
    return Tensor(header.name, header.type, header.shape, data[first:end].reshape(rows, row_bytes))
