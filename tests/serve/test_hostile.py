"""Raw sockets and bad inputs against a real server; whatever is sent, the next client is served."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(autouse=True)
def _still_serving(scripted: Any) -> Iterator[None]:
    restarts = scripted.metric("turbospark_engine_restarts_total")
    yield
    answer = httpx2.post(scripted.url + CHAT, json=ASK)
    assert answer.status_code == 200
    assert scripted.process.poll() is None
    assert scripted.metric("turbospark_engine_restarts_total") == restarts


def raw(scripted: Any, data: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to these bytes; status 0 when the connection was just closed."""
    with scripted.connect() as sock:
        sock.sendall(data)
        received = b""
        while chunk := receive(sock):
            received += chunk
            head, found, body = received.partition(b"\r\n\r\n")
            if found and len(body) >= length_of(head):
                return int(head.split(b" ")[1]), body
    return 0, received


def receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except ConnectionResetError:
        return b""


def length_of(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def get(scripted: Any, target: str, *headers: str, method: str = "GET") -> tuple[int, bytes]:
    lines = [f"{method} {target} HTTP/1.1", *(headers or (f"Host: 127.0.0.1:{scripted.port}",)), "", ""]
    return raw(scripted, "\r\n".join(lines).encode("latin-1"))


def assert_envelope(body: bytes) -> None:
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"model": "m", "messages": []}',
        b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
        b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "temperature": 1e999}',
        b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": -1}',
        b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "top_k": 1000000}',
        b'{"model": "m", "messages": [{"role": "user", "content": "a"}], "logit_bias": {"1000000000": 1}}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "m", "messages": ' + b"[" * 200_000 + b"}",
        b'{"x": ' * 100_000,
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_bodies_are_400_in_the_envelope(scripted: Any, body: bytes, stream: bool) -> None:
    if stream:
        body = body.replace(b'"model"', b'"stream": true, "model"', 1)
    answer = httpx2.post(scripted.url + CHAT, content=body)
    assert answer.status_code == 400
    assert_envelope(answer.content)


def test_a_huge_body_is_413_and_its_sender_can_read_that(scripted: Any) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(300):
            yield b" " * 1024 * 1024

    declared = httpx2.post(scripted.url + CHAT, content=b" " * (300 * 1024 * 1024))
    assert declared.status_code == 413
    assert_envelope(declared.content)
    streamed = httpx2.post(scripted.url + CHAT, content=chunks())
    assert streamed.status_code == 413
    assert_envelope(streamed.content)


def test_a_body_within_the_limit_is_read_whole(scripted: Any) -> None:
    body = json.dumps({**ASK, "metadata": {"filler": "x" * (7 * 1024 * 1024)}}).encode()
    assert httpx2.post(scripted.url + CHAT, content=body).status_code == 200

    def slices() -> Iterator[bytes]:
        for start in range(0, len(body), 500_000):
            yield body[start : start + 500_000]

    assert httpx2.post(scripted.url + CHAT, content=slices()).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        ("X-Nothing: 1",),
        ("Host:",),
        ("Host: evil.example",),
        ("Host: 127.0.0.1:{port}", "Host: 127.0.0.1:{port}"),
        ("Host: 127.0.0.1:{port}", "Host: evil.example"),
        ("Host: 127.0.0.1:{port}/?x=",),
        ("Host: :{port}",),
        ("Host: localhost.:{port}",),
        ("Host: 127.0.0.1:{port}", "Origin: https://evil.example"),
        ("Host: 127.0.0.1:{port}", "Origin: null"),
    ],
)
@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere"])
def test_wrong_hosts_and_origins_are_403(scripted: Any, headers: tuple[str, ...], path: str) -> None:
    status, body = get(scripted, path, *(each.format(port=scripted.port) for each in headers))
    assert status in (400, 403)  # without any Host, HTTP itself makes it a 400
    if body:
        assert_envelope(body)
    assert b"access-control-allow-origin" not in body.lower()


@pytest.mark.parametrize(
    "target",
    [
        "//health",
        "///v1/models",
        "/v1//models",
        "/v1/../health",
        "/%2e%2e/health",
        "/v1/models%00",
        "/v1%5cmodels",
        "/%2Fhealth",
        "/health%0a",
    ],
)
def test_unclean_paths_are_400(scripted: Any, target: str) -> None:
    status, body = get(scripted, target)
    assert status == 400
    assert_envelope(body)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models?",
        "/v1/models/?limit=1000",
        "/v1/v1/models",
        "/models",
        "/v1/models/scripted/",
        "/v1/v1/models/scripted?x=//y",
        "/models/scripted",
    ],
)
def test_clumsy_paths_work_without_a_redirect(scripted: Any, target: str) -> None:
    status, body = get(scripted, target)
    assert status == 200
    assert b"scripted" in body


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "POST", "TRACE", "BREW"])
def test_other_methods_are_405(scripted: Any, method: str) -> None:
    status, body = get(scripted, "/v1/models", f"Host: 127.0.0.1:{scripted.port}", method=method)
    assert status in (400, 405)
    assert_envelope(body)


def test_unknown_routes_are_404_in_the_envelope(scripted: Any) -> None:
    answer = httpx2.get(f"{scripted.url}/v1/nowhere")
    assert answer.status_code == 404
    assert_envelope(answer.content)
    assert httpx2.get(f"{scripted.url}/").status_code == 404


def test_too_many_headers_are_refused(scripted: Any) -> None:
    host = f"Host: 127.0.0.1:{scripted.port}"
    status, body = get(scripted, "/health", host, *(f"X-{i}: 1" for i in range(80)))
    assert status == 400
    assert_envelope(body)
    status, _ = get(scripted, "/health", host, "X-Big: " + "x" * 40_000)
    assert status == 400
    status, _ = get(scripted, "/health", host, "X-Big: " + "x" * 500_000)
    assert status in (0, 431)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_is_closed(scripted: Any, data: bytes) -> None:
    with scripted.connect() as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := receive(sock):
            received += chunk
    assert received == b"" or received.startswith(b"HTTP/1.1 4")


def test_a_websocket_is_refused_when_its_host_is(scripted: Any) -> None:
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    status, _ = get(scripted, "/v1/realtime", "Host: evil.example", *upgrade)
    assert status == 403
    status, _ = get(scripted, "/v1/realtime", f"Host: 127.0.0.1:{scripted.port}", *upgrade)
    assert status == 403


def test_every_answer_has_its_request_id(scripted: Any) -> None:
    seen = set()
    for path in ("/health", "/v1/models", "/nowhere", "//bad"):
        answer = httpx2.get(scripted.url + path, headers={"x-request-id": "mine"})
        assert answer.headers["x-request-id"] == answer.headers["request-id"] != "mine"
        seen.add(answer.headers["request-id"])
    assert len(seen) == 4


def test_preflight_of_an_allowed_page(scripted: Any) -> None:
    headers = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    answer = httpx2.options(scripted.url + CHAT, headers=headers)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert answer.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in answer.headers["access-control-allow-methods"]
    refused = httpx2.options(scripted.url + CHAT, headers={**headers, "origin": "https://evil.example"})
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers
    actual = httpx2.post(scripted.url + CHAT, json=ASK, headers={"origin": "http://localhost:3000"})
    assert actual.status_code == 200
    assert actual.headers["access-control-allow-origin"] == "http://localhost:3000"


def test_http_1_0_is_answered_too(scripted: Any) -> None:
    """As nginx asks by default: whole answers and streams, which then end with the connection."""
    head = f"Host: 127.0.0.1:{scripted.port}\r\n"
    status, body = raw(scripted, f"GET /v1/models HTTP/1.0\r\n{head}\r\n".encode())
    assert status == 200
    assert json.loads(body)["object"] == "list"
    asked = json.dumps({**ASK, "stream": True}).encode()
    head += f"Content-Length: {len(asked)}\r\n"
    with scripted.connect() as sock:
        sock.sendall(f"POST {CHAT} HTTP/1.0\r\n{head}\r\n".encode() + asked)
        received = b"".join(iter(lambda: receive(sock), b""))
    assert received.split(b"\r\n", 1)[0].endswith(b" 200 OK")
    assert received.endswith(b"data: [DONE]\n\n")


def test_broken_chunks_are_400_in_the_envelope(scripted: Any) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{scripted.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    for chunks in (b"zz\r\nxx", b"5\r\n{ignored", b"ffffffffffffffffff\r\n{"):
        status, body = raw(scripted, head.encode() + chunks)
        assert status == 400
        assert_envelope(body)
