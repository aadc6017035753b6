"""The guard alone, over a made-up ASGI server; test_hostile.py has the real one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from turbospark_cli.errors import TurbosparkError
from turbospark_cli.serve import clocks
from turbospark_cli.serve import exchange as exchanges
from turbospark_cli.serve.access import Access, host_names
from turbospark_cli.serve.exchange import SCOPE_KEY, Exchange
from turbospark_cli.serve.guard import Guard

HOST = (b"host", b"127.0.0.1:8080")
DISCONNECT = {"type": "http.disconnect"}


def chunk(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class Client:
    """One request: what it sends is queued, what it gets is kept."""

    def __init__(
        self, *events: dict[str, Any], path: str = "/v1/x", method: str = "POST", **more: Any
    ) -> None:
        headers = more.get("headers", [HOST, (b"transfer-encoding", b"chunked")])
        self.scope = {
            "type": more.get("type", "http"),
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "headers": headers,
            "client": ("127.0.0.1", "5"),
        }
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for event in events:
            self.incoming.put_nowait(event)
        self.sent: list[dict[str, Any]] = []

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    async def call(self, guard: Guard) -> None:
        await guard(self.scope, self.incoming.get, self.send)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


class Application:
    """Remembers what reached it, then does `behave`."""

    def __init__(self, behave: Any = None) -> None:
        self.seen: list[Exchange] = []
        self.scopes: list[dict[str, Any]] = []
        self.cancelled = 0
        self._behave = behave

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            return
        self.seen.append(scope[SCOPE_KEY])
        try:
            if self._behave is not None:
                await self._behave()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


class Watcher:
    def __init__(self) -> None:
        self.answers: list[tuple[str, int, bool]] = []

    def answered(self, exchange: Exchange, path: str, seconds: float) -> None:
        self.answers.append((path, exchange.status, exchange.gone))


def guard_of(app: Application, key: bytes | None = None, watcher: Watcher | None = None) -> Guard:
    def body(path: str, error: TurbosparkError) -> bytes:
        return json.dumps({"path": path, "code": error.code}).encode()

    access = Access(host_names(["127.0.0.1"], [], 8080), key=key)
    return Guard(app, access, body, watcher or Watcher(), ["/v1/x", "/health"])


async def test_the_application_gets_the_body_and_the_canonical_path() -> None:
    app = Application()
    client = Client(chunk(b"ab", more=True), chunk(b"cd", more=False), path="/v1/v1/x/")
    await client.call(guard_of(app))
    assert app.seen[0].body == b"abcd"
    assert app.scopes[0]["path"] == "/v1/x"
    assert client.status == 200
    assert client.headers[b"x-request-id"] == client.headers[b"request-id"]


@pytest.mark.parametrize("path", ["/x", "/x/", "/v1/x"])
async def test_routes_are_served_without_their_version(path: str) -> None:
    app = Application()
    await Client(chunk(b"", more=False), path=path).call(guard_of(app))
    assert app.scopes[0]["path"] == "/v1/x"


async def test_a_declared_length_ends_the_body() -> None:
    app = Application()
    client = Client(chunk(b"abc", more=True), headers=[HOST, (b"content-length", b"3")])
    await client.call(guard_of(app))
    assert app.seen[0].body == b"abc"


async def test_http_2_need_not_announce_a_body() -> None:
    for version, body in (("2", b"abc"), ("1.1", b"")):
        app = Application()
        client = Client(chunk(b"abc", more=False), headers=[HOST])
        client.scope["http_version"] = version
        await client.call(guard_of(app))
        assert app.seen[0].body == body


async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    app = Application()
    size = str(exchanges.MAX_JSON_BODY + 1).encode()
    client = Client(chunk(b"", more=False), headers=[HOST, (b"content-length", size)])
    await client.call(guard_of(app))
    assert client.status == 413
    assert client.headers[b"connection"] == b"close"
    assert not app.seen


async def test_a_body_that_grows_over_the_limit_is_refused_and_drained() -> None:
    app = Application()
    piece = chunk(b"x" * (1024 * 1024), more=True)
    client = Client(*[piece] * 12, chunk(b"", more=False))
    await client.call(guard_of(app))
    assert client.status == 413
    assert client.incoming.empty()
    assert not app.seen


async def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "BODY_TIMEOUT_S", 0.0)
    monkeypatch.setattr(clocks, "_TICK_S", 0.01)
    app = Application()
    client = Client(chunk(b"{", more=True))
    await client.call(guard_of(app))
    assert client.status == 400
    assert client.headers[b"connection"] == b"close"
    assert not app.seen


async def test_a_body_that_breaks_off_is_refused_unseen() -> None:
    app, watcher = Application(), Watcher()
    client = Client(chunk(b"{", more=True), DISCONNECT)
    await client.call(guard_of(app, watcher=watcher))
    assert client.status == 400
    assert client.headers[b"connection"] == b"close"
    assert not app.seen
    assert watcher.answers == [("/v1/x", 400, True)]


async def test_a_client_that_leaves_cancels_its_request() -> None:
    begun = asyncio.Event()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    app, watcher = Application(wait_for_ever), Watcher()
    client = Client(chunk(b"{}", more=False))
    guard = guard_of(app, watcher=watcher)
    calling = asyncio.create_task(client.call(guard))
    async with asyncio.timeout(30):
        await begun.wait()
    client.incoming.put_nowait(chunk(b"", more=False))  # the end of the body is no reason to stop
    await asyncio.sleep(0)
    assert not calling.done()
    client.incoming.put_nowait(DISCONNECT)
    await calling
    assert app.cancelled == 1
    assert client.sent == []
    assert watcher.answers == [("/v1/x", 0, True)]
    await guard.idle()


async def test_a_bug_is_a_fixed_text(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("secret detail")

    client = Client(chunk(b"{}", more=False))
    await client.call(guard_of(Application(fail)))
    assert client.status == 500
    assert b"secret" not in client.sent[1]["body"]
    assert "secret detail" in caplog.text


@pytest.mark.parametrize("name", [b"authorization", b"content-length", b"x-api-key", b"origin"])
async def test_a_deciding_header_stands_once(name: bytes) -> None:
    app = Application()
    client = Client(chunk(b"", more=False), headers=[HOST, (name, b"1"), (name, b"2")])
    await client.call(guard_of(app))
    assert client.status == 400
    assert not app.seen


@pytest.mark.parametrize(("method", "path", "public"), [
    ("GET", "/health", True),
    ("HEAD", "/health", True),
    ("POST", "/health", False),
    ("GET", "/health/", False),
    ("GET", "/v1/x", False),
])  # fmt: skip
async def test_only_health_is_public(method: str, path: str, public: bool) -> None:
    app = Application()
    client = Client(path=path, method=method, headers=[HOST])
    await client.call(guard_of(app, key=b"k"))
    assert client.status == (200 if public else 401)
    assert bool(app.seen) == public


async def test_a_decoded_path_does_not_make_a_request_public() -> None:
    app = Application()
    client = Client(path="/health", method="GET", headers=[HOST])
    client.scope["raw_path"] = b"/%68ealth"
    await client.call(guard_of(app, key=b"k"))
    assert client.status == 401


async def test_after_the_stop_new_requests_are_503() -> None:
    app = Application()
    guard = guard_of(app)
    guard.stop()
    client = Client(chunk(b"{}", more=False))
    await client.call(guard)
    assert client.status == 503
    assert client.headers[b"retry-after"] == b"1"
    assert client.headers[b"connection"] == b"close"
    assert not app.seen
    await guard.idle()


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ([HOST, (b"x-api-key", b"k")], True),
        ([HOST], False),
        ([(b"host", b"evil.example"), (b"x-api-key", b"k")], False),
        ([HOST, (b"x-api-key", b"k"), (b"origin", b"https://evil.example")], False),
    ],
)
async def test_websockets_obey_the_same_rules(headers: Any, passes: bool) -> None:
    app = Application()
    client = Client(type="websocket", headers=headers)
    await client.call(guard_of(app, key=b"k"))
    assert bool(app.scopes) == passes
    if not passes:
        assert client.sent == [{"type": "websocket.close", "code": 4403}]
