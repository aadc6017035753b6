"""Names of models and of the files inside an install: what is allowed."""

from __future__ import annotations

import re
from typing import Final

from turbospark_cli.errors import UsageError

KINDS: Final = ("text", "embedding", "image", "stt", "tts", "music")
_PART: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_ALIAS: Final = re.compile(_PART)
_NAME: Final = re.compile(f"{_PART}(/{_PART})?")
_SHOWN: Final = 96  # characters of a refused name that an error repeats


def is_alias(name: str) -> bool:
    """Whether `name` can be the alias of an install, and so the stem of its folder."""
    return _ALIAS.fullmatch(name) is not None and ".." not in name


def check_name(name: str) -> str:
    """`name` itself when it is an alias or `org/repo`; UsageError otherwise."""
    if _NAME.fullmatch(name) is None or ".." in name:
        raise UsageError(
            f"{printable(name)!r} is not a model name.",
            hint="A name is an alias such as smollm2-135m; `turbospark models list --available` shows all.",
        )
    return name


def is_safe_file(path: str) -> bool:
    """Whether a relative path from outside (a package, a hub, a receipt) stays inside its folder."""
    if not path or path.startswith("/") or "\\" in path or ":" in path:
        return False
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in path):
        return False
    return all(part not in ("", ".", "..") for part in path.split("/"))


def printable(name: str) -> str:
    """`name` cut to a length, and with control characters replaced, that an error message can repeat."""
    shown = "".join(char if char.isprintable() else "?" for char in name[:_SHOWN])
    return shown + ("…" if len(name) > _SHOWN else "")
