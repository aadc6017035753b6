"""Admission to one engine: a fixed number of slots and a bounded first-in first-out queue before them.

GUARANTEES. Nobody overtakes: a slot is free for a newcomer only while nobody waits. A freed slot goes to
the longest waiting entry in the same call. Leaving, from whatever place, costs O(1).
Knows nothing of events or engines; entries only have to be hashable.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

Entry = TypeVar("Entry", bound=Hashable)

_SMOOTHING: Final = 0.2
LONGEST_RETRY: Final = 60  # seconds


class AdmissionQueue(Generic[Entry]):
    """`slots` entries run, up to `max_depth` more wait."""

    __slots__ = ("_waiting", "max_depth", "running", "slots")

    def __init__(self, slots: int, max_depth: int) -> None:
        self.slots = slots
        self.max_depth = max_depth
        self.running = 0
        self._waiting: dict[Entry, None] = {}  # a dict keeps order and removes from the middle in O(1)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self.max_depth

    def take_slot(self) -> bool:
        """Occupies a slot if one is free and nobody is waiting for it."""
        if self.running >= self.slots or self._waiting:
            return False
        self.running += 1
        return True

    def join(self, entry: Entry) -> int:
        """Puts `entry` at the end and returns its position, from 1; the caller has looked at `full`."""
        self._waiting[entry] = None
        return len(self._waiting)

    def leave(self, entry: Entry) -> bool:
        """Takes a waiting `entry` out; False if it was not waiting."""
        if entry not in self._waiting:
            return False
        del self._waiting[entry]
        return True

    def release_slot(self) -> Entry | None:
        """Gives a slot back; if somebody waits, it is theirs at once and they are returned."""
        if self._waiting:
            entry = next(iter(self._waiting))
            del self._waiting[entry]
            return entry
        self.running -= 1
        return None

    def positions(self) -> Iterator[tuple[int, Entry]]:
        """(position, entry) of all who wait, next one first."""
        return enumerate(self._waiting, start=1)


class Pace:
    """How fast a full queue drains, to tell a refused client when to come back."""

    __slots__ = ("_interval", "_last")

    def __init__(self) -> None:
        self._interval: float | None = None  # seconds between two handovers of a slot, smoothed
        self._last: float | None = None

    def handover(self, now: float, *, waiting: bool) -> None:
        """A slot went to a waiting entry at `now`; `waiting` tells whether others still wait."""
        if self._last is not None:
            interval = now - self._last
            old = interval if self._interval is None else self._interval
            self._interval = old + _SMOOTHING * (interval - old)
        # What passes while nobody waits says nothing about the engine's speed.
        self._last = now if waiting else None

    def retry_after(self, waiting: int) -> int:
        """Whole seconds until `waiting` entries have been served, between 1 and `LONGEST_RETRY`."""
        return max(1, min(LONGEST_RETRY, math.ceil((self._interval or 0.0) * waiting)))
