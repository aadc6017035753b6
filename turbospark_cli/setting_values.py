"""Reading one raw value (text of a variable, TOML value or parsed flag) as the type of its setting."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

Parse = Callable[[object], object]  # raises ValueError whose text completes "NAME must be ..."

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:[0-9]{1,5})?", re.ASCII)
_ORIGIN: Final = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^\s/@?#]+/?")  # as a browser writes it


def integer(least: int, most: int | None = None) -> Parse:
    expected = (
        f"a whole number from {least} to {most}" if most is not None else f"a whole number, {least} or more"
    )

    def parse(value: object) -> int:
        if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(expected)
        if value < least or (most is not None and value > most):
            raise ValueError(expected)
        return value

    return parse


def seconds(value: object) -> float:
    try:
        number = (
            float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
        )
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError("a number of seconds, 0 or more")
    return number


def boolean(value: object) -> bool:
    if isinstance(value, str):
        value = {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }.get(value.strip().lower())
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value


def choice(*choices: str) -> Parse:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return parse


def path(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError("a path")
    return Path(value).expanduser().absolute()


def names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of names")
    return tuple(part.strip() for part in parts if part.strip())


def hosts(value: object) -> tuple[str, ...]:
    return _all_like(_HOST, names(value), "a list of host names like box.example or box.example:443")


def origins(value: object) -> tuple[str, ...]:
    return _all_like(_ORIGIN, names(value), "a list of origins like https://app.example, or *")


def _all_like(form: re.Pattern[str], parts: tuple[str, ...], expected: str) -> tuple[str, ...]:
    if not all(form.fullmatch(part) for part in parts):
        raise ValueError(expected)
    return parts
