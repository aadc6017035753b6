"""A model's tokenizer: text to ids, ids to text, and the exact bytes of one token."""

from __future__ import annotations

import functools
import json
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import tokenizers

from turbospark_cli.errors import CorruptInstall
from turbospark_cli.runtime.engine.template import ChatTemplate
from turbospark_cli.runtime.engine.token_stream import BYTE_OF, ByteStream, TextStream, TokenStream

_BYTE_TOKEN_LENGTH: Final = 6  # "<0x0A>"
_TOKENS_KEPT: Final = 65536  # whose bytes are remembered


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

    def stream(self) -> TextStream:
        """A decoder for one sequence."""
        return ByteStream(self._stream_bytes) if self._is_byte_level else TokenStream(self._tokenizer)

    @functools.lru_cache(maxsize=_TOKENS_KEPT)  # noqa: B019 - one tokenizer lives as long as its process
    def _stream_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a decoded text; special tokens add none."""
        piece = self._tokenizer.id_to_token(token_id)
        if piece is None or token_id in self._hidden:
            return b""
        return bytes(map(BYTE_OF.__getitem__, piece)) if BYTE_OF.keys() >= set(piece) else piece.encode()

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
            return bytes(map(BYTE_OF.__getitem__, piece)) if BYTE_OF.keys() >= set(piece) else piece.encode()
        if len(piece) == _BYTE_TOKEN_LENGTH and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("▁", " ").encode()

    @cached_property
    def _special(self) -> frozenset[str]:
        return frozenset(token.content for token in self._tokenizer.get_added_tokens_decoder().values())

    @cached_property
    def _hidden(self) -> frozenset[int]:
        added = self._tokenizer.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    @cached_property
    def _decoder(self) -> Any:
        return json.loads(self._tokenizer.to_str()).get("decoder")

    @cached_property
    def _byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(self._decoder)

    @cached_property
    def _is_byte_level(self) -> bool:
        """Decoding is nothing but joining bytes."""
        return isinstance(self._decoder, dict) and self._decoder.get("type") == "ByteLevel"

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
