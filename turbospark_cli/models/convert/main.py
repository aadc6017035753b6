"""One GGUF file into the files of a text install, all but the receipt."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert import config, gguf_reader, safetensors, tokenizer, weights
from turbospark_cli.models.convert.architectures import ARCHITECTURES
from turbospark_cli.models.convert.facts import Facts
from turbospark_cli.models.convert.layout import Move, moves
from turbospark_cli.models.convert.shape import read_shape
from turbospark_cli.models.convert.vocabulary import Vocabulary, read_vocabulary

_LONGEST_TEMPLATE: Final = 1024 * 1024  # characters


def convert(source: Path, target: Path, progress: Callable[[int, int], None]) -> Facts:
    """Convert `source` into the existing, empty folder `target`; `progress` gets (tensors done, all tensors).

    Raises ConversionFailed, which says in one sentence why this file cannot be converted.
    """
    gguf = gguf_reader.read(source)
    name = gguf.metadata.text("general.architecture")
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise ConversionFailed(
            f"GGUF files of the architecture {name[:40]!r} are not supported; {known} are."
        )
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None:
        raise ConversionFailed("The GGUF file lacks the tensor 'token_embd.weight'.")
    shape = read_shape(gguf.metadata, name, embedding.shape[0])
    todo = moves(gguf.tensors, architecture, shape)
    vocabulary = read_vocabulary(gguf.metadata, shape.vocab)
    template = _chat_template(gguf.metadata.values.get("tokenizer.chat_template"))

    built = tokenizer.build(gguf.metadata, vocabulary)
    (target / "tokenizer.json").write_text(built.to_str(pretty=True), "utf-8")
    _write_json(
        target / "tokenizer_config.json", tokenizer.tokenizer_config(vocabulary, shape.context, template)
    )
    model_config = config.model_config(architecture, shape, gguf.metadata, todo)
    _write_json(target / "config.json", model_config | _token_ids(vocabulary))
    _write_json(target / "generation_config.json", _token_ids(vocabulary))
    if template is not None:
        (target / "chat_template.jinja").write_text(template, "utf-8")
    plans = [plan for move in todo for plan in weights.plan(move.tensor, move.name)]
    safetensors.write(target / "model.safetensors", plans, _arrays(todo, progress))

    return Facts(
        architecture=architecture.model_type,
        context_length=shape.context,
        parameters=sum(_elements(move) for move in todo),
        bits=config.most_common_bits(todo),
        group_size=weights.GROUP,
        stored_as=_most_common_type(todo),
        has_chat_template=template is not None,
    )


def _arrays(todo: Sequence[Move], progress: Callable[[int, int], None]) -> Iterator[weights.Array]:
    for done, move in enumerate(todo):
        progress(done, len(todo))
        yield from weights.arrays(move.tensor, move.change)
    progress(len(todo), len(todo))


def _most_common_type(todo: Sequence[Move]) -> str:
    sizes: Counter[str] = Counter()
    for move in todo:
        sizes[move.tensor.type.name] += move.tensor.data.size
    return sizes.most_common(1)[0][0]


def _elements(move: Move) -> int:
    return math.prod(move.tensor.shape)


def _token_ids(vocabulary: Vocabulary) -> dict[str, Any]:
    roles = {"bos_token_id": vocabulary.bos, "pad_token_id": vocabulary.pad}
    ids: dict[str, Any] = {role: token for role, token in roles.items() if token is not None}
    return ids | {"eos_token_id": vocabulary.ends}


def _chat_template(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _LONGEST_TEMPLATE:
        raise ConversionFailed("The GGUF file holds a chat template that cannot be used.")
    return value


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
