"""One sequence in the engine: what it may still generate, and the events its tokens turn into."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from turbospark_cli.runtime.engine.answer_text import AnswerText
from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.events import Event, Finished, FinishReason, TextDelta, TokenLogprob, Usage
from turbospark_cli.runtime.requests import GenerationRequest


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's prompt, tokenized and checked: it fits the context and its ids are valid."""

    ids: list[int]
    budget: int  # tokens that may be generated, at least 1


class Sequence:
    """A request on its way through the engine."""

    def __init__(
        self, sequence_id: int, request: GenerationRequest, prompt: Prompt, tokenizer: Tokenizer
    ) -> None:
        self.id = sequence_id
        self.request = request
        self.prompt = prompt
        self.seed = secrets.randbits(63) if request.sampling.seed is None else request.sampling.seed
        self.generated = 0
        self.finished = False
        self._end_ids = frozenset() if request.ignore_eos else tokenizer.end_ids
        self._text = AnswerText(tokenizer.stream(), request.stop)
        self._unsaid: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._holds = False  # keeps its words until the end

    def accept(self, token_id: int, logprob: TokenLogprob | None = None) -> list[Event]:
        """The events of one more token; the last of them is `Finished` when it ends the sequence."""
        self.generated += 1
        if token_id in self._end_ids:
            return self._finish("stop", self._text.finish())
        if logprob is not None:
            self._logprobs.append(logprob)
        text = self._text.push(token_id)
        if self._text.matched is not None:
            return self._finish("stop", text)
        if self.generated >= self.prompt.budget:
            return self._finish("length", text + self._text.finish())
        return self._delta(text)

    def finish(self) -> list[Event]:
        """The events of an end that no token of the vocabulary stands for."""
        return self._finish("stop", self._text.finish())

    def _delta(self, text: str, *, last: bool = False) -> list[Event]:
        if text:
            self._unsaid.append(text)
        if not (self._unsaid or self._logprobs) or (self._holds and not last):
            return []
        # PERF: an answer that nobody reads before its end need not be told token by token.
        self._holds = not self.request.stream
        delta = TextDelta("".join(self._unsaid), tuple(self._logprobs))
        self._unsaid.clear()
        self._logprobs.clear()
        return [delta]

    def _finish(self, reason: FinishReason, text: str) -> list[Event]:
        self.finished = True
        if self._text.matched is not None:
            reason = "stop"
        usage = Usage(len(self.prompt.ids), self.generated)
        return [*self._delta(text, last=True), Finished(reason, usage, self._text.matched)]
