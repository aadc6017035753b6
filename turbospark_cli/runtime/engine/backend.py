"""What the engine's loop asks of whatever generates: the text engine or the scripted one."""

from __future__ import annotations

from typing import Protocol

from turbospark_cli.runtime.channel import EngineInfo
from turbospark_cli.runtime.engine.sequence import Prompt
from turbospark_cli.runtime.events import Event
from turbospark_cli.runtime.requests import GenerationRequest


class Backend(Protocol):
    """All but `prepare` is called from one thread."""

    info: EngineInfo

    @property
    def idle(self) -> bool:
        """Nothing to do until the next `start`."""

    @property
    def pause(self) -> float:
        """Seconds until `step` has something to do; 0 for at once."""

    def prepare(self, request: GenerationRequest) -> Prompt:
        """Render, tokenize and check a request; from any thread. Raises TurbosparkError."""

    def start(self, sequence_id: int, request: GenerationRequest, prompt: Prompt) -> None:
        """Let a prepared request run."""

    def abort(self, sequence_id: int) -> None:
        """Forget a sequence; no event of it follows. Unknown ids are ignored."""

    def step(self) -> list[tuple[int, Event]]:
        """One round for all sequences; their events in order."""
