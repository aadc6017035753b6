from __future__ import annotations

import json
from typing import Any, Literal, cast

import falcon.asgi
import pytest
from falcon.testing import ASGIConductor

from turbospark_cli.runtime.runtime import Health, ModelCard, Runtime
from turbospark_cli.serve import status


class FixedRuntime:
    """As well as a test wants it."""

    def __init__(self, state: Literal["ok", "loading", "stalled", "failed"]) -> None:
        self._state = state

    def health(self) -> Health:
        return Health(self._state, "A detail that /health keeps to itself.")

    def models(self) -> list[ModelCard]:
        return [ModelCard("m", (), 1, "ready", None, None)]


def app_of(state: Any) -> falcon.asgi.App[Any, Any]:
    runtime = cast("Runtime", FixedRuntime(state))
    app: falcon.asgi.App[Any, Any] = falcon.asgi.App()
    app.add_route("/health", status.Health(runtime))
    app.add_route("/ready", status.Ready(runtime))
    return app


@pytest.mark.parametrize(
    ("state", "health", "ready"),
    [("ok", 200, 200), ("loading", 200, 503), ("stalled", 503, 503), ("failed", 503, 503)],
)
async def test_health_and_ready_tell_the_truth(state: str, health: int, ready: int) -> None:
    async with ASGIConductor(app_of(state)) as client:
        answer = await client.simulate_get("/health")
        assert answer.status_code == health
        assert json.loads(answer.content) == {"status": state}
        answer = await client.simulate_get("/ready")
        assert answer.status_code == ready
        assert answer.json["detail"]
        assert answer.json["models"] == [{"id": "m", "state": "ready", "reason": None}]
        assert (await client.simulate_head("/health")).status_code == health
