"""GET /health, /ready and /metrics: is the server well, may it be sent work, what has it done."""

from __future__ import annotations

from typing import Any, Final

from falcon.asgi import Request, Response

from turbospark_cli.runtime.runtime import Runtime
from turbospark_cli.serve.observe import Metrics
from turbospark_cli.serve.openai.wire import encode

# NOTE: /health needs no key, so its body says nothing but the state. /ready explains.
_BODIES: Final = {state: encode({"status": state}) for state in ("ok", "loading", "stalled", "failed")}


class Health:
    """200 while requests are answered or soon will be; 503 when an engine has stalled or failed."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def on_get(self, req: Request, resp: Response) -> None:
        state = self._runtime.health().state
        resp.data = _BODIES[state]
        if state in ("stalled", "failed"):
            resp.status = 503

    on_head = on_get


class Ready:
    """200 once every model can answer at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def on_get(self, req: Request, resp: Response) -> None:
        health = self._runtime.health()
        models: list[dict[str, Any]] = [
            {"id": card.id, "state": card.state, "reason": card.reason} for card in self._runtime.models()
        ]
        resp.data = encode({"status": health.state, "detail": health.detail, "models": models})
        if health.state != "ok":
            resp.status = 503
            resp.set_header("retry-after", "1")


class MetricsPage:
    """The Prometheus text format."""

    def __init__(self, metrics: Metrics, runtime: Runtime) -> None:
        self._metrics = metrics
        self._runtime = runtime

    async def on_get(self, req: Request, resp: Response) -> None:
        resp.data, resp.content_type = self._metrics.page(self._runtime.stats())
