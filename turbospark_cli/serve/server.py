"""One server over sockets that are already listening: Granian embedded on the running uvloop loop.

GUARANTEES. The first SIGINT or SIGTERM closes the door (new connections are refused, new requests get
503), ends every open stream with its error frame, and `serve()` returns in less than two seconds; the
second one exits at once. Granian itself never sees a signal and logs nothing but errors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, TaskImpl
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from turbospark_cli.serve.asgi import Receive, Scope, Send

BACKLOG: Final = 1024
_MAX_CONNECTIONS: Final = 8192  # idle keep-alive ones included
_HEADER_TIMEOUT_MS: Final = 10_000
_MAX_HEADER_BUFFER: Final = 64 * 1024  # bytes; more is 431, before any of our code
_ANSWERS_END_S: Final = 0.8  # for the error frames of open streams to leave
_CONNECTIONS_END_S: Final = 0.3
_INTERRUPTED: Final = 130

_log = logging.getLogger(__name__)


class Application(Protocol):
    """The ASGI application with its door."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]: ...

    def stop(self) -> None:
        """New requests are refused from now on."""

    async def idle(self) -> None:
        """Returns when no request is open."""


class _Listener(Server):
    """A Granian server on a socket of ours: the port is known, and a taken one was an error already."""

    def __init__(self, app: Application, sock: socket.socket) -> None:
        address, port = sock.getsockname()[:2]
        self._socket = sock
        super().__init__(
            app,
            address=address,
            port=port,
            interface=Interfaces.ASGINL,
            blocking_threads=1,
            task_impl=TaskImpl.asyncio,
            http=HTTPModes.auto,
            backlog=BACKLOG,
            backpressure=_MAX_CONNECTIONS,
            http1_settings=HTTP1Settings(
                header_read_timeout=_HEADER_TIMEOUT_MS, max_buffer_size=_MAX_HEADER_BUFFER
            ),
            log_level=LogLevels.error,
            log_dictconfig={"handlers": {}, "loggers": {"_granian": {"handlers": [], "propagate": True}}},
        )

    def _init_shared_socket(self) -> None:
        # A descriptor of its own: Granian closes it as soon as it stops listening.
        holder: Any = SocketHolder
        self._shd = holder(os.dup(self._socket.fileno()), False, BACKLOG)


async def serve(
    app: Application,
    sockets: Sequence[socket.socket],
    *,
    stop: asyncio.Event,
    fail_streams: Callable[[], None],
) -> None:
    """Serve `app` on every socket until a signal comes or `stop` is set, then end in order.

    `fail_streams` ends every generation that is open.
    """
    with _Signals(stop):
        listeners = [_Listener(app, sock) for sock in sockets]
        running = [asyncio.create_task(listener.serve()) for listener in listeners]
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, *running}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        _log.info("shutting down")
        app.stop()
        for sock in sockets:
            sock.close()
        for listener in listeners:
            listener.stop()  # type: ignore[no-untyped-call]
        fail_streams()
        await _within(_ANSWERS_END_S, app.idle())
        await _within(_CONNECTIONS_END_S, asyncio.gather(*running))


async def _within(seconds: float, work: Any) -> None:
    """Waits for `work`, but not longer; what is still open then dies with the process."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        task.cancel()


class _Signals:
    """SIGINT and SIGTERM set `stop`; a second one ends the process on the spot."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._received)

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(number)

    def _received(self) -> None:
        if self._stop.is_set():
            os._exit(_INTERRUPTED)
        self._stop.set()
