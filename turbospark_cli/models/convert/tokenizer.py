"""`tokenizer.json` and its companions, built from a GGUF file's vocabulary.

Two kinds of tokenizer: byte-level BPE with the file's merges (`gpt2`), and SentencePiece BPE (`llama`), whose
merges follow from the scores of the pieces.
"""

from __future__ import annotations

from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert.metadata import Metadata
from turbospark_cli.models.convert.vocabulary import Vocabulary

_QWEN2: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3: Final = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_SPACE: Final = "▁"  # stands for a space inside SentencePiece pieces
_BYTE_PIECES: Final = [f"<0x{byte:02X}>" for byte in range(256)]


def build(metadata: Metadata, vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer that the file describes. Raises ConversionFailed."""
    kind = metadata.text("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    if kind not in builders:
        raise ConversionFailed(f"GGUF files with a {kind[:20]!r} tokenizer are not supported.")
    tokenizer = builders[kind](metadata, vocabulary)
    special = [vocabulary.tokens[token] for token in vocabulary.special]
    added = [vocabulary.tokens[token] for token in vocabulary.added]
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in special if text]
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added if text])
    if vocabulary.adds_bos and vocabulary.bos is not None:
        tokenizer.post_processor = _bos_first(vocabulary.tokens[vocabulary.bos], vocabulary.bos)
    return tokenizer


def tokenizer_config(vocabulary: Vocabulary, context: int, chat_template: str | None) -> dict[str, Any]:
    """`tokenizer_config.json`; roles that the file does not fill are left out."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": vocabulary.adds_bos,
    }
    roles = {
        "bos_token": vocabulary.bos,
        "eos_token": vocabulary.eos,
        "pad_token": vocabulary.pad,
        "unk_token": vocabulary.unknown,
    }
    config |= {role: vocabulary.text(token) for role, token in roles.items() if token is not None}
    if chat_template is not None:
        config["chat_template"] = chat_template
    return config


def _byte_level(metadata: Metadata, vocabulary: Vocabulary) -> Tokenizer:
    merges = [_halves(merge) for merge in metadata.texts("tokenizer.ggml.merges")]
    style = metadata.text("tokenizer.ggml.pre", "default")
    tokenizer = _bpe(vocabulary, merges, ignore_merges=style == "llama-bpe")
    tokenizer.pre_tokenizer = _pre_tokenizer(style)
    tokenizer.decoder = decoders.ByteLevel()
    if style == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _pre_tokenizer(style: str) -> pre_tokenizers.PreTokenizer:
    if style in ("default", "gpt-2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if style == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence(
            [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
        )
    patterns = {"qwen2": _QWEN2, "llama-bpe": _LLAMA3}
    if style not in patterns:
        raise ConversionFailed(f"GGUF files with the pre-tokenizer {style[:20]!r} are not supported.")
    split = pre_tokenizers.Split(Regex(patterns[style]), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _sentence_piece(metadata: Metadata, vocabulary: Vocabulary) -> Tokenizer:
    scores = metadata.numbers("tokenizer.ggml.scores", len(vocabulary.tokens))
    whole = {*vocabulary.special, *vocabulary.added}
    tokenizer = _bpe(vocabulary, _merges(vocabulary.tokens, scores, whole), fuse_unk=True, byte_fallback=True)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    after: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.flag("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(_SPACE))
        after.append(decoders.Strip(content=" ", left=1))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(after)
    return tokenizer


def _merges(tokens: list[str], scores: list[int] | list[float], whole: set[int]) -> list[tuple[str, str]]:
    """Every way to join two pieces into one; the best-scored first, which is how SentencePiece merges."""
    known = {text for token, text in enumerate(tokens) if token not in whole} - set(_BYTE_PIECES)
    found = [
        (-scores[token], text[:cut], text[cut:])
        for token, text in enumerate(tokens)
        if text in known
        for cut in range(1, len(text))
        if text[:cut] in known and text[cut:] in known
    ]
    found.sort(key=lambda merge: merge[0])
    return [(left, right) for _, left, right in found]


def _bpe(vocabulary: Vocabulary, merges: list[tuple[str, str]], **options: bool) -> Tokenizer:
    ids = {text: token for token, text in enumerate(vocabulary.tokens)}
    unknown = vocabulary.text(vocabulary.unknown) if options.get("fuse_unk") else None
    try:
        return Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token=unknown, **options))
    except Exception as error:  # tokenizers raises nothing more specific
        raise ConversionFailed("The GGUF file holds merges that do not fit its vocabulary.") from error


def _halves(merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right) or " " in right:
        raise ConversionFailed("The GGUF file holds a merge that is not two tokens.")
    return left, right


def _bos_first(text: str, token: int) -> processors.PostProcessor:
    return processors.TemplateProcessing(
        single=f"{text} $A", pair=f"{text} $A {text} $B", special_tokens=[(text, token)]
    )
