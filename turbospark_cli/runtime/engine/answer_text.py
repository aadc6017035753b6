"""From token ids to the text that may be shown: whole characters, cut at the first stop string.

Text that could still turn out to be the start of a stop string is held back until the next token decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from turbospark_cli.runtime.engine.token_stream import TextStream


class AnswerText:
    """The text side of one sequence."""

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self._stream = stream
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None  # the stop string that ended the text

    def push(self, token_id: int) -> str:
        """Text that this token makes certain. After a match (`matched`) nothing more may be pushed."""
        return self._release(self._stream.step(token_id))

    def finish(self) -> str:
        """The rest, when the sequence ends for another reason than a stop string."""
        text = self._release(self._stream.flush())
        if self.matched is None:
            text, self._held = text + self._held, ""
        return text

    def _release(self, new: str) -> str:
        if not self._stops:
            return new
        text = self._held + new
        found = [(index, stop) for stop in self._stops if (index := text.find(stop)) >= 0]
        if found:
            # The one that is complete first, and of two that end together the longer: so the answer does not
            # depend on how the text was cut into tokens, nor on the order of the request.
            index, self.matched = min(found, key=lambda hit: (hit[0] + len(hit[1]), hit[0]))
            self._held = ""
            return text[:index]
        keep = max(_overlap(text, stop) for stop in self._stops)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a true beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
