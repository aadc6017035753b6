from __future__ import annotations

import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from turbospark_cli.runtime.observer import Stats
from turbospark_cli.serve.exchange import Exchange
from turbospark_cli.serve.observe import Metrics


async def _nothing(*_: Any) -> Any:
    raise AssertionError("nothing is sent here")


def exchange(status: int, *, gone: bool = False) -> Exchange:
    scope = {"type": "http", "method": "POST", "client": ("127.0.0.1", "1"), "query_string": b"key=secret"}
    made = Exchange(scope, _nothing, _nothing)
    made.status = status
    made.gone = gone
    return made


def samples(metrics: Metrics, stats: list[Stats]) -> dict[tuple[str, tuple[str, ...]], float]:
    body, content_type = metrics.page(stats)
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def test_the_page_counts_what_happened() -> None:
    metrics = Metrics(["/v1/x"], log_access=False)
    metrics.answered(exchange(200), "/v1/x", 0.1)
    metrics.answered(exchange(200), "/v1/x", 0.1)
    metrics.answered(exchange(404), "/any/thing/a/client/makes/up", 0.1)
    metrics.answered(exchange(404), "/v1/models/org/repo", 0.1)
    metrics.answered(exchange(0, gone=True), "/v1/x", 0.1)
    metrics.first_token("m", 0.2)
    metrics.first_token("m", 700)
    metrics.ended("m", "stop", 10, 5)
    metrics.ended("m", "length", 1, 2)
    page = samples(metrics, [Stats("m", running=3, waiting=2, restarts=1)])
    assert page["turbospark_http_requests_total", ("/v1/x", "200")] == 2
    assert page["turbospark_http_requests_total", ("other", "404")] == 1
    assert page["turbospark_http_requests_total", ("/v1/models/{model_id}", "404")] == 1
    assert page["turbospark_http_requests_total", ("/v1/x", "499")] == 1
    assert page["turbospark_requests_total", ("m", "stop")] == 1
    assert page["turbospark_prompt_tokens_total", ("m",)] == 11
    assert page["turbospark_completion_tokens_total", ("m",)] == 7
    assert page["turbospark_time_to_first_token_seconds_bucket", ("0.1", "m")] == 0
    assert page["turbospark_time_to_first_token_seconds_bucket", ("0.25", "m")] == 1
    assert page["turbospark_time_to_first_token_seconds_bucket", ("+Inf", "m")] == 2
    assert page["turbospark_time_to_first_token_seconds_sum", ("m",)] == 700.2
    assert page["turbospark_running", ("m",)] == 3
    assert page["turbospark_waiting", ("m",)] == 2
    assert page["turbospark_engine_restarts_total", ("m",)] == 1


async def test_the_access_log_has_no_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Metrics([], log_access=True).answered(exchange(200), "/v1/x", 0.0123)
    (record,) = caplog.records
    fields = record.fields  # type: ignore[attr-defined]
    assert fields["path"] == "/v1/x"
    assert fields["status"] == 200
    assert fields["ms"] == 12.3
    assert "secret" not in str(fields)
    Metrics([], log_access=False).answered(exchange(200), "/v1/x", 0.1)
    assert len(caplog.records) == 1
