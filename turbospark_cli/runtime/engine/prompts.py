"""From a request to token ids that the model can take; safe to run beside the model's own thread."""

from __future__ import annotations

from turbospark_cli.errors import ContextLengthExceeded, InvalidRequest
from turbospark_cli.runtime.engine.sequence import Prompt
from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, TextPrompt, TokenPrompt


class PromptReader:
    """Renders, tokenizes and checks; MLX checks no index, so every id is checked here."""

    def __init__(self, tokenizer: Tokenizer, context_length: int, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._vocab_size = vocab_size

    def read(self, request: GenerationRequest) -> Prompt:
        """Raises InvalidRequest or ContextLengthExceeded, naming the field."""
        for token_id in request.sampling.logit_bias:
            self._check_id(token_id, "logit_bias")
        ids = self._ids(request.prompt)
        if not ids:
            raise InvalidRequest("The prompt is empty; send at least one token.", param="messages")
        for token_id in (min(ids), max(ids)):
            self._check_id(token_id, "prompt")
        room = self._context_length - len(ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {self._context_length} tokens, but the prompt has "
                f"{len(ids)} tokens. Shorten the conversation.",
                param="messages",
            )
        wanted = request.max_tokens
        return Prompt(ids, room if wanted is None else min(wanted, room))

    def _ids(self, prompt: ChatPrompt | TextPrompt | TokenPrompt) -> list[int]:
        if isinstance(prompt, TokenPrompt):
            return list(prompt.ids)
        if isinstance(prompt, TextPrompt):
            return self._tokenizer.encode(prompt.text, special_tokens=True)
        template = self._tokenizer.template
        if template is None:
            raise InvalidRequest(
                "This model has no chat template, so it cannot answer a conversation; use an instruct model."
            )
        text = template.render(prompt.messages, prompt.template_options)
        return self._tokenizer.encode(text, special_tokens=False)

    def _check_id(self, token_id: int, param: str) -> None:
        if not 0 <= token_id < self._vocab_size:
            raise InvalidRequest(
                f"{param} holds the token id {token_id}, which is outside this model's vocabulary "
                f"(0 to {self._vocab_size - 1}).",
                param=param,
            )
