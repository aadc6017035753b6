"""CTranslate2 model files, read with every count, size and offset checked against the file before it is used.

Little-endian, version 6: the version, the name and revision of the specification, then each variable with its
name, shape, type and bytes, then aliases. Strings are stored with a length that includes a closing NUL.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from turbospark_cli.errors import ConversionFailed

Array = np.ndarray[Any, Any]

_VERSION: Final = 6
_MOST_VARIABLES: Final = 65_536
_LONGEST_NAME: Final = 512  # bytes
_MOST_DIMS: Final = 4
_LARGEST_DIM: Final = 2**31
_TYPES: Final[dict[int, tuple[str, str]]] = {
    0: ("float32", "<f4"),
    1: ("int8", "<i1"),
    2: ("int16", "<i2"),
    3: ("int32", "<i4"),
    4: ("float16", "<f2"),
    5: ("bfloat16", "<u2"),  # its bits; numpy has no such type
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its name, the name of its type, and its values on the mapped file."""

    name: str
    type: str
    data: Array


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The variables of a file, which stays mapped as long as one is held; aliases are resolved."""

    specification: str
    revision: int
    variables: dict[str, Variable]
    aliases: dict[str, str]


def read(path: Path) -> ModelFile:
    """Open a CTranslate2 model file; ConversionFailed says what is wrong with it."""
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            raise ConversionFailed("The file is not a CTranslate2 model.") from None
    cursor = _Cursor(mapped)
    if cursor.number("I") != _VERSION:
        raise ConversionFailed(f"The file is not a CTranslate2 model of version {_VERSION}.")
    specification, revision = cursor.string(), cursor.number("I")
    variables: dict[str, Variable] = {}
    for _ in range(cursor.count("variables")):
        variable = _variable(cursor)
        if variable.name in variables:
            raise ConversionFailed("The CTranslate2 file names a variable twice.")
        variables[variable.name] = variable
    aliases = {cursor.string(): cursor.string() for _ in range(cursor.count("aliases"))}
    if not set(aliases.values()) <= set(variables):
        raise ConversionFailed("The CTranslate2 file holds an alias of nothing.")
    if not cursor.at_end:
        raise ConversionFailed("The CTranslate2 file goes on after its end.")
    return ModelFile(specification, revision, variables, aliases)


class _Cursor:
    """A position in the file; every read beyond the end is ConversionFailed."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = 0

    @property
    def at_end(self) -> bool:
        return self._offset == len(self._data)

    def skip(self, size: int) -> int:
        """Go over `size` bytes; where they began."""
        start, self._offset = self._offset, self._offset + size
        if self._offset > len(self._data):
            raise ConversionFailed("The CTranslate2 file ends in the middle of a variable.")
        return start

    def number(self, code: str) -> int:
        start = self.skip(struct.calcsize("<" + code))
        value: int = struct.unpack_from("<" + code, self._data, start)[0]
        return value

    def count(self, what: str) -> int:
        number = self.number("I")
        if number > _MOST_VARIABLES:
            raise ConversionFailed(f"The CTranslate2 file claims {number} {what}, more than are allowed.")
        return number

    def string(self) -> str:
        size = self.number("H")
        if not 1 <= size <= _LONGEST_NAME:
            raise ConversionFailed("The CTranslate2 file holds a name of an impossible length.")
        start = self.skip(size)
        raw = self._data[start : start + size]
        try:
            text = raw[:-1].decode()
        except UnicodeDecodeError:
            text = ""
        if raw[-1] != 0 or not text.isprintable() or not text:
            raise ConversionFailed("The CTranslate2 file holds a name that is not text.")
        return text

    def array(self, dtype: str, shape: tuple[int, ...], size: int) -> Array:
        start = self.skip(size)
        flat: Array = np.frombuffer(self._data, dtype=dtype, count=math.prod(shape), offset=start)
        return flat.reshape(shape)


def _variable(cursor: _Cursor) -> Variable:
    name = cursor.string()
    rank = cursor.number("B")
    if rank > _MOST_DIMS:
        raise ConversionFailed(f"A variable of the CTranslate2 file has {rank} dimensions.")
    shape = tuple(cursor.number("I") for _ in range(rank))
    if not all(1 <= size < _LARGEST_DIM for size in shape):
        raise ConversionFailed("A variable of the CTranslate2 file has a dimension that is not possible.")
    number, size = cursor.number("B"), cursor.number("I")
    if number not in _TYPES:
        raise ConversionFailed(f"A variable of the CTranslate2 file has the unknown type {number}.")
    kind, dtype = _TYPES[number]
    if math.prod(shape) * np.dtype(dtype).itemsize != size:
        raise ConversionFailed("A variable of the CTranslate2 file has a size that is not that of its shape.")
    return Variable(name, kind, cursor.array(dtype, shape, size))
