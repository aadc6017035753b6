"""One engine process: its start, the last lines it wrote, its end.

The process gets one end of a socketpair, no standard input, and a session of its own, so that Ctrl-C in
the terminal reaches the server alone and the server decides how its streams end. It exits by itself when
the server's end of the socket closes, for whatever reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

# -P: without it `python -m` would import from the folder the server was started in.
ENGINE_COMMAND: Final = (sys.executable, "-P", "-m", "turbospark_cli.runtime.engine")
_SECRETS: Final = ("TURBOSPARK_API_KEY", "HF_TOKEN")  # an engine needs neither
_OUTPUT_GRACE: Final = 0.2  # seconds
_LINES_KEPT: Final = 20
_LINE_LIMIT: Final = 500  # characters


class _Output(asyncio.Protocol):
    """Keeps the last lines of what the engine writes to its standard output and error."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.ended = asyncio.Event()
        self._partial = b""

    def data_received(self, data: bytes) -> None:
        *whole, rest = (self._partial + data).split(b"\n")
        self.lines.extend(line[:_LINE_LIMIT].decode("utf-8", "replace") for line in whole[-_LINES_KEPT:])
        self._partial = rest[:_LINE_LIMIT]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


class EngineProcess:
    """A running or ended process. `exited` is a future of its return code; `socket` is the server's end."""

    def __init__(self, popen: subprocess.Popen[bytes], server_end: socket.socket) -> None:
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._output = _Output()
        self._pipe: asyncio.BaseTransport | None = None
        self.socket = server_end
        self.exited: asyncio.Future[int] = self._loop.create_future()
        # A thread, because child watchers differ between loops and a blocking wait would stop the loop.
        threading.Thread(target=self._reap, name=f"engine-{popen.pid}", daemon=True).start()

    @classmethod
    async def spawn(cls, command: Sequence[str] = ENGINE_COMMAND) -> EngineProcess:
        """Starts `command --fd N`. Raises OSError if the machine cannot start a process."""
        server_end, engine_end = socket.socketpair()
        try:
            # Starting a process takes milliseconds, which is too long for the loop.
            popen = await asyncio.to_thread(_popen, command, engine_end)
        except BaseException:
            # Should a cancelled start succeed after all, that engine finds its socket closed and exits.
            server_end.close()
            raise
        process = cls(popen, server_end)
        pipe, _ = await process._loop.connect_read_pipe(lambda: process._output, popen.stdout)
        process._pipe = pipe
        return process

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def last_lines(self) -> list[str]:
        """The end of its output; for the debug log only, since libraries may print anything."""
        return list(self._output.lines)

    def kill(self) -> None:
        """Ends it at once with everything it has started."""
        if self._popen.returncode is None:
            try:
                os.killpg(self._popen.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # already a zombie; macOS says the latter
                self._popen.kill()

    async def wait(self, seconds: float) -> int | None:
        """Its return code once it has ended and its output has been read; None if that takes longer."""
        done, _ = await asyncio.wait({self.exited}, timeout=seconds)
        if not done:
            return None
        # A child of the engine may hold the pipe open for ever.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._output.ended.wait(), _OUTPUT_GRACE)
        return self.exited.result()

    def close(self) -> None:
        """Kills it if it still lives, and lets go of its output."""
        self.kill()
        if self._pipe is not None:
            self._pipe.close()

    def _reap(self) -> None:
        code = self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        if not self.exited.done():
            self.exited.set_result(code)


def describe_exit(code: int) -> str:
    """A clause for people: how a process with this return code ended."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (", perhaps for lack of memory" if -code == signal.SIGKILL else "")


def _popen(command: Sequence[str], engine_end: socket.socket) -> subprocess.Popen[bytes]:
    with engine_end:
        descriptor = engine_end.fileno()
        return subprocess.Popen(
            [*command, "--fd", str(descriptor)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            # One pipe for both: nothing an engine or a library prints may reach the server's own output.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name not in _SECRETS},
        )
