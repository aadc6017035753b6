"""The flags of `bench`, as given: those of a model in this process and those of servers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from turbospark_cli.errors import UsageError


class _Flags:
    """A group of flags that only one way of measuring takes."""

    def refuse(self, reason: str) -> None:
        """Raise UsageError when one of them was given."""
        for each in fields(self):  # type: ignore[arg-type]
            if getattr(self, each.name):
                raise UsageError(f"--{each.name.replace('_', '-')} {reason}.")


@dataclass(frozen=True, slots=True)
class OfflineFlags(_Flags):
    """Lists of sizes as text; None is not given."""

    prompt: str | None = None
    generate: str | None = None
    batch: str | None = None
    depth: str | None = None
    no_pull: bool = False


@dataclass(frozen=True, slots=True)
class ServerFlags(_Flags):
    """What to send to servers; None is not given."""

    concurrency: str | None = None
    requests: int | None = None
    rate: float | None = None
    prompt_tokens: str | None = None
    max_tokens: int | None = None
    long_tokens: int | None = None
    no_stream: bool = False
    pid: tuple[int, ...] = ()
    timeout: float | None = None
    api_key_file: Path | None = None


def sizes(flag: str, text: str, *, least: int = 0) -> list[int]:
    """The whole numbers of a list like `1,4,8`. Raises UsageError that names the flag."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < least or max(found) > 10_000_000:
        raise UsageError(f"{flag} takes a list of whole numbers like 1,4,8, not {text!r}.")
    return found
