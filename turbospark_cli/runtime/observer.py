"""What the runtime tells whoever keeps metrics; the runtime itself counts nothing for display."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class Observer(Protocol):
    """Called on the event loop, so every method must return at once and must not raise."""

    def first_token(self, model: str, seconds: float) -> None:
        """The first token arrived so long after the request did (TTFT, queueing included)."""

    def ended(self, model: str, outcome: str, prompt_tokens: int, completion_tokens: int) -> None:
        """A request is over, also when it was refused or aborted.

        `outcome` is its finish reason, or "aborted" when its client left, or the `code` of an error. An
        aborted or failed request reports 0 completion tokens, since only the engine's last word counts them,
        and its prompt only if it had a slot.
        """

    def engine_restarted(self, model: str) -> None:
        """An engine died and a fresh one is being started."""


class SilentObserver:
    """For runtimes that nobody watches."""

    def first_token(self, model: str, seconds: float) -> None:
        pass

    def ended(self, model: str, outcome: str, prompt_tokens: int, completion_tokens: int) -> None:
        pass

    def engine_restarted(self, model: str) -> None:
        pass


class Stats(Struct, frozen=True):
    """One model's present load; read when somebody asks, kept by nobody."""

    model: str
    running: int  # sequences that hold a slot
    waiting: int  # requests without one: parked for an engine, being checked, or queued
    restarts: int  # engines that died and were replaced since the start
