"""An engine process without a model, for tests of faults: it speaks the channel and does as it is told.

The `script` of its Load message is JSON with switches for the whole process; the text of a raw prompt is
JSON with switches for one sequence. It answers as the real engine does: checks, slots, one Step per turn,
Pong between turns, exit when the server's end of the socket closes.

    process: load_failed (message), load_seconds, lives (a file that counts starts), crash_loads (the first N
             starts crash while loading), die_at_token (the process kills itself when it has made N tokens)
    sequence: tokens, interval (seconds per token), refuse (message), and token numbers: garbage_at, exit_at,
             hang_at
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbospark_cli.runtime import channel
from turbospark_cli.runtime.events import Event, Failed, Finished, Started, TextDelta, Usage
from turbospark_cli.runtime.requests import TextPrompt

GARBAGE = b"\x00\x00\x00\x03abc"


@dataclass
class Sequence:
    """One request with its switches."""

    id: int
    switches: dict[str, Any]
    running: bool
    made: int = 0
    due: float = field(default_factory=time.monotonic)

    @property
    def tokens(self) -> int:
        return int(self.switches.get("tokens", 1))

    @property
    def prompt_tokens(self) -> int:
        return int(self.switches.get("prompt_tokens", 3))


class FakeEngine:
    """The loop: messages in, one Step out per turn."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._inbox: queue.SimpleQueue[channel.ToEngine] = queue.SimpleQueue()
        self._sequences: dict[int, Sequence] = {}
        self._made = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        deframer = channel.Deframer()
        while data := self._socket.recv(1 << 16):
            for body in deframer.feed(data):
                self._inbox.put(channel.to_engine.decode(body))
        os._exit(0)

    def run(self) -> None:
        load = self._inbox.get()
        assert isinstance(load, channel.Load)
        self._switches = json.loads(load.script or "{}")
        self._load()
        while True:
            self._receive()
            self._step()

    def _load(self) -> None:
        time.sleep(self._switches.get("load_seconds", 0))
        if (message := self._switches.get("load_failed")) is not None:
            self._send(channel.LoadFailed("corrupt_install", message))
            sys.exit(1)
        if (lives := self._switches.get("lives")) is not None:
            with Path(lives).open("a") as file:
                file.write("x")
            if Path(lives).stat().st_size <= self._switches.get("crash_loads", 0):
                print("fake engine: crashing while loading", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
        self._send(channel.Ready(channel.EngineInfo(1000, 1000, "cpu", "fake")))

    def _send(self, *messages: channel.ToServer) -> None:
        self._socket.sendall(channel.frame(messages))

    def _receive(self) -> None:
        """Takes all messages; waits for one while there is nothing to do."""
        due = [s.due for s in self._sequences.values() if s.running]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        try:
            message = self._inbox.get(timeout=wait) if wait is None or wait > 0 else self._inbox.get_nowait()
            while True:
                self._obey(message)
                message = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _obey(self, message: channel.ToEngine) -> None:
        if isinstance(message, channel.Submit):
            self._submit(message)
        elif isinstance(message, channel.Start):
            sequence = self._sequences[message.id]
            sequence.running, sequence.due = True, time.monotonic()
        elif isinstance(message, channel.Abort):
            self._sequences.pop(message.id, None)
        elif isinstance(message, channel.Ping):
            self._send(channel.Pong(message.number))

    def _submit(self, message: channel.Submit) -> None:
        assert isinstance(message.request.prompt, TextPrompt)
        switches = json.loads(message.request.prompt.text)
        if (refusal := switches.get("refuse")) is not None:
            failed = Failed("context_length_exceeded", refusal, "messages")
            self._send(channel.Step(((message.id, failed),)))
            return
        sequence = Sequence(message.id, switches, message.start)
        self._sequences[message.id] = sequence
        if not message.start:
            self._send(channel.Prepared(message.id, sequence.prompt_tokens))

    def _step(self) -> None:
        now = time.monotonic()
        events: list[tuple[int, Event]] = []
        for sequence in [s for s in self._sequences.values() if s.running and s.due <= now]:
            events += [(sequence.id, event) for event in self._token(sequence)]
        if events:
            self._send(channel.Step(tuple(events)))
        if self._made >= self._switches.get("die_at_token", float("inf")):
            os.kill(os.getpid(), signal.SIGKILL)

    def _token(self, sequence: Sequence) -> list[Event]:
        switches = sequence.switches
        events: list[Event] = [Started(sequence.prompt_tokens)] if sequence.made == 0 else []
        sequence.made += 1
        self._made += 1
        sequence.due = time.monotonic() + switches.get("interval", 0)
        self._misbehave(sequence.made, switches)
        events.append(TextDelta(f"{sequence.made} "))
        if sequence.made == sequence.tokens:
            del self._sequences[sequence.id]
            events.append(Finished("stop", Usage(sequence.prompt_tokens, sequence.made)))
        return events

    def _misbehave(self, token: int, switches: dict[str, Any]) -> None:
        if token == switches.get("garbage_at"):
            self._socket.sendall(GARBAGE)
        if token == switches.get("exit_at"):
            os._exit(3)
        if token == switches.get("hang_at"):
            time.sleep(1000)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    FakeEngine(socket.socket(fileno=parser.parse_args().fd)).run()


if __name__ == "__main__":
    main()
