"""One CTranslate2 Whisper, as faster-whisper's models are, into the files of an install, all but the receipt.

`config.json` and `tokenizer.json` lie beside the weights. The first holds no sizes there, only token ids and
alignment heads, which go to `generation_config.json` under Hugging Face's names.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert import ctranslate2_reader, safetensors
from turbospark_cli.models.convert.facts import Facts
from turbospark_cli.models.convert.whisper_layout import Move, Shape, moves, read_shape

_REVISION: Final = 3
_LARGEST_JSON: Final = 32 * 1024 * 1024  # bytes
_NEEDED: Final = ("<|endoftext|>", "<|startoftranscript|>", "<|translate|>", "<|notimestamps|>")
_IDS: Final = {"suppress_ids": "suppress_tokens", "suppress_ids_begin": "begin_suppress_tokens"}
_MOST_IDS: Final = 4096
_MULTILINGUAL_VOCAB: Final = 51_865  # the English-only models have fewer tokens


def convert(source: Path, target: Path, progress: Callable[[int, int], None]) -> Facts:
    """Convert `source` into the existing, empty folder `target`; `progress` gets (tensors done, all tensors).

    Raises ConversionFailed, which says in one sentence why this file cannot be converted.
    """
    model = ctranslate2_reader.read(source)
    if (model.specification, model.revision) != ("WhisperSpec", _REVISION):
        raise ConversionFailed(f"The CTranslate2 file holds {model.specification[:40]!r}, not a Whisper.")
    shape = read_shape(model.variables)
    todo = moves(model.variables, shape)
    config = _read_json(source.with_name("config.json"))
    tokenizer = _read_tokenizer(source.with_name("tokenizer.json"), shape)
    languages = _languages(tokenizer, shape)

    (target / "tokenizer.json").write_bytes(source.with_name("tokenizer.json").read_bytes())
    _write_json(target / "config.json", shape.config())
    _write_json(target / "generation_config.json", _generation_config(config, shape))
    safetensors.write(target / "model.safetensors", [move.plan for move in todo], _arrays(todo, progress))
    return Facts(
        architecture="whisper",
        context_length=shape.text_context,
        parameters=sum(math.prod(move.plan.shape) for move in todo),
        bits=None,
        group_size=0,
        stored_as=_most_common_type(todo),
        languages=languages,
    )


def _arrays(todo: Sequence[Move], progress: Callable[[int, int], None]) -> Iterator[np.ndarray[Any, Any]]:
    for done, move in enumerate(todo):
        progress(done, len(todo))
        yield move.values()
    progress(len(todo), len(todo))


def _most_common_type(todo: Sequence[Move]) -> str:
    sizes: Counter[str] = Counter()
    for move in todo:
        sizes[move.variable.type] += math.prod(move.plan.shape)
    return sizes.most_common(1)[0][0]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise ConversionFailed(f"{path.name} of the model is too large to be one.")
        value = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConversionFailed(f"{path.name} of the model cannot be read.")
    return value


def _read_tokenizer(path: Path, shape: Shape) -> Tokenizer:
    _read_json(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        raise ConversionFailed("tokenizer.json of the model cannot be read.") from error
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if max(ids.values(), default=0) >= shape.vocab or not all(token in ids for token in _NEEDED):
        raise ConversionFailed("tokenizer.json of the model does not fit its weights.")
    return tokenizer


def _languages(tokenizer: Tokenizer, shape: Shape) -> tuple[str, ...]:
    """The codes of the languages that the model knows; their tokens lie between two others."""
    if shape.vocab < _MULTILINGUAL_VOCAB:
        return ("en",)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    first, last = ids["<|startoftranscript|>"], ids["<|translate|>"]
    texts = [tokenizer.id_to_token(token) or "" for token in range(first + 1, last)]
    return tuple(text[2:-2] for text in texts if text.startswith("<|") and text.endswith("|>"))


def _generation_config(config: dict[str, Any], shape: Shape) -> dict[str, Any]:
    made: dict[str, Any] = {"is_multilingual": shape.vocab >= _MULTILINGUAL_VOCAB}
    for stored, name in _IDS.items():
        if stored in config:
            made[name] = _numbers(config[stored], stored, shape.vocab)
    if "alignment_heads" in config:
        pairs = config["alignment_heads"]
        if not isinstance(pairs, list) or not 1 <= len(pairs) <= _MOST_IDS:
            raise _unusable("alignment_heads")
        made["alignment_heads"] = [_pair(pair, shape) for pair in pairs]
    return made


def _pair(pair: object, shape: Shape) -> list[int]:
    numbers = _numbers(pair, "alignment_heads", max(shape.text_layers, shape.text_heads))
    if len(numbers) != 2 or numbers[0] >= shape.text_layers or numbers[1] >= shape.text_heads:
        raise _unusable("alignment_heads")
    return numbers


def _numbers(value: object, name: str, below: int) -> list[int]:
    if not isinstance(value, list) or len(value) > _MOST_IDS:
        raise _unusable(name)
    if not all(type(number) is int and 0 <= number < below for number in value):
        raise _unusable(name)
    return value


def _unusable(name: str) -> ConversionFailed:
    return ConversionFailed(f"config.json of the model holds unusable {name}.")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
