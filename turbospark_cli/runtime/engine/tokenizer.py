"""A model's tokenizer: text to ids, ids to text, and the exact bytes of one token."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import tokenizers

from turbospark_cli.errors import CorruptInstall
from turbospark_cli.runtime.engine.template import ChatTemplate

_BYTE_TOKEN_LENGTH: Final = 6  # "<0x0A>"
_HELD_AT_MOST: Final = 32  # ids; a longer run without a whole character is not UTF-8


class Tokenizer:
    """`tokenizer.json` with what lies beside it: the chat template and the end tokens."""

    def __init__(self, folder: Path) -> None:
        """Raises CorruptInstall when the files are missing or unreadable."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises a bare Exception
            raise CorruptInstall("The folder has no readable tokenizer.json.") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._settings = _optional_json(folder / "tokenizer_config.json")
        self.template = self._load_template(folder)
        self.end_ids = self._load_end_ids(folder)

    @property
    def size(self) -> int:
        """Number of ids, special ones included."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        """Token ids; `special_tokens` adds what the model wants around a raw text (such as BOS)."""
        return self._tokenizer.encode(text, add_special_tokens=special_tokens).ids

    def decode(self, ids: list[int]) -> str:
        """Text of whole ids; incomplete UTF-8 becomes U+FFFD and special tokens are left out."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def stream(self) -> TokenStream:
        """A decoder for one sequence."""
        return TokenStream(self._tokenizer)

    def token(self, token_id: int) -> tuple[str, bytes]:
        """How one token reads and its exact bytes, which need not be whole characters."""
        piece = self._tokenizer.id_to_token(token_id)
        if piece is None:  # ids past the vocabulary pad the logits of many models
            return "", b""
        data = self._piece_bytes(piece)
        return data.decode("utf-8", "replace"), data

    def _piece_bytes(self, piece: str) -> bytes:
        if piece in self._special:
            return piece.encode()
        if self._byte_level:
            return bytes(_BYTE_OF[c] for c in piece) if all(c in _BYTE_OF for c in piece) else piece.encode()
        if len(piece) == _BYTE_TOKEN_LENGTH and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("▁", " ").encode()

    @cached_property
    def _special(self) -> frozenset[str]:
        return frozenset(token.content for token in self._tokenizer.get_added_tokens_decoder().values())

    @cached_property
    def _byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(json.loads(self._tokenizer.to_str()).get("decoder"))

    def _load_template(self, folder: Path) -> ChatTemplate | None:
        source: object = self._settings.get("chat_template")
        file = folder / "chat_template.jinja"
        if file.is_file():
            source = _read_template(file)
        elif isinstance(source, list):  # several named templates
            named = {row.get("name"): row.get("template") for row in source if isinstance(row, dict)}
            source = named.get("default")
        if not isinstance(source, str):
            return None
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        texts = {name: _token_text(self._settings.get(name)) for name in names}
        return ChatTemplate(source, {name: text for name, text in texts.items() if text is not None})

    def _load_end_ids(self, folder: Path) -> frozenset[int]:
        """Every id that ends an answer: generation_config.json, config.json and the tokenizer's own EOS."""
        ids: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            value = _optional_json(folder / name).get("eos_token_id")
            ids.update(v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int))
        text = _token_text(self._settings.get("eos_token"))
        own = self._tokenizer.token_to_id(text) if text else None
        return frozenset(ids if own is None else ids | {own})


class TokenStream:
    """Ids in, whole characters out.

    Decoders look at neighbours (the first word of a text loses its space), so ids are decoded together with
    those that gave the text before. Bytes that are not UTF-8 can change how earlier ones read; what has been
    said stays said. The library's own DecodeStream raises there.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []  # the ids of the last text
        self._held: list[int] = []  # ids since then: the bytes of an unfinished character

    def step(self, token_id: int) -> str:
        """The text that this id completes; empty while a character is unfinished."""
        self._held.append(token_id)
        text = self._new_text()
        if not text or (text.endswith("\ufffd") and len(self._held) < _HELD_AT_MOST):
            return ""
        self._before, self._held = self._held, []
        return text

    def flush(self) -> str:
        """What is left at the end: an unfinished character reads as U+FFFD, as in a whole decode."""
        text = self._new_text() if self._held else ""
        self._before, self._held = self._held, []
        return text

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._before, skip_special_tokens=True)
        text = self._tokenizer.decode(self._before + self._held, skip_special_tokens=True)
        if text.startswith(before):
            return text[len(before) :]
        return self._tokenizer.decode(self._held, skip_special_tokens=True)


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CorruptInstall(f"The model's {path.name} cannot be read; pull the model again.") from error


def _optional_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptInstall(f"The model's {path.name} cannot be read; pull the model again.") from error
    return value if isinstance(value, dict) else {}


def _token_text(value: object) -> str | None:
    """Special tokens stand in tokenizer_config.json as text or as an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character (GPT-2's table); this is its inverse.

    Printable Latin-1 bytes stand for themselves; the others take the code points from 256 up, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if chr(byte) not in table)
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


_BYTE_OF: Final = _byte_alphabet()
