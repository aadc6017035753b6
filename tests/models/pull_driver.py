"""A pull in a process of its own that can stop at a named moment: `pull_driver HOME ROW.json [MOMENT]`.

It prints `reached` at that moment and waits there to be killed; without a moment it prints the install path.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from turbospark_cli.models import catalog, completion, conversion, pull, staging, store, unpack
from turbospark_cli.models.catalog import Row


def stop() -> None:
    """Say so and wait for the end."""
    print("reached", flush=True)
    while True:
        signal.pause()


def before(module: Any, name: str) -> None:
    """Stop when `module.name` is about to be called."""

    def stopped(*args: object, **kwargs: object) -> None:
        stop()

    setattr(module, name, stopped)


class _StopAt:
    def __init__(self, least: int) -> None:
        self._least = least

    def advance(self, n: int) -> None:
        raise AssertionError("pull reports totals")

    def update(self, done: int) -> None:
        if done >= self._least:
            stop()


def progress_that_stops(label_start: str, least: int) -> Any:
    """A ProgressFactory that stops when the job whose label begins so has done `least` units."""

    @contextmanager
    def factory(label: str, total: int | None, unit: str) -> Iterator[_StopAt]:
        yield _StopAt(least if label.startswith(label_start) else 2**62)

    return factory


MOMENTS: dict[str, Callable[[], Any]] = {
    "downloading": lambda: progress_that_stops("Downloading", 1),
    "downloaded": lambda: before(unpack, "append_member"),
    "before converting": lambda: before(conversion, "convert"),
    "converting": lambda: progress_that_stops("Converting", 3),
    "converted": lambda: before(pull, "_receipt"),
    "before flushing": lambda: before(staging, "sync_tree"),
    "before publishing": lambda: before(Path, "rename"),
    "after publishing": lambda: before(completion, "write_names"),
}


def main() -> None:
    """Pull the one row."""
    row = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=Row)
    catalog.rows = lambda: {row.alias: row}  # type: ignore[assignment]
    progress = MOMENTS[sys.argv[3]]() if len(sys.argv) > 3 else None
    install = pull.pull(store.Store(Path(sys.argv[1])), row.alias, progress=progress or pull.silent)
    print(install.path, flush=True)


if __name__ == "__main__":
    main()
