"""The names of all installs in one small file, so that a Tab press opens nothing else.

The file is a convenience: it may be missing or stale, and nobody but shell completion reads it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FILE: Final = Path("cache", "model-names")


def write_names(home: Path, names: Iterable[str]) -> None:
    """Remember the aliases, one a line; a home that cannot be written is no error."""
    path = home / _FILE
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text("".join(f"{name}\n" for name in sorted(names)), "utf-8")
        draft.replace(path)


def read_names(home: Path) -> list[str]:
    """The aliases that were installed when the file was last written, sorted."""
    try:
        return (home / _FILE).read_text("utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []
