"""The OpenAI protocol: chat completions and models."""

from __future__ import annotations

from typing import Any, Final

from turbospark_cli.runtime.runtime import Runtime
from turbospark_cli.serve.openai.errors import error_body

PATHS: Final = ("/v1/chat/completions", "/v1/models")

__all__ = ["PATHS", "error_body", "routes"]


def routes(runtime: Runtime) -> list[tuple[str, Any]]:
    """URI templates and their Falcon resources."""
    from turbospark_cli.serve.openai.chat import ChatCompletions
    from turbospark_cli.serve.openai.models import Model, Models

    return [
        ("/v1/chat/completions", ChatCompletions(runtime.generate)),
        ("/v1/models", Models(runtime)),
        ("/v1/models/{model_id:path}", Model(runtime)),
    ]
