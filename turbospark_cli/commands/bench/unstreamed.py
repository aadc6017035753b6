"""Small unstreamed completions over raw connections: what a server's HTTP layer costs.

The client is a bare protocol that writes one prepared request again and again, so that the server and not
the client is what is measured. It speaks plain HTTP/1.x: bodies with a length, chunked ones, and those that
end with the connection (as Python's http.server sends them).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from turbospark_cli.commands.bench import cpu
from turbospark_cli.commands.bench.statistics import Figures, milliseconds, percentile
from turbospark_cli.commands.bench.target import Target
from turbospark_cli.errors import ServerUnreachable, UsageError

_END_OF_HEAD: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"


@dataclass(slots=True)
class _Run:
    """One level under way: `left` says who may still send."""

    request: bytes
    host: str
    port: int
    left: Iterator[int]
    latencies: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class _Connection(asyncio.Protocol):
    """Sends a request, waits for its whole answer, and begins again while there are some left."""

    def __init__(self, run: _Run, ended: asyncio.Future[bool]) -> None:
        self._run = run
        self._ended = ended  # True: the server closed the connection after an answer; open another
        self._received = bytearray()
        self._sent = 0.0
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if _is_whole(self._received):
            self._answered()
            if _closes(self._received):
                self._transport.close()
            else:
                self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting and self._received:
            self._answered()  # its end was the end of the connection
        elif self._waiting:
            self._run.errors.append("the server closed the connection without an answer")
            self._waiting = False
        if not self._ended.done():
            self._ended.set_result(True)

    def _next(self) -> None:
        if self._transport.is_closing():
            return
        if next(self._run.left, None) is None:
            self._ended.set_result(False)
            self._transport.close()
            return
        self._waiting = True
        self._received.clear()
        self._sent = time.perf_counter()
        self._transport.write(self._run.request)

    def _answered(self) -> None:
        self._waiting = False
        status = bytes(self._received[:16]).split(b" ")[1:2]
        if status == [b"200"]:
            self._run.latencies.append(time.perf_counter() - self._sent)
        else:
            self._run.errors.append(self._received[:200].decode(errors="replace"))


def _is_whole(answer: bytearray) -> bool:
    """Whether a body that announces its own end is all there."""
    end = answer.find(_END_OF_HEAD)
    if end < 0:
        return False
    head = bytes(answer[:end]).lower()
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        return len(answer) - end - len(_END_OF_HEAD) >= length
    return b"\r\ntransfer-encoding: chunked" in head and answer.endswith(_LAST_CHUNK)


def _closes(answer: bytearray) -> bool:
    """Whether the server ends the connection after this answer."""
    head = bytes(answer[: answer.find(_END_OF_HEAD)]).lower()
    if head.startswith(b"http/1.0"):
        return b"\r\nconnection: keep-alive" not in head
    return b"\r\nconnection: close" in head


def measure(target: Target, connections: int, requests: int, max_tokens: int) -> Figures:
    """Send `requests` small completions over `connections` connections, each waiting for its answer."""
    before = None if target.pid is None else cpu.tree_seconds(target.pid)
    started = time.perf_counter()
    run = asyncio.run(_run(target, connections, requests, max_tokens))
    wall = time.perf_counter() - started
    answered = len(run.latencies)
    figures: Figures = {
        "requests": requests,
        "errors": len(run.errors),
        "requests_s": answered / wall,
        "latency_p50_ms": milliseconds(percentile(run.latencies, 0.5)),
        "latency_p95_ms": milliseconds(percentile(run.latencies, 0.95)),
        "latency_p99_ms": milliseconds(percentile(run.latencies, 0.99)),
        "wall_s": wall,
    }
    if target.pid is not None and before is not None:
        spent = cpu.tree_seconds(target.pid) - before
        figures["server_cpu_s"] = spent
        figures["cpu_ms_per_request"] = spent * 1000 / max(answered, 1)
    figures["error"] = run.errors[0] if run.errors else None
    return figures


async def _run(target: Target, connections: int, requests: int, max_tokens: int) -> _Run:
    parts = urlsplit(target.chat)
    if parts.scheme != "http":
        raise UsageError("--no-stream measures plain HTTP only.", hint="Give an http:// address.")
    host, port = parts.hostname or "", parts.port or 80
    run = _Run(_request(target, parts.netloc, parts.path, max_tokens), host, port, iter(range(requests)))
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_connect(run))
    return run


async def _connect(run: _Run) -> None:
    """One connection after another until nothing is left to send."""
    loop = asyncio.get_running_loop()
    while True:
        ended: asyncio.Future[bool] = loop.create_future()
        try:
            await loop.create_connection(lambda: _Connection(run, ended), run.host, run.port)  # noqa: B023 - called at once
        except OSError as error:
            raise ServerUnreachable(
                f"No server answers at {run.host}:{run.port} ({error.strerror})."
            ) from None
        if not await ended:
            return


def _request(target: Target, netloc: str, path: str, max_tokens: int) -> bytes:
    body = msgspec.json.encode(
        {
            "model": target.model,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
    )
    headers = {
        "host": netloc,
        "content-type": "application/json",
        "content-length": str(len(body)),
        **target.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
