"""Timers that all requests share. PERF: one for each would cost more than answering a small request."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

BODY_TIMEOUT_S = 30.0  # from the headers to the last byte
WATCH_AFTER_S = 0.05  # a request that is answered sooner is not worth watching its client for
_TICK_S = 1.0


class Reading(Protocol):
    """A request whose body is being read."""

    started: float

    def expire(self) -> None: ...


class Watching(Protocol):
    """A request that is being answered."""

    def watch(self) -> None: ...


class BodyClock:
    """Expires requests whose bodies take too long. It ticks only while there are any."""

    def __init__(self) -> None:
        self._reading: dict[Reading, None] = {}
        self._is_ticking = False

    def add(self, exchange: Reading) -> None:
        self._reading[exchange] = None
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def discard(self, exchange: Reading) -> None:
        del self._reading[exchange]

    def _tick(self) -> None:
        self._is_ticking = bool(self._reading)
        if not self._is_ticking:
            return
        limit = time.perf_counter() - BODY_TIMEOUT_S
        for exchange in self._reading:
            if exchange.started < limit:
                exchange.expire()
        asyncio.get_running_loop().call_later(_TICK_S, self._tick)


class WatchClock:
    """Begins to watch the clients of requests that are still open after a moment."""

    def __init__(self) -> None:
        self._fresh: dict[Watching, None] = {}
        self._is_ticking = False

    def add(self, exchange: Watching) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._tick)
        self._fresh[exchange] = None

    def discard(self, exchange: Watching) -> None:
        self._fresh.pop(exchange, None)

    def _tick(self) -> None:
        self._is_ticking = False
        fresh, self._fresh = self._fresh, {}
        for exchange in fresh:
            exchange.watch()
