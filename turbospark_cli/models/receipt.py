"""The receipt of an install: what it is, where it came from, and the hash of every file in it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from turbospark_cli.errors import CorruptInstall
from turbospark_cli.models import names

FILE_NAME: Final = "receipt.json"
SCHEMA_VERSION: Final = 1
_LARGEST: Final = 16 * 1024 * 1024  # bytes; a longer receipt is not ours
_CHUNK: Final = 1024 * 1024


class InstalledFile(Struct, frozen=True):
    """One file of the install: path relative to the folder, bytes, hexadecimal SHA-256."""

    path: str
    size: int
    sha256: str


class Origin(Struct, frozen=True):
    """One pinned file that the install was made from."""

    package: str
    version: str
    file: str
    sha256: str
    member: str


class Quantization(Struct, frozen=True):
    """How most of the weights are stored: MLX affine groups; `stored_as` names the source's own type."""

    bits: int
    group_size: int
    stored_as: str


class Receipt(Struct, frozen=True):
    """Everything known about one install without opening its weights."""

    schema_version: int
    alias: str
    kind: Literal["text", "embedding", "image", "stt", "tts", "music"]
    family: str
    title: str
    licence: str
    capabilities: tuple[str, ...]
    context_length: int  # tokens
    parameters: int
    quantization: Quantization | None  # None: dense weights
    source: str  # "package-index"
    origins: tuple[Origin, ...]
    files: tuple[InstalledFile, ...]
    tool_version: str
    created: str  # ISO 8601, UTC
    languages: tuple[str, ...] = ()  # that a speech model knows

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def digest(path: Path) -> str:
    """The hexadecimal SHA-256 of a file."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
    return sha256.hexdigest()


def inventory(folder: Path) -> tuple[InstalledFile, ...]:
    """Every file under `folder` but the receipt, by path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != FILE_NAME)
    return tuple(
        InstalledFile(path.relative_to(folder).as_posix(), path.stat().st_size, digest(path))
        for path in found
    )


def read(folder: Path) -> Receipt:
    """The receipt of an install folder; CorruptInstall when it cannot be used."""
    path = folder / FILE_NAME
    if not path.is_file():  # SAFETY: a FIFO by this name would block its reader for ever
        raise _without_receipt(folder)
    removal = f"`turbospark models rm {folder.stem}` removes it."
    try:
        if path.stat().st_size > _LARGEST:
            raise CorruptInstall(f"The receipt of {folder.name} is too large to be one.", hint=removal)
        receipt = msgspec.json.decode(path.read_bytes(), type=Receipt)
    except (OSError, msgspec.DecodeError) as error:
        raise CorruptInstall(
            f"The receipt of {folder.name} cannot be read: {error}.", hint=removal
        ) from error
    if receipt.schema_version != SCHEMA_VERSION:
        raise CorruptInstall(
            f"{folder.name} was installed by another version (schema {receipt.schema_version}).",
            hint=f"`turbospark models pull --force {receipt.alias}` installs it anew.",
        )
    if not names.is_alias(receipt.alias) or not all(names.is_safe_file(file.path) for file in receipt.files):
        raise CorruptInstall(f"The receipt of {folder.name} names files outside of its folder.", hint=removal)
    return receipt


def write(folder: Path, receipt: Receipt) -> None:
    """Put the receipt into an install folder that is not yet published."""
    encoded = msgspec.json.format(msgspec.json.encode(receipt), indent=2)
    (folder / FILE_NAME).write_bytes(encoded + b"\n")


def is_intact(folder: Path, receipt: Receipt) -> bool:
    """Whether every file of the receipt is there with its size and hash."""
    for file in receipt.files:
        path = folder / file.path
        if not path.is_file() or path.stat().st_size != file.size or digest(path) != file.sha256:
            return False
    return True


def _without_receipt(folder: Path) -> CorruptInstall:
    if (folder / "manifest.json").is_file():
        return CorruptInstall(
            f"{folder.name} is a packed install made by another program, which turbospark does not run.",
            hint="Pull the model by its alias instead; `turbospark models list --available` shows all.",
        )
    return CorruptInstall(f"{folder.name} has no receipt, so it is not an install.")
