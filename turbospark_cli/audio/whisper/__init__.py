"""Whisper on MLX: speech to text in segments and words, from OpenAI's weights in anybody's layout."""

from __future__ import annotations

from turbospark_cli.audio.whisper.transcriber import WhisperTranscriber, load

MODEL_TYPES = ("whisper",)

__all__ = ["MODEL_TYPES", "WhisperTranscriber", "load"]
