"""The application: Falcon's routes behind the guard, and every error in the envelope of its protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import falcon
import falcon.asgi
from falcon.asgi import Request, Response

from turbospark_cli.errors import InvalidRequest, TurbosparkError
from turbospark_cli.runtime.runtime import Runtime
from turbospark_cli.serve import openai
from turbospark_cli.serve.access import Access
from turbospark_cli.serve.guard import INTERNAL_ERROR, Guard
from turbospark_cli.serve.observe import Metrics
from turbospark_cli.serve.status import Health, MetricsPage, Ready

_log = logging.getLogger(__name__)

# The fixed paths; the guard also serves them without /v1, and metrics counts requests by them.
PATHS: Final = (
    "/health",
    "/ready",
    "/metrics",
    "/v1/metrics",
    *openai.PATHS,
)

# Path prefix → envelope. The first that fits; OpenAI's is everybody's default.
_ENVELOPES: Final[tuple[tuple[str, Callable[[TurbosparkError], bytes]], ...]] = (("/", openai.error_body),)


class NoSuchRoute(TurbosparkError):
    """The path, or the method on it, does not exist."""

    code = "not_found"
    status = 404


class MethodNotAllowed(NoSuchRoute):
    code = "method_not_allowed"
    status = 405


def build_app(runtime: Runtime, access: Access, metrics: Metrics) -> Guard:
    """The ASGI application for `server.serve`. `metrics` is the runtime's observer, too."""
    app: falcon.asgi.App[Request, Response] = falcon.asgi.App()
    app.add_route("/health", Health(runtime))
    app.add_route("/ready", Ready(runtime))
    page = MetricsPage(metrics, runtime)
    app.add_route("/metrics", page)
    app.add_route("/v1/metrics", page)
    for path, resource in openai.routes(runtime):
        app.add_route(path, resource)
    app.set_error_serializer(_serialize)
    app.add_error_handler(TurbosparkError, _on_error)
    app.add_error_handler(Exception, _on_fault)
    return Guard(app, access, error_body, metrics, PATHS)


def error_body(path: str, error: TurbosparkError) -> bytes:
    """The envelope of the protocol that `path` belongs to."""
    for prefix, envelope in _ENVELOPES:
        if path.startswith(prefix):
            return envelope(error)
    return openai.error_body(error)


async def _on_error(req: Request, resp: Response, error: TurbosparkError, params: dict[str, Any]) -> None:
    resp.status = error.status
    resp.data = error_body(req.path, error)
    if error.retry_after is not None:
        resp.set_header("retry-after", str(error.retry_after))


async def _on_fault(req: Request, resp: Response, error: Exception, params: dict[str, Any]) -> None:
    """A bug: the log has all of it, the client a fixed text."""
    _log.error("a request failed", exc_info=error, extra={"fields": {"path": req.path}})
    await _on_error(req, resp, TurbosparkError(INTERNAL_ERROR), params)


def _serialize(req: Request, resp: Response, error: falcon.HTTPError) -> None:
    resp.data = error_body(req.path, _of_falcon(req, error))
    resp.content_type = falcon.MEDIA_JSON


def _of_falcon(req: Request, error: falcon.HTTPError) -> TurbosparkError:
    if error.status_code == 404:
        return NoSuchRoute("There is no such route here.")
    if error.status_code == 405:
        return MethodNotAllowed(f"{req.method} is not possible here.")
    return InvalidRequest("The request cannot be read.")
