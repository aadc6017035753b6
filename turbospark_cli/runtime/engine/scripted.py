"""The scripted engine: canned completions through the real pipeline, for tests of clients and protocols.

Template, tokenizer, stop strings, token budget and usage are those of a real engine; only the tokens come
from a script instead of a model. A script file is a JSON list of entries

    {"match": "weather", "text": "It is sunny.", "delay": 0.5, "interval": 0.05, "error": "..."}

tried in order. `match` is a regular expression searched in the last message (absent: always). `delay` is
seconds before the first token, `interval` seconds between tokens (0: all at once). `error` ends the
sequence with that error after the text. Without a script, or when nothing matches, a fixed sentence answers.
"""

from __future__ import annotations

import functools
import re
import time
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from turbospark_cli.errors import UsageError
from turbospark_cli.runtime.channel import EngineInfo
from turbospark_cli.runtime.engine.prompts import PromptReader
from turbospark_cli.runtime.engine.sequence import Prompt, Sequence
from turbospark_cli.runtime.engine.tokenizer import Tokenizer
from turbospark_cli.runtime.events import Event, Failed, Started
from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, TextPrompt, TokenPrompt

_CONTEXT: Final = 32768  # tokens; what coding agents expect at least
_ANSWER: Final = "This is a scripted answer."


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a script."""

    text: str = ""
    match: str | None = None
    delay: float = 0.0
    interval: float = 0.0
    error: str | None = None


def read_script(path: Path) -> list[tuple[re.Pattern[str] | None, Entry]]:
    """Raises UsageError when the file is missing or is not a script."""
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[Entry])
        return [(re.compile(entry.match) if entry.match else None, entry) for entry in entries]
    except OSError as error:
        raise UsageError(f"The script {path.name} cannot be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, re.error) as error:
        raise UsageError(f"The script {path.name} is not a list of entries: {error}.") from error


class _Run:
    """A sequence with the tokens it will say and when."""

    def __init__(self, sequence: Sequence, tokens: deque[int], entry: Entry) -> None:
        self.sequence = sequence
        self.tokens = tokens
        self.entry = entry
        self.started = False
        self.due = time.monotonic() + entry.delay


class ScriptedEngine:
    """Plays a script; `folder` holds tokenizer.json and, if there is one, a chat template."""

    def __init__(self, folder: Path, script: Path | None) -> None:
        """Raises CorruptInstall for a folder without a tokenizer and UsageError for a bad script."""
        self._tokenizer = Tokenizer(folder)
        # PERF: clients under test send the same words again and again, and a script says the same ones.
        self._encode = functools.lru_cache(256)(self._encode_anew)
        self._script = read_script(script) if script else []
        self._prompts = PromptReader(self._tokenizer, _CONTEXT, self._tokenizer.size)
        self._runs: dict[int, _Run] = {}
        self.info = EngineInfo(_CONTEXT, self._tokenizer.size, "cpu", "scripted answers, no model")

    @property
    def idle(self) -> bool:
        """Nothing to do until the next `start`."""
        return not self._runs

    @property
    def pause(self) -> float:
        """Seconds until the next token is due."""
        if not self._runs:
            return 0.0
        return max(0.0, min(run.due for run in self._runs.values()) - time.monotonic())

    def prepare(self, request: GenerationRequest) -> Prompt:
        """As a real engine; a tokenizer without a chat template counts the messages' texts."""
        prompt = request.prompt
        if isinstance(prompt, ChatPrompt):
            template = self._tokenizer.template
            if template is None:
                text = "\n".join(message.content for message in prompt.messages)
            else:
                text = template.render(prompt.messages, prompt.template_options)
            ids = self._encode(text, template is None)
            request = msgspec.structs.replace(request, prompt=TokenPrompt(ids))
        return self._prompts.read(request)

    def start(self, sequence_id: int, request: GenerationRequest, prompt: Prompt) -> None:
        """Let a prepared request play its entry."""
        entry = self._entry(_last_words(request))
        tokens = deque(self._encode(entry.text, False))
        sequence = Sequence(sequence_id, request, prompt, self._tokenizer)
        self._runs[sequence_id] = _Run(sequence, tokens, entry)

    def _encode_anew(self, text: str, special_tokens: bool) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, special_tokens=special_tokens))

    def abort(self, sequence_id: int) -> None:
        """Forget a sequence; unknown ids are ignored."""
        self._runs.pop(sequence_id, None)

    def step(self) -> list[tuple[int, Event]]:
        """The tokens that are due, for every sequence."""
        events: list[tuple[int, Event]] = []
        now = time.monotonic()
        for sequence_id, run in list(self._runs.items()):
            if run.due <= now:
                events.extend((sequence_id, event) for event in self._play(run, now))
                if run.sequence.finished:
                    del self._runs[sequence_id]
        return events

    def _play(self, run: _Run, now: float) -> list[Event]:
        events: list[Event] = []
        sequence = run.sequence
        if not run.started:
            run.started = True
            events.append(Started(len(sequence.prompt.ids)))
        while run.tokens and not sequence.finished:
            events.extend(sequence.accept(run.tokens.popleft()))
            if run.entry.interval:
                run.due = now + run.entry.interval
                break
        if not run.tokens and not sequence.finished:
            events.extend(sequence.finish())
            if run.entry.error is not None:
                events[-1] = Failed("internal_error", run.entry.error)
        return events

    def _entry(self, words: str) -> Entry:
        for pattern, entry in self._script:
            if pattern is None or pattern.search(words):
                return entry
        return Entry(text=_ANSWER)


def _last_words(request: GenerationRequest) -> str:
    """What `match` looks at."""
    prompt = request.prompt
    if isinstance(prompt, TokenPrompt):
        return ""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    return prompt.messages[-1].content if prompt.messages else ""
