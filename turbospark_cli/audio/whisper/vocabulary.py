"""Whisper's tokens: text, and the special ones, whose ids follow from each other by rule.

From the end of text on, all checkpoints count: start of transcript, the languages, translate, transcribe,
start of LM, start of previous text, no speech, no timestamps, then one token for every 20 ms. Tokenizer files
differ in what they call these and may lack the times, so only three are looked up by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from turbospark_cli.audio.whisper.config import Dimensions, Generation
from turbospark_cli.errors import CorruptInstall

TIME_STEP: Final = 0.02  # seconds from one timestamp token to the next
REPLACEMENT: Final = "\ufffd"
_SYMBOLS: Final = [*'"#()*+/:;<=>@[\\]^_`{|}~「」『』', "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-["]
_MORE_SYMBOLS: Final = ["('", '("', "((", "))", "(((", ")))", "[[", "]]", "{{", "}}", "♪♪", "♪♪♪"]
_MUSIC: Final = "♩♪♫♬♭♮♯"
_TRANSLATE, _TRANSCRIBE, _LM, _PREVIOUS, _NO_SPEECH = 5, 4, 3, 2, 1  # ids before <|notimestamps|>


class Vocabulary:
    """One model's tokens."""

    def __init__(self, folder: Path, dimensions: Dimensions, generation: Generation) -> None:
        """Raises CorruptInstall when tokenizer.json cannot be used with this model."""
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            ids = self._tokenizer.get_vocab(with_added_tokens=True)
            self.end, self.start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
            self.no_timestamps: int = ids["<|notimestamps|>"]
        except Exception as error:  # tokenizers raises nothing more specific
            raise _unusable(folder) from error
        self.size = dimensions.vocab
        self.first_time = self.no_timestamps + 1
        self.last_time = min(self.size - 1, self.first_time + dimensions.audio_context)
        self.translate, self.transcribe = self.no_timestamps - _TRANSLATE, self.no_timestamps - _TRANSCRIBE
        self.previous, self.no_speech = self.no_timestamps - _PREVIOUS, self.no_timestamps - _NO_SPEECH
        names = [self._tokenizer.id_to_token(token) or "" for token in range(self.start + 1, self.translate)]
        codes = [name.removeprefix("<|").removesuffix("|>") for name in names]
        self.languages = {code: self.start + 1 + place for place, code in enumerate(codes) if code}
        if self.start != self.end + 1 or not self.languages or self.first_time >= self.size:
            raise _unusable(folder)
        if not dimensions.multilingual:
            self.languages = {}
        self.suppressed = self._suppressed(generation)
        self.suppressed_first = generation.suppressed_first or (*self.encode(" "), self.end)

    def encode(self, text: str) -> list[int]:
        """The tokens of plain text; the name of a special token in it is dropped."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token < self.end]

    def text(self, tokens: Iterable[int]) -> str:
        """The text of `tokens`; special ones are left out."""
        words: str = self._tokenizer.decode([token for token in tokens if token < self.end])
        return words

    def beginning(self, language: str | None, task: str) -> list[int]:
        """What a transcript begins with; `language` None for an English-only model."""
        if language is None:
            return [self.start]
        return [
            self.start,
            self.languages[language],
            self.translate if task == "translate" else self.transcribe,
        ]

    def is_time(self, token: int) -> bool:
        """Whether a token is a timestamp."""
        return token >= self.first_time

    def seconds(self, token: int) -> float:
        """The time that a timestamp token stands for."""
        return (token - self.first_time) * TIME_STEP

    def characters(self, tokens: Sequence[int]) -> list[list[int]]:
        """`tokens` cut wherever what came before is whole characters."""
        whole = self.text(tokens)
        done: list[list[int]] = []
        current: list[int] = []
        offset = 0
        for token in tokens:
            current.append(token)
            text = self.text(current)
            hole = text.find(REPLACEMENT)
            # A replacement character that the whole text has, too, was said; others are half a character.
            if hole < 0 or whole[offset + hole : offset + hole + 1] == REPLACEMENT:
                done.append(current)
                offset += len(text)
                current = []
        return [*done, current] if current else done

    def _suppressed(self, generation: Generation) -> tuple[int, ...]:
        found = set(self._not_speech() if generation.suppressed is None else generation.suppressed)
        found |= {self.start, self.translate, self.transcribe, self.no_timestamps - _LM, self.previous}
        return tuple(sorted({*found, self.no_speech}))

    def _not_speech(self) -> set[int]:
        """Tokens of annotations and music, which nobody speaks; quotes and hyphens only before a word."""
        found = {self.encode(" -")[0], self.encode(" '")[0]}
        for symbol in [*_SYMBOLS, *_MORE_SYMBOLS, *_MUSIC]:
            for tokens in (self.encode(symbol), self.encode(f" {symbol}")):
                if len(tokens) == 1 or symbol in _MUSIC:
                    found.add(tokens[0])
        return found


def _unusable(folder: Path) -> CorruptInstall:
    return CorruptInstall(
        f"tokenizer.json of {folder.stem} is missing or does not fit its weights.",
        hint=f"`turbospark models pull --force {folder.stem}` installs it anew.",
    )
