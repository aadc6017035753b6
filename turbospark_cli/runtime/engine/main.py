"""The engine process: its threads, its loop, and how it ends.

    reader thread   socket → messages; renders and tokenizes; an end of the stream ends the process
    main thread     the model: starts, aborts and steps; everything MLX happens here

Streams of MLX belong to a thread, so the model is loaded and run on the main thread. Tokenizing on the
reader keeps a long prompt of one client from delaying the next token of the others; what would keep the
reader itself busy for long goes to a thread of its own, so that aborts and the end of the stream are
noticed at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import select
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NoReturn

import msgspec

from turbospark_cli.errors import TurbosparkError
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.engine.backend import Backend
from turbospark_cli.runtime.engine.sequence import Prompt
from turbospark_cli.runtime.events import Failed

_READ_SIZE: Final = 256 * 1024  # bytes
_LONG_REQUEST: Final = 32 * 1024  # bytes of a request whose tokenizing would hold up the reader
_log = logging.getLogger(__name__)

# What the reader hands to the main thread; a Submit without a prompt could not be prepared.
Incoming = tuple[channel.Submit, Prompt | None] | channel.Start | channel.Abort | channel.Ping
Inbox = SimpleQueue[Incoming]


class Link:
    """The engine's end of the socket; any thread may send."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._deframer = channel.Deframer()
        self._bodies: list[bytes] = []
        self._lock = threading.Lock()

    def send(self, *messages: channel.ToServer) -> None:
        """All messages in one write. A server that is gone ends the process."""
        data = channel.frame(messages)
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            leave()

    def watch(self) -> NoReturn:
        """End the process when the server hangs up, even while nobody reads: loading can take minutes."""
        hang_up = select.poll()
        hang_up.register(self._socket, 0)  # POLLHUP is always told
        while not hang_up.poll():
            pass
        leave()

    def receive(self) -> bytes:
        """The next message's body; waits for it. The end of the stream ends the process."""
        while not self._bodies:
            try:
                data = self._socket.recv(_READ_SIZE)
                if not data:
                    leave()
                self._bodies = self._deframer.feed(data)[::-1]
            except (OSError, ValueError):
                leave()
        return self._bodies.pop()


def leave(code: int = 0) -> NoReturn:
    """End the process from any thread, at once: nothing in it outlives the server."""
    os._exit(code)


class Reader(threading.Thread):
    """Turns the socket's messages into the main thread's inbox."""

    def __init__(self, link: Link, backend: Backend, inbox: Inbox) -> None:
        super().__init__(name="reader", daemon=True)
        self._link = link
        self._backend = backend
        self._inbox = inbox
        self._long_requests = ThreadPoolExecutor(1, "long-requests")
        self.preparing: set[int] = set()  # submitted, and not yet in the inbox

    def run(self) -> None:
        """Until the server hangs up."""
        while True:
            body = self._link.receive()
            try:
                message = channel.to_engine.decode(body)
            except msgspec.MsgspecError:
                leave(1)
            if isinstance(message, channel.Submit):
                self.preparing.add(message.id)
                if len(body) > _LONG_REQUEST:
                    self._long_requests.submit(self._prepare, message)
                else:
                    self._prepare(message)
            elif not isinstance(message, channel.Load):
                self._inbox.put(message)

    def _prepare(self, message: channel.Submit) -> None:
        try:
            prompt = self._backend.prepare(message.request)
        except TurbosparkError as error:
            self._refuse(message, Failed(error.code, error.message, error.param, error.retry_after))
        except Exception as error:  # noqa: BLE001 - one request's fault must not end the engine
            _log.error("a request could not be prepared: %s", type(error).__name__)
            self._refuse(message, Failed("internal_error", "The engine could not read this request."))
        else:
            self._inbox.put((message, prompt))
            if not message.start:
                self._link.send(channel.Prepared(message.id, len(prompt.ids)))

    def _refuse(self, message: channel.Submit, failed: Failed) -> None:
        self._inbox.put((message, None))
        self._link.send(channel.Step(((message.id, failed),)))


class Loop:
    """The main thread: takes in what the reader left and steps the model while there is work."""

    def __init__(self, link: Link, backend: Backend) -> None:
        self._link = link
        self._backend = backend
        self._inbox: Inbox = SimpleQueue()
        self._reader = Reader(link, backend, self._inbox)
        self._waiting: dict[int, tuple[channel.Submit, Prompt]] = {}  # prepared, until their Start
        self._aborted: set[int] = set()  # aborted while they were being prepared

    def run(self) -> NoReturn:
        """For ever; the process ends by `leave`."""
        self._reader.start()
        while True:
            self._take_in()
            if not self._backend.idle and not self._backend.pause:
                events = self._backend.step()
                if events:
                    self._link.send(channel.Step(tuple(events)))

    def _take_in(self) -> None:
        """Handle everything in the inbox; waits for a message while there is nothing to step."""
        timeout = None if self._backend.idle else self._backend.pause
        try:
            message = self._inbox.get(block=timeout != 0, timeout=timeout)
            while True:
                self._handle(message)
                message = self._inbox.get_nowait()
        except Empty:
            return

    def _handle(self, message: Incoming) -> None:
        if isinstance(message, channel.Ping):
            self._link.send(channel.Pong(message.number))
        elif isinstance(message, channel.Abort):
            self._abort(message.id)
        elif isinstance(message, channel.Start):
            if message.id in self._waiting:
                submit, prompt = self._waiting.pop(message.id)
                self._backend.start(submit.id, submit.request, prompt)
        else:
            self._admit(*message)

    def _admit(self, submit: channel.Submit, prompt: Prompt | None) -> None:
        self._reader.preparing.discard(submit.id)
        if submit.id in self._aborted:
            self._aborted.discard(submit.id)
        elif prompt is not None and submit.start:
            self._backend.start(submit.id, submit.request, prompt)
        elif prompt is not None:
            self._waiting[submit.id] = (submit, prompt)

    def _abort(self, sequence_id: int) -> None:
        if sequence_id in self._reader.preparing:
            self._aborted.add(sequence_id)
        elif self._waiting.pop(sequence_id, None) is None:
            self._backend.abort(sequence_id)


def build(load: channel.Load) -> Backend:
    """The backend that a `Load` asks for. Raises TurbosparkError."""
    if load.kind == "scripted":
        from turbospark_cli.runtime.engine.scripted import ScriptedEngine

        return ScriptedEngine(Path(load.path), Path(load.script) if load.script else None)
    from turbospark_cli.runtime.engine import device

    blas = device.load_blas()  # before anything imports MLX
    from turbospark_cli.runtime.engine.text import TextEngine

    return TextEngine(Path(load.path), device.select(blas), load.max_batch)


def main() -> NoReturn:
    """Entry of the process: load what the server asks for, then serve it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    link = Link(socket.socket(fileno=parser.parse_args().fd))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold prompts
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to handle; it hangs up when done
    threading.Thread(target=link.watch, name="hang-up", daemon=True).start()
    load = channel.to_engine.decode(link.receive())
    if not isinstance(load, channel.Load):
        leave(1)
    try:
        backend = build(load)
    except TurbosparkError as error:
        link.send(channel.LoadFailed(error.code, error.message))
        leave()
    except Exception as error:  # noqa: BLE001 - the server is told in a sentence, whatever it was
        message = f"The model cannot be loaded: the engine met an unexpected {type(error).__name__}."
        link.send(channel.LoadFailed("internal_error", message))
        leave()
    link.send(channel.Ready(backend.info))
    Loop(link, backend).run()
