"""What the server counts and logs about requests: Prometheus metrics and the access log.

PERF: requests only bump plain numbers; they become Prometheus samples when somebody reads the page.
No label or record ever holds a prompt, a key, a header or a query string.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from turbospark_cli.runtime.observer import Stats
from turbospark_cli.serve.exchange import Exchange

_TTFT_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # seconds
_OTHER: Final = "other"
_CLIENT_LEFT: Final = 499

access_log = logging.getLogger("turbospark.access")


class Histogram:
    """Counts of observed seconds between bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulated, as Prometheus wants them."""
        total = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows


class Metrics:
    """Counts for one server; implements `runtime.observer.Observer` and `guard.Watcher`."""

    def __init__(self, paths: Iterable[str], *, log_access: bool) -> None:
        self._labels = frozenset(paths)
        self._log_access = log_access
        self._answers: Counter[tuple[str, int]] = Counter()
        self._generations: Counter[tuple[str, str]] = Counter()
        self._prompt_tokens: Counter[str] = Counter()
        self._completion_tokens: Counter[str] = Counter()
        self._ttft: dict[str, Histogram] = {}

    # guard.Watcher

    def answered(self, exchange: Exchange, path: str, seconds: float) -> None:
        """One HTTP request is over."""
        status = _CLIENT_LEFT if exchange.gone and not exchange.ended else exchange.status
        self._answers[self._route(path), status] += 1
        if self._log_access:
            scope = exchange.scope
            access_log.info(
                "request",
                extra={
                    "fields": {
                        "id": exchange.id,
                        "client": scope["client"][0],
                        "method": scope["method"],
                        "path": path[:200],
                        "status": status,
                        "ms": round(seconds * 1000, 1),
                    }
                },
            )

    def _route(self, path: str) -> str:
        """The label of a path; their number is bounded, whatever clients send."""
        if path in self._labels:
            return path
        return "/v1/models/{model_id}" if path.startswith("/v1/models/") else _OTHER

    # runtime.observer.Observer

    def first_token(self, model: str, seconds: float) -> None:
        histogram = self._ttft.get(model)
        if histogram is None:
            histogram = self._ttft[model] = Histogram(_TTFT_BOUNDS)
        histogram.observe(seconds)

    def ended(self, model: str, outcome: str, prompt_tokens: int, completion_tokens: int) -> None:
        self._generations[model, outcome] += 1
        self._prompt_tokens[model] += prompt_tokens
        self._completion_tokens[model] += completion_tokens

    def engine_restarted(self, model: str) -> None:
        """Counted by the runtime; see `Stats.restarts`."""

    # The page.

    def page(self, stats: list[Stats]) -> tuple[bytes, str]:
        """The body and its content type."""
        return generate_latest(_Snapshot([*self._counted(), *_present(stats)])), CONTENT_TYPE_LATEST

    def _counted(self) -> Iterator[Metric]:
        answers = CounterMetricFamily(
            "turbospark_http_requests", "HTTP requests by route and status.", labels=("route", "status")
        )
        for (route, status), count in self._answers.items():
            answers.add_metric((route, str(status)), count)
        yield answers
        ends = CounterMetricFamily(
            "turbospark_requests", "Generations by how they ended.", labels=("model", "outcome")
        )
        for key, count in self._generations.items():
            ends.add_metric(key, count)
        yield ends
        yield _by_model("turbospark_prompt_tokens", "Prompt tokens.", self._prompt_tokens)
        yield _by_model("turbospark_completion_tokens", "Generated tokens.", self._completion_tokens)
        ttft = HistogramMetricFamily(
            "turbospark_time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            labels=("model",),
        )
        for model, histogram in self._ttft.items():
            ttft.add_metric((model,), histogram.buckets(), histogram.sum)
        yield ttft


def _by_model(name: str, explanation: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, explanation, labels=("model",))
    for model, count in counts.items():
        family.add_metric((model,), count)
    return family


def _present(stats: list[Stats]) -> Iterator[Metric]:
    running = GaugeMetricFamily("turbospark_running", "Sequences that hold a slot.", labels=("model",))
    waiting = GaugeMetricFamily("turbospark_waiting", "Requests without a slot.", labels=("model",))
    restarts = CounterMetricFamily(
        "turbospark_engine_restarts", "Engines that died and were replaced.", labels=("model",)
    )
    for each in stats:
        running.add_metric((each.model,), each.running)
        waiting.add_metric((each.model,), each.waiting)
        restarts.add_metric((each.model,), each.restarts)
    yield from (running, waiting, restarts)


class _Snapshot:
    """What `generate_latest` calls a registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
