"""A real engine process at the other end of a socketpair."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from turbospark_cli.runtime import channel
from turbospark_cli.runtime.events import Event, Failed, Finished, TextDelta

DEADLINE: Final = 60.0  # seconds; only a hang takes this long


class EngineProcess:
    """Speaks the channel with one engine; every wait ends with an error after DEADLINE."""

    def __init__(self, load: channel.Load | None) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(DEADLINE)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "turbospark_cli.runtime.engine", "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
            )
        self._deframer = channel.Deframer()
        self._arrived: deque[channel.ToServer] = deque()
        if load is not None:
            self.send(load)

    def send(self, *messages: channel.ToEngine) -> None:
        self.socket.sendall(channel.frame(messages))

    def receive(self) -> channel.ToServer:
        """The next message. Raises EOFError when the engine has gone."""
        while not self._arrived:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._arrived.extend(channel.to_server.decode(body) for body in self._deframer.feed(data))
        return self._arrived.popleft()

    def until(self, wanted: Callable[[channel.ToServer], bool]) -> list[channel.ToServer]:
        """All messages up to the first that is `wanted`."""
        seen = [self.receive()]
        while not wanted(seen[-1]):
            seen.append(self.receive())
        return seen

    def ready(self) -> channel.EngineInfo:
        message = self.receive()
        assert isinstance(message, channel.Ready), message
        return message.info

    def ping(self, number: int = 7) -> list[channel.ToServer]:
        """Everything said until the answer to this ping."""
        self.send(channel.Ping(number))
        return self.until(lambda message: message == channel.Pong(number))

    def events(self, *numbers: int) -> dict[int, list[Event]]:
        """The events of these sequences, to the end of each; nothing may follow an end."""
        found: dict[int, list[Event]] = {number: [] for number in numbers}
        ended: set[int] = set()
        while ended != set(numbers):
            message = self.receive()
            for number, event in message.events if isinstance(message, channel.Step) else ():
                assert number not in ended, "an event after the end"
                found[number].append(event)
                if isinstance(event, Finished | Failed):
                    ended.add(number)
        return found

    def gone(self) -> int:
        """Wait for the process's end; its exit code."""
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(DEADLINE)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextlib.contextmanager
def engine(load: channel.Load | None) -> Iterator[EngineProcess]:
    """An engine process that is gone afterwards."""
    running = EngineProcess(load)
    try:
        yield running
    finally:
        running.close()


def scripted(folder: Path, script: Path | None = None) -> channel.Load:
    return channel.Load("scripted", "tiny", str(folder), str(script) if script else None)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))
