"""From a sequence's ids, one at a time, to its text in whole characters."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final, Protocol

import tokenizers

_HELD_AT_MOST: Final = 32  # ids; a longer run without a whole character is not UTF-8
_utf8 = codecs.getincrementaldecoder("utf-8")


class TextStream(Protocol):
    """Ids in, whole characters out; all of it together is the text of a whole decode."""

    def step(self, token_id: int) -> str:
        """The text that this id completes; empty while a character is unfinished."""

    def flush(self) -> str:
        """What is left at the end: an unfinished character reads as U+FFFD, as in a whole decode."""


class ByteStream:
    """For byte-level tokenizers, whose tokens are bytes whatever stands beside them."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = _utf8("replace")

    def step(self, token_id: int) -> str:
        """As in TextStream."""
        return self._decoder.decode(self._bytes_of(token_id))

    def flush(self) -> str:
        """As in TextStream."""
        return self._decoder.decode(b"", final=True)


class TokenStream:
    """For every tokenizer.

    Decoders look at neighbours (the first word of a text loses its space), so ids are decoded together with
    those that gave the text before. Bytes that are not UTF-8 can change how earlier ones read; what has been
    said stays said. The library's own DecodeStream raises there.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []  # the ids of the last text
        self._held: list[int] = []  # ids since then: the bytes of an unfinished character

    def step(self, token_id: int) -> str:
        """As in TextStream."""
        self._held.append(token_id)
        text = self._new_text()
        if not text or (text.endswith("\ufffd") and len(self._held) < _HELD_AT_MOST):
            return ""
        self._before, self._held = self._held, []
        return text

    def flush(self) -> str:
        """As in TextStream."""
        text = self._new_text() if self._held else ""
        self._before, self._held = self._held, []
        return text

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._before, skip_special_tokens=True)
        text = self._tokenizer.decode(self._before + self._held, skip_special_tokens=True)
        if text.startswith(before):
            return text[len(before) :]
        return self._tokenizer.decode(self._held, skip_special_tokens=True)


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character (GPT-2's table); this is its inverse.

    Printable Latin-1 bytes stand for themselves; the others take the code points from 256 up, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in table)
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


BYTE_OF: Final = _byte_alphabet()
