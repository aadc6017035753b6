"""Notices an engine that lives but does not answer.

The loop that runs the model answers a `Ping` between two steps. Silence is counted in turns of our own
timer, not by the clock: when this process itself was suspended (a closed lid, SIGSTOP), the gap counts as
one turn, and a healthy engine gets its chance to answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from turbospark_cli.runtime import channel
from turbospark_cli.runtime.connection import EngineConnection


@dataclass(frozen=True, slots=True)
class PulseLimits:
    """Seconds."""

    interval: float = 2.0  # between two pings
    stalled_after: float = 10.0  # of silence: reported as stalled
    kill_after: float = 60.0  # of silence: given up


class Pulse:
    """Pings one engine until `stop()`; condemns it after `kill_after` seconds of silence."""

    def __init__(self, connection: EngineConnection, limits: PulseLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._silent_turns = 0
        self._timer = self._loop.call_later(limits.interval, self._turn)

    @property
    def stalled(self) -> bool:
        return not self._connection.heard and self._silence >= self._limits.stalled_after

    @property
    def _silence(self) -> float:
        return self._silent_turns * self._limits.interval

    def stop(self) -> None:
        self._timer.cancel()

    def _turn(self) -> None:
        connection = self._connection
        if connection.heard or self._number == 0:
            # Anything it says comes from that loop, so it counts like a Pong.
            connection.heard = False
            self._silent_turns = 0
            self._number += 1
            connection.send(channel.Ping(self._number))
        else:
            self._silent_turns += 1
        if self._silence >= self._limits.kill_after:
            connection.condemn(f"did not answer for {self._silence:.0f} s")
        else:
            self._timer = self._loop.call_later(self._limits.interval, self._turn)
