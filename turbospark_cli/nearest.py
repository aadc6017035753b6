"""The names nearest to one that nobody knows: shown, never guessed."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The `count` known names most like `name`, best first; all of them when there are no more."""
    from difflib import SequenceMatcher

    wanted = name.lower()
    ratio = {word: SequenceMatcher(None, wanted, word.lower()).ratio() for word in known}
    return sorted(ratio, key=lambda word: (-ratio[word], word))[:count]
