"""A small OpenAI-compatible server for the load generator: as plain, and as badly behaved, as peers are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Peer(ThreadingHTTPServer):
    """Answers each chat completion in the way that its `model` names, and keeps the bodies it got."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.most_at_once = 0
        self.running = 0
        self.lock = threading.Lock()
        self.pairs: threading.Barrier | None = None  # streams wait here until so many are open

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Peer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass

    def do_GET(self) -> None:
        self._whole(200, {"data": [{"id": "listed"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.keys.append(self.headers.get("authorization"))
            self.server.running += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.running)
        try:
            self._answer(body)
        finally:
            with self.server.lock:
                self.server.running -= 1

    def _answer(self, body: dict[str, Any]) -> None:
        model = body["model"]
        if model == "refusing":
            self._whole(503, {"error": {"message": "loading"}})
        elif model == "chunked":
            self._chunked()
        elif model == "keeping":
            self.protocol_version, self.close_connection = "HTTP/1.1", False
            self._whole(200, {"choices": []})
        elif not body.get("stream"):
            self._whole(200, {"choices": []}, length=model != "closing")
        else:
            self._stream(model, body["max_tokens"])

    def _whole(self, status: int, value: object, *, length: bool = True) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        if length:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _chunked(self) -> None:
        self.protocol_version, self.close_connection = "HTTP/1.1", False
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"2\r\n{}\r\n0\r\n\r\n")

    def _stream(self, model: str, tokens: int) -> None:
        if self.server.pairs is not None:
            self.server.pairs.wait(60)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self._event(b": a comment")
        self._data({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for number in range(tokens):
            self._data({"choices": [{"delta": {"content": f"{number} "}}]})
            if model == "dying":
                return
            if model == "failing":
                self._data({"error": {"message": "the engine died"}})
                return
        self._data({"choices": [{"delta": {}, "finish_reason": "length"}]})
        if model != "uncounted":
            self._data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2 * tokens}})
        self._event(b"data: [DONE]")

    def _data(self, value: object) -> None:
        self._event(b"data: " + json.dumps(value).encode())

    def _event(self, line: bytes) -> None:
        self.wfile.write(line + b"\n\n")
        self.wfile.flush()


@contextmanager
def peer() -> Iterator[Peer]:
    """A peer on a free port of the loopback interface."""
    server = Peer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
