"""Installs and catalog rows as the commands show them: JSON objects, and the cells of tables."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from turbospark_cli.errors import CorruptInstall
from turbospark_cli.models import catalog, memory
from turbospark_cli.models.catalog import Row
from turbospark_cli.models.store import Install
from turbospark_cli.progress import size_text

COLUMNS: Final = ("NAME", "KIND", "PARAMS", "QUANT", "SIZE", "USED")
SORTS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "name": lambda item: item["name"],
    "kind": lambda item: (item["kind"], item["name"]),
    "params": lambda item: -item["parameters"],
    "size": lambda item: -item["size"],
    "used": lambda item: (item["used"] is None, _reversed_time(item["used"])),
}
_UNITS: Final = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
_AGES: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def installed(install: Install) -> dict[str, Any]:
    """One install, for `list`."""
    facts = install.receipt
    quantization = facts.quantization
    return {
        "name": install.id,
        "kind": install.kind,
        "title": facts.title,
        "parameters": facts.parameters,
        "quant": "dense" if quantization is None else f"{quantization.bits}-bit",
        "size": facts.size,
        "used": None if install.used is None else install.used.isoformat(timespec="seconds"),
        "installed": True,
        "path": str(install.path),
    }


def available(row: Row, install: Install | None) -> dict[str, Any]:
    """One catalog row, for `list --available`; `size` is what a pull downloads when it is not installed."""
    if install is not None:
        return installed(install)
    return {
        "name": row.alias,
        "kind": row.kind,
        "title": row.title,
        "parameters": row.parameters,
        "quant": row.quantization,
        "size": row.size,
        "used": None,
        "installed": False,
        "path": None,
    }


def cells(item: dict[str, Any]) -> list[str]:
    """A row for COLUMNS."""
    size, used = size_text(item["size"]), _age(item["used"])
    return [item["name"], item["kind"], count_text(item["parameters"]), item["quant"], size, used]


def details(install: Install) -> dict[str, Any]:
    """Everything about one install, for `show --json`."""
    facts: dict[str, Any] = msgspec.to_builtins(install.receipt)
    more = {"memory": _memory(install), "chat_template": template(install) is not None}
    return installed(install) | facts | more


def describe(install: Install) -> list[tuple[str, str]]:
    """The facts of one install as labels and texts, for `show`."""
    facts = install.receipt
    stored = facts.quantization
    quantization = (
        "dense"
        if stored is None
        else f"{stored.bits}-bit, groups of {stored.group_size} ({stored.stored_as})"
    )
    lines = [
        ("name", f"{install.id} ({facts.title})"),
        ("kind", install.kind),
        ("family", facts.family),
        ("parameters", count_text(facts.parameters)),
        ("quantization", quantization),
        ("context", f"{facts.context_length} tokens"),
        ("capabilities", ", ".join(facts.capabilities)),
        *_of_its_kind(install),
        ("license", facts.licence),
        ("source", _source(install)),
        ("size", f"{size_text(facts.size)} in {len(facts.files)} files"),
        ("used", _age(install.used.isoformat() if install.used else None)),
        ("path", str(install.path)),
    ]
    for form, name in (("as_stored", "GPU"), ("float32", "CPU, float32")):
        if estimate := _memory(install).get(form):
            sizes = [f"{size_text(size)} at {tokens // 1024}k" for tokens, size in estimate.items()]
            lines.insert(-3, (f"memory ({name})", ", ".join(sizes)))
    return lines


def _of_its_kind(install: Install) -> list[tuple[str, str]]:
    if install.kind == "text":
        return [("chat template", "yes" if template(install) is not None else "no")]
    if languages := install.receipt.languages:
        return [("languages", languages[0] if len(languages) == 1 else str(len(languages)))]
    return []


def template(install: Install) -> str | None:
    """The chat template; None for a model without one."""
    path = install.path / "chat_template.jinja"
    return path.read_text("utf-8") if path.is_file() else None


def plan(row: Row, install: Install | None, path: str) -> dict[str, Any]:
    """What a pull would do, for `pull --dry-run`."""
    return {
        "name": row.alias,
        "installed": install is not None,
        "download": row.size,
        "disk": row.disk,
        "sources": [f"{wheel.package} {wheel.version}" for wheel in row.source.wheels],
        "path": path,
    }


def count_text(count: int) -> str:
    """A number of parameters for people: 135M."""
    for size, letter in _UNITS:
        if count >= size:
            number = count / size
            return f"{number:.1f}{letter}" if number < 10 else f"{number:.0f}{letter}"
    return str(count)


def by_alias(installs: Sequence[Install]) -> list[dict[str, Any]]:
    """The whole catalog, installed ones with what is on disk."""
    have = {install.id: install for install in installs}
    return [available(row, have.get(alias)) for alias, row in catalog.rows().items()]


def _memory(install: Install) -> dict[str, dict[int, int]]:
    """By form and context length; only what a text model takes depends on a context."""
    if install.kind != "text":
        return {}
    try:
        return memory.estimate(install.receipt, json.loads((install.path / "config.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptInstall(
            f"The config.json of {install.id} cannot be used.",
            hint=f"`turbospark models pull --force {install.id}` installs it anew.",
        ) from error


def _source(install: Install) -> str:
    packages = [f"{origin.package} {origin.version}" for origin in install.receipt.origins]
    return f"package index: {', '.join(packages)}"


def _age(when: str | None) -> str:
    if when is None:
        return "never"
    seconds = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(when)).total_seconds()
    for length, name in _AGES:
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


def _reversed_time(when: str | None) -> float:
    return 0.0 if when is None else -dt.datetime.fromisoformat(when).timestamp()
