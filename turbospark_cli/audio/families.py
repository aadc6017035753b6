"""Which code runs which speech-to-text model: one row for each `model_type`."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from turbospark_cli.audio.transcript import Transcriber
from turbospark_cli.errors import CorruptInstall, UsageError

# The module has `load(folder: Path) -> Transcriber`; the extra is what installs the package it needs.
_SPEECH_TO_TEXT: Final[dict[str, tuple[str, str | None]]] = {
    "whisper": ("turbospark_cli.audio.whisper", None),
    "qwen3_asr": ("turbospark_cli.audio.qwen3_asr", "qwen3-asr"),
}


def load(folder: Path) -> Transcriber:
    """The speech-to-text model in an install folder, ready to transcribe on this thread.

    Raises CorruptInstall, and UsageError for a model that this version or this environment cannot run.
    """
    model_type = _model_type(folder)
    if model_type not in _SPEECH_TO_TEXT:
        raise UsageError(
            f"{folder.stem} is a {model_type!r} model, which turbospark cannot transcribe with.",
            hint="`turbospark models list --available` shows models for speech to text (kind stt).",
        )
    module, extra = _SPEECH_TO_TEXT[model_type]
    try:
        family = import_module(module)
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        raise UsageError(
            f"{folder.stem} needs the package {error.name}, which is not installed.",
            hint=f"Install it: pip install 'turbospark[{extra}]'",
        ) from error
    return cast("Transcriber", family.load(folder))


def _model_type(folder: Path) -> str:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CorruptInstall(
            f"config.json of {folder.stem} cannot be read.",
            hint=f"`turbospark models pull --force {folder.stem}` installs it anew.",
        ) from error
    # The weights that OpenAI and MLX publish for Whisper say their shape and no type.
    facts = config if isinstance(config, dict) else {}
    named = facts.get("model_type") or ("whisper" if "n_audio_state" in facts else None)
    if not isinstance(named, str):
        raise CorruptInstall(f"config.json of {folder.stem} does not say what kind of model it is.")
    return named
