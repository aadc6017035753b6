"""Work folders for installs in the making: on the store's filesystem, invisible, and cleaned after a crash.

DESIGN. A pull works in `models/.incoming/ALIAS.RANDOM/` and holds a lock on the folder's `owner` file for
as long as its process lives; the kernel drops the lock with the process, whatever ended it. So a folder
whose lock can be taken has no owner, and the next pull removes it. A folder is created and locked, and
leftovers are looked for, only under the lock of the area itself: nobody sees one that is not yet locked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_OWNER: Final = "owner"
_GATE: Final = ".gate"


@contextmanager
def folder(area: Path, alias: str) -> Iterator[Path]:
    """An empty work folder of this process in `area`; removed at the end with all that is left in it."""
    area.mkdir(parents=True, exist_ok=True)
    with lock(area / _GATE):
        clean(area)
        path = Path(tempfile.mkdtemp(prefix=f"{alias}.", dir=area))
        owner = (path / _OWNER).open("wb")
        fcntl.flock(owner, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        owner.close()
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`; when somebody else holds it now, call `waiting` and wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clean(area: Path) -> None:
    """Remove every work folder in `area` whose process has ended. Call with the gate held."""
    for path in area.iterdir():
        if path.is_dir() and not path.is_symlink() and not _is_owned(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_owned(path: Path) -> bool:
    try:
        with (path / _OWNER).open("rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # killed before it had an owner file
        return False
    return False


def sync_tree(root: Path) -> None:
    """Flush every file and folder under `root`, and `root` itself, to the disk."""
    for parent, _, files in os.walk(root):
        for name in files:
            sync(Path(parent, name))
        sync(Path(parent))


def sync(path: Path) -> None:
    """Flush one file, or the names in one folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
