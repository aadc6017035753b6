"""Clients that leave, engines that die, and the end of the server: over real sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

CHAT = "/v1/chat/completions"
Wait = Callable[[Callable[[], bool]], None]


def ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def post(server: Any, body: dict[str, Any]) -> socket.socket:
    """Sends the request and reads nothing."""
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {len(data)}\r\n\r\n"
    sock: socket.socket = server.connect()
    sock.sendall(head.encode() + data)
    return sock


def read_all(sock: socket.socket) -> bytes:
    received = b""
    while chunk := sock.recv(65536):
        received += chunk
    return received


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    sock.close()


def engine_pid(server: Any) -> int:
    """The server's one child."""
    for pid, parent in processes():
        if parent == server.process.pid:
            return pid
    raise AssertionError("no engine")


def processes() -> Iterator[tuple[int, int]]:
    """Every process and its parent; /proc where there is one, since a bare container has no ps."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            pid, parent = line.split()
            yield int(pid), int(parent)
        return
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        yield int(path.parent.name), int(fields[1])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", [socket.socket.close, reset])
@pytest.mark.parametrize("text", ["count slowly", "never"])
def test_a_client_that_leaves_frees_its_slot(
    scripted: Any, wait_until: Wait, stream: bool, leave: Callable[[socket.socket], None], text: str
) -> None:
    aborted = scripted.metric("turbospark_requests_total", outcome="aborted")
    sock = post(scripted, ask(text, stream=stream))
    wait_until(lambda: scripted.metric("turbospark_running") == 1)
    leave(sock)
    wait_until(lambda: scripted.metric("turbospark_running") == 0)
    assert scripted.metric("turbospark_requests_total", outcome="aborted") == aborted + 1


def test_a_client_that_leaves_the_queue_frees_its_place(scripted: Any, wait_until: Wait) -> None:
    running = [post(scripted, ask("never")) for _ in range(4)]
    wait_until(lambda: scripted.metric("turbospark_running") == 4)
    waiting = [post(scripted, ask("never", stream=True)) for _ in range(2)]
    wait_until(lambda: scripted.metric("turbospark_waiting") == 2)
    refused = httpx2.post(scripted.url + CHAT, json=ask("hello", stream=True))
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["type"] == "rate_limit_error"
    bad = httpx2.post(scripted.url + CHAT, json=ask("x" * 40_000))
    assert bad.status_code == 400
    assert bad.json()["error"]["code"] == "context_length_exceeded"
    waiting.pop().close()
    wait_until(lambda: scripted.metric("turbospark_waiting") == 1)
    for sock in running + waiting:
        sock.close()
    wait_until(lambda: scripted.metric("turbospark_waiting") + scripted.metric("turbospark_running") == 0)


def test_quiet_streams_get_their_headers_early(scripted: Any, wait_until: Wait) -> None:
    sock = post(scripted, ask("never", stream=True))
    received = b""
    while b": keep-alive\n\n" not in received:
        received += sock.recv(65536)
    assert received.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in received
    sock.close()
    wait_until(lambda: scripted.metric("turbospark_running") == 0)


def test_a_killed_engine_ends_every_stream_with_an_error(scripted: Any, wait_until: Wait) -> None:
    pid = engine_pid(scripted)
    started = [post(scripted, ask("count slowly", stream=True)) for _ in range(3)]
    for sock in started:
        assert b"200 OK" in sock.recv(65536)
    unstreamed = post(scripted, ask("never"))
    wait_until(lambda: scripted.metric("turbospark_running") == 4)
    restarts = scripted.metric("turbospark_engine_restarts_total")
    os.kill(pid, signal.SIGKILL)
    for sock in started:
        received = b""
        while b"[DONE]" not in received:
            received += sock.recv(65536)
        *_, error, done = [frame for frame in received.split(b"\n\n") if b"data: " in frame]
        assert b'"error"' in error
        assert b"[DONE]" in done
        assert b'"finish_reason":"' not in received
        sock.close()
    answer = unstreamed.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503")
    unstreamed.close()
    assert httpx2.post(scripted.url + CHAT, json=ask("hello"), timeout=30).status_code == 200
    assert scripted.metric("turbospark_engine_restarts_total") == restarts + 1
    assert scripted.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_streams_with_an_error_and_exits_0(start_scripted: Any, number: int) -> None:
    server = start_scripted()
    streams = [post(server, ask("count slowly", stream=True)) for _ in range(5)]
    for sock in streams:
        assert b"200 OK" in sock.recv(65536)
    waiting = post(server, ask("never"))
    idle = server.connect()
    server.process.send_signal(number)
    for sock in streams:
        received = read_all(sock)
        assert b'"error"' in received
        assert b"[DONE]" in received
        assert b'"finish_reason":"' not in received
        sock.close()
    answer = read_all(waiting)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after" in answer
    assert server.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    for sock in (waiting, idle):
        sock.close()
    assert not any("Traceback" in line for line in server.errors)


def test_a_second_signal_exits_at_once(start_scripted: Any) -> None:
    server = start_scripted()
    # A reader that has stopped reading holds the first stop back for a moment.
    sock = post(server, ask("never", stream=True))
    server.process.send_signal(signal.SIGINT)
    server.process.send_signal(signal.SIGINT)
    assert server.wait() in (0, 130)
    sock.close()


def test_ready_is_one_line_of_json(start_scripted: Any) -> None:
    server = start_scripted()
    assert server.ready == {"url": server.url, "pid": server.process.pid, "models": ["scripted"]}
    for host in ("127.0.0.1", "[::1]"):
        assert httpx2.get(f"http://{host}:{server.port}/health").json() == {"status": "ok"}
    server.process.send_signal(signal.SIGTERM)
    assert server.process.stdout.read() == ""
    assert server.wait() == 0
    banner = [line for line in server.errors if not line.startswith("20")]  # the others are log records
    assert 1 <= len(banner) <= 8
    assert f"{server.url}/v1" in "".join(banner)


def test_a_taken_port_is_one_sentence(start_scripted: Any, scripted: Any) -> None:
    with pytest.raises(AssertionError) as caught:
        start_scripted("--port", str(scripted.port))
    text = str(caught.value)
    assert text.startswith(f"error: Port {scripted.port} is taken")
    assert "Traceback" not in text


def test_the_key_is_asked_for_on_every_route_but_health(start_scripted: Any) -> None:
    key = "a-key-for-tests-0123456789"
    server = start_scripted("--access-log", env={"TURBOSPARK_API_KEY": key})
    bodies = set()
    routes = [
        "/ready",
        "/metrics",
        "/v1/metrics",
        "/v1/models",
        "/v1/models/scripted",
        CHAT,
        "/nowhere",
        "/models",
        "/health/",
        "/healthz",
        "/%68ealth",
    ]
    forms: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": key},
        {"authorization": f"Basic {key}"},
        {"x-api-key": key[:-1]},
        {"api-key": ""},
        {"cookie": f"api_key={key}"},
    ]
    with httpx2.Client(base_url=server.url) as client:
        for route in routes:
            for headers in forms:
                for method in ("GET", "POST", "DELETE", "OPTIONS", "HEAD"):
                    answer = client.request(method, route, headers=headers)
                    assert answer.status_code == 401, (method, route, headers)
                    if method != "HEAD":
                        bodies.add(answer.content)
        assert len(bodies) == 1
        assert client.get("/v1/models", params={"api_key": key}).status_code == 401
        assert client.get("/health").json() == {"status": "ok"}
        assert client.post("/health").status_code == 401
        for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}, {"api-key": key}):
            assert client.get("/v1/models", headers=headers).status_code == 200
            assert client.post(CHAT, json=ask("marker-in-prompt"), headers=headers).status_code == 200
            assert client.post(CHAT, content=b"{marker-in-prompt", headers=headers).status_code == 400
    assert server.end() == 0
    log = "".join(server.errors)
    assert "status=401" in log
    assert f"path={CHAT}" in log
    assert key not in log
    assert "marker-in-prompt" not in log
    assert "api_key=" not in log


def test_a_thousand_clients_vanish(scripted: Any, wait_until: Wait) -> None:
    def vanish(count: int) -> None:
        for number in range(count):
            sock = post(scripted, ask("count slowly", stream=number % 2 == 0))
            if number % 3 == 0:
                reset(sock)
            else:
                sock.close()

    threads = [threading.Thread(target=vanish, args=(250,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: scripted.metric("turbospark_running") + scripted.metric("turbospark_waiting") == 0)
    assert httpx2.post(scripted.url + CHAT, json=ask("hello")).status_code == 200
