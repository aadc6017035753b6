"""GET /v1/models and /v1/models/{id}: rows valid as OpenAI's Model, with what other clients look for."""

from __future__ import annotations

from falcon.asgi import Request, Response

from turbospark_cli.runtime.runtime import ModelCard, Runtime
from turbospark_cli.serve.openai import wire


class Models:
    """The list. Answers from memory, also while a model loads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def on_get(self, req: Request, resp: Response) -> None:
        resp.data = wire.encode(wire.ModelList([row(card) for card in self._runtime.models()]))


class Model:
    """One row; the id may hold slashes. Unlike a request's model it must be known."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def on_get(self, req: Request, resp: Response, model_id: str) -> None:
        resp.data = wire.encode(row(self._runtime.find(model_id)))


def row(card: ModelCard) -> wire.ModelRow:
    """What clients see of one attached model."""
    context = card.info.context_length if card.info is not None else None
    return wire.ModelRow(
        id=card.id,
        object="model",
        created=card.created,
        owned_by="turbospark",
        state=card.state,
        context_length=context,
        max_model_len=context,
        max_context_length=context,
    )
