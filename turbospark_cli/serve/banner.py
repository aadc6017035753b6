"""What `serve` says on stderr once it is ready: at most eight lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turbospark_cli import __version__
from turbospark_cli.runtime.runtime import ModelCard

MAX_LINES: Final = 8
_MAX_MODELS: Final = 5  # named; the rest is counted


def banner(url: str, cards: Sequence[ModelCard], *, needs_key: bool, seconds: float) -> list[str]:
    """Version and device, models, the base URL to paste, the key, and how long it took."""
    info = cards[0].info
    device = f" on {info.device}, {info.detail}" if info is not None else ""
    names = ", ".join(card.id for card in cards[:_MAX_MODELS])
    more = f" and {len(cards) - _MAX_MODELS} more" if len(cards) > _MAX_MODELS else ""
    key = "needed on every route but /health" if needs_key else "none needed"
    return [
        f"turbospark {__version__}{device}",
        f"  model    {names}{more}",
        f"  OpenAI   {url}/v1",
        f"  API key  {key}",
        f"ready in {seconds:.1f} s; Ctrl-C stops the server",
    ]
