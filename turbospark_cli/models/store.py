"""The store: installs as folders under `HOME/models/KIND/ALIAS.gturbo`, each complete or absent.

GUARANTEES. An install becomes visible by one rename, after all its bytes are on the disk, and disappears by
one rename before anything in it is deleted. Replacing an install is two renames: killed between them, the
alias is absent, never half there. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turbospark_cli.errors import CorruptInstall, ModelNotFound
from turbospark_cli.models import catalog, completion, names, receipt, staging
from turbospark_cli.models.receipt import Receipt
from turbospark_cli.nearest import nearest

SUFFIX: Final = ".gturbo"
_INCOMING: Final = ".incoming"


@dataclass(frozen=True, slots=True)
class Install:
    """One complete model on disk."""

    path: Path
    receipt: Receipt
    used: dt.datetime | None = None  # when a model was last loaded from it, UTC

    @property
    def id(self) -> str:
        """The alias under which it is served."""
        return self.receipt.alias

    @property
    def kind(self) -> str:
        """One of `names.KINDS`."""
        return self.receipt.kind


def size_of(folder: Path) -> int:
    """The bytes of all files under `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Store:
    """All installs under one home folder; nothing is created before the first pull."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "models"
        self.incoming = self.root / _INCOMING

    def folder(self, kind: str, alias: str) -> Path:
        """Where an install of this kind and alias is, or would be."""
        if kind not in names.KINDS or not names.is_alias(alias):
            raise ValueError(f"no install can be named {kind}/{alias}")
        return self.root / kind / f"{alias}{SUFFIX}"

    def list(self) -> list[Install]:
        """Every usable install, by kind and alias."""
        found = []
        for path in self._folders():
            with contextlib.suppress(CorruptInstall):
                found.append(self._open(path))
        return found

    def broken(self) -> dict[Path, CorruptInstall]:
        """Every folder that looks like an install and cannot be used, with the reason."""
        reasons = {}
        for path in self._folders():
            try:
                self._open(path)
            except CorruptInstall as reason:
                reasons[path] = reason
        return reasons

    def find(self, name: str) -> Install:
        """The install called `name`.

        Raises ModelNotFound, which names what to pull or the three nearest names; CorruptInstall when it is
        there and cannot be used.
        """
        return self._open(self._locate(name))

    def removable(self, name: str) -> Path:
        """The folder of the install called `name`, whether it can be used or not.

        Raises ModelNotFound, and CorruptInstall for a folder without a receipt, which is not ours to delete.
        """
        path = self._locate(name)
        if not (path / receipt.FILE_NAME).is_file():
            self._open(path)
        return path

    def remove(self, folder: Path) -> int:
        """Delete the install in `folder`; the bytes that became free."""
        with staging.folder(self.incoming, folder.stem) as aside:
            freed = size_of(folder)
            folder.rename(aside / "removed")
            staging.sync(folder.parent)
        self._stamp(folder).unlink(missing_ok=True)
        self._remember_names()
        return freed

    def publish(self, draft: Path, facts: Receipt) -> Install:
        """Make the folder `draft` visible as the install that `facts` describe, in place of an older one.

        `draft` lies in a work folder of `staging`; the older install is deleted with that folder.
        """
        target = self.folder(facts.kind, facts.alias)
        receipt.write(draft, facts)
        staging.sync_tree(draft)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(draft.with_name(f"{draft.name}.replaced"))
        draft.rename(target)
        staging.sync(target.parent)
        self._remember_names()
        return self._open(target)

    def mark_used(self, install: Install) -> None:
        """Remember that a model was loaded from `install` now."""
        stamp = self._stamp(install.path)
        with contextlib.suppress(OSError):
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.touch()
            os.utime(stamp)

    def _folders(self) -> Iterator[Path]:
        for kind in names.KINDS:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                for path in sorted((self.root / kind).iterdir()):
                    if path.suffix == SUFFIX and path.is_dir():
                        yield path

    def _open(self, path: Path) -> Install:
        facts = receipt.read(path)
        if (facts.kind, facts.alias) != (path.parent.name, path.stem):
            raise CorruptInstall(
                f"The receipt of {path.name} belongs to {facts.alias} ({facts.kind}).",
                hint=f"Delete the folder, then `turbospark models pull {facts.alias}`.",
            )
        install = Install(path, facts)
        with contextlib.suppress(OSError):
            seconds = self._stamp(path).stat().st_mtime
            return Install(path, facts, dt.datetime.fromtimestamp(seconds, dt.UTC))
        return install

    def _locate(self, name: str) -> Path:
        for path in self._folders():
            if path.name == f"{name}{SUFFIX}":
                return path
        raise self._missing(name)

    def _stamp(self, folder: Path) -> Path:
        return self.home / "cache" / "used" / folder.parent.name / folder.stem

    def _remember_names(self) -> None:
        completion.write_names(self.home, [install.id for install in self.list()])

    def _missing(self, name: str) -> ModelNotFound:
        shown = names.printable(name)
        if name in catalog.rows():
            return ModelNotFound(
                f"{shown} is not installed.", hint=f"Install it with `turbospark models pull {name}`."
            )
        known = {install.id for install in self.list()} | set(catalog.rows())
        best = nearest(name, known)
        return ModelNotFound(
            f"No model is called {shown!r}.",
            hint=f"The nearest: {', '.join(best)}. Install one with `turbospark models pull {best[0]}`.",
        )
