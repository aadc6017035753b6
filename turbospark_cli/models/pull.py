"""Installing a model: check, fetch, convert, publish.

GUARANTEES. Until its last step a pull changes nothing that anybody can see. Killed at any moment it leaves
only a work folder, which the next pull removes. Of two pulls of one model the second waits, then finds it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import functools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from turbospark_cli import __version__, console
from turbospark_cli.errors import CorruptInstall, DownloadFailed, ModelNotFound, TurbosparkError
from turbospark_cli.models import catalog, conversion, index, receipt, staging, unpack
from turbospark_cli.models.catalog import Row
from turbospark_cli.models.receipt import Origin, Quantization, Receipt
from turbospark_cli.models.store import Install, Store
from turbospark_cli.progress import Progress, Unit, size_text

ProgressFactory = Callable[[str, int | None, Unit], AbstractContextManager[Progress]]

_SPARE: Final = 64 * 1024 * 1024  # bytes left free beside what a pull needs


def pull(
    store: Store,
    name: str,
    *,
    force: bool = False,
    offline: bool = False,
    progress: ProgressFactory = console.progress,
) -> Install:
    """The install of the catalog alias `name`, made now unless it is there; `force` makes it anew.

    Raises ModelNotFound, DownloadFailed (also for a full disk, and when `offline` and absent) or
    ConversionFailed.
    """
    row = catalog.find(name)
    if not force and (present := _present(store, row)) is not None:
        return present
    if offline:
        raise DownloadFailed(
            f"{row.alias} is not installed, and downloads are turned off.",
            hint=f"Install it while online: `turbospark models pull {row.alias}`.",
        )
    try:
        with staging.lock(store.incoming / f"{row.alias}.lock", functools.partial(_tell_waiting, row)):
            if not force and (present := _present(store, row)) is not None:
                return present
            return _install(store, row, progress)
    except OSError as error:
        raise _unwritable(store, error) from error


@contextlib.contextmanager
def silent(label: str, total: int | None, unit: Unit) -> Iterator[Progress]:
    """A ProgressFactory that shows nothing."""
    yield _Silent()


class _Silent:
    def advance(self, n: int) -> None:
        pass

    def update(self, done: int) -> None:
        pass


def needed(row: Row) -> int:
    """Bytes that must be free while `row` is installed.

    The file from the wheels, and beside it first a wheel (twice: pip copies it), later the install.
    """
    largest = max(wheel.size for wheel in row.source.wheels)
    joined = sum(wheel.member_size for wheel in row.source.wheels)
    joined += sum(each.member_size for wheel in row.source.wheels for each in wheel.companions)
    return joined + max(2 * largest, row.disk)


def _tell_waiting(row: Row) -> None:
    console.note(f"Waiting for another pull of {row.alias} to end.")


def _present(store: Store, row: Row) -> Install | None:
    with contextlib.suppress(ModelNotFound, CorruptInstall):
        return store.find(row.alias)
    return None


def _install(store: Store, row: Row, progress: ProgressFactory) -> Install:
    _check_space(store, row)
    with staging.folder(store.incoming, row.alias) as work:
        weights, draft = work / "source" / "weights", work / "install"
        weights.parent.mkdir()
        draft.mkdir()
        _fetch(row, weights, work, progress)
        facts = _convert(row, weights, draft, progress)
        _recommend(row, draft / "generation_config.json")
        return store.publish(draft, _receipt(row, facts, draft))


def _fetch(row: Row, target: Path, work: Path, progress: ProgressFactory) -> None:
    """Download wheel after wheel, and join their members in `target`; companions go beside it."""
    with progress(f"Downloading {row.alias}", row.size, "bytes") as bar, target.open("wb") as joined:
        finished = 0
        for wheel in row.source.wheels:
            folder = work / "wheel"
            folder.mkdir()
            archive = index.download(wheel, folder, functools.partial(_tell, bar, finished))
            unpack.append_member(wheel, archive, joined)
            unpack.write_companions(wheel, archive, target.parent)
            shutil.rmtree(folder)
            finished += wheel.size
            bar.update(finished)


def _tell(bar: Progress, finished: int, current: int) -> None:
    bar.update(finished + current)


def _convert(row: Row, source: Path, target: Path, progress: ProgressFactory) -> conversion.Facts:
    with contextlib.ExitStack() as stack:
        bars: list[Progress] = []

        def report(done: int, total: int) -> None:
            if not bars:
                bars.append(stack.enter_context(progress(f"Converting {row.alias}", total, "steps")))
            bars[0].update(done)

        return conversion.convert(row.source.format, source, target, report)


def _recommend(row: Row, file: Path) -> None:
    """Put the sampling of the catalog's row where engines look for it."""
    if row.sampling:
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | row.sampling, indent=2), "utf-8")


def _receipt(row: Row, facts: conversion.Facts, draft: Path) -> Receipt:
    quantization = None
    if facts.bits is not None:
        quantization = Quantization(facts.bits, facts.group_size, facts.stored_as)
    return Receipt(
        schema_version=receipt.SCHEMA_VERSION,
        alias=row.alias,
        kind=row.kind,
        family=row.family,
        title=row.title,
        licence=row.licence,
        capabilities=row.capabilities,
        context_length=facts.context_length,
        parameters=facts.parameters,
        languages=facts.languages,
        quantization=quantization,
        source="package-index",
        origins=tuple(
            Origin(wheel.package, wheel.version, wheel.file, wheel.sha256, wheel.member)
            for wheel in row.source.wheels
        ),
        files=receipt.inventory(draft),
        tool_version=__version__,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )


def _check_space(store: Store, row: Row) -> None:
    free, wanted = _free(store.incoming), needed(row) + _SPARE
    if free < wanted:
        raise DownloadFailed(
            f"Installing {row.alias} needs {size_text(wanted)} of disk space; {size_text(free)} are free.",
            hint="Free some space, or put the store elsewhere with TURBOSPARK_HOME.",
        )


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _unwritable(store: Store, error: OSError) -> TurbosparkError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DownloadFailed(
            "The disk became full; nothing was installed.",
            hint="Free some space, or put the store elsewhere with TURBOSPARK_HOME.",
        )
    return DownloadFailed(
        f"The store at {store.root} cannot be written: {error.strerror or error}.",
        hint="Check its permissions, or put the store elsewhere with TURBOSPARK_HOME.",
    )
