"""Prompts of a wanted length that no cache has seen before."""

from __future__ import annotations

import random
from typing import Final

from turbospark_cli.errors import UsageError

# Short, common words: about one token each for every tokenizer.
_WORDS: Final = (
    "water", "house", "light", "music", "paper", "green", "stone", "river", "table",
    "garden", "winter", "summer", "bread", "horse", "street", "window", "school", "doctor",
    "market", "letter", "bridge", "forest", "island", "morning", "evening", "silver", "engine",
    "button", "camera", "planet", "number", "circle", "story", "color", "voice", "travel",
)  # fmt: skip
_LONGEST: Final = 1_000_000


def lengths(pattern: str) -> list[int]:
    """Prompt lengths in tokens from `150`, `20,1000` or `1x1000,7x20`; requests take them in turn.

    Raises UsageError for anything else.
    """
    found: list[int] = []
    for part in pattern.split(","):
        times, by, length = part.strip().rpartition("x")
        try:
            count, tokens = int(times if by else 1), int(length)
        except ValueError:
            count, tokens = 0, 0
        if not (1 <= count <= 10_000 and 1 <= tokens <= _LONGEST):
            raise UsageError(
                f"{pattern!r} is not a list of prompt lengths.", hint="Examples: 150   20,1000   1x1000,7x20"
            )
        found += [tokens] * count
    return found


def text(length: int, seed: int) -> str:
    """A request of about `length` tokens that asks for a long answer.

    Prompts of different seeds differ from their first words on, so that a prefix cache cannot help.
    """
    rng = random.Random(seed)
    opening = f"{rng.randrange(10**6)}: "
    task = " Write a long story with all these words."
    words = max(length - 14, 1)  # the opening and the task are tokens, too
    return opening + " ".join(rng.choice(_WORDS) for _ in range(words)) + task
