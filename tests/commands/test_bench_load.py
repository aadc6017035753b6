"""The load generator against a server on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.commands.openai_peer import Peer
from turbospark_cli.commands.bench import cpu, load, prompts, servers, unstreamed
from turbospark_cli.commands.bench.flags import ServerFlags
from turbospark_cli.commands.bench.load import Level, Plan
from turbospark_cli.commands.bench.target import Target, base_url, first_model, is_loopback
from turbospark_cli.errors import ServerUnreachable, UsageError


def _plan(**more: object) -> Plan:
    return Plan(**({"lengths": [20], "max_tokens": 3} | more))  # type: ignore[arg-type]


def test_a_level_sends_what_was_planned(openai_peer: Peer) -> None:
    openai_peer.pairs = threading.Barrier(2)
    figures = load.measure(
        Target(openai_peer.url, "m", key="k"), _plan(lengths=[10, 50], requests=4), Level(2), seed=1
    )
    assert (figures["requests"], figures["errors"], figures["tokens"]) == (4, 0, 4 * 6)
    assert figures["prompt_tokens"] == 9
    assert openai_peer.most_at_once == 2
    assert set(openai_peer.keys) == {"Bearer k"}
    sent = [body["messages"][0]["content"] for body in openai_peer.bodies]
    assert len({text[:8] for text in sent}) == 4
    assert sorted(len(text) > 150 for text in sent) == [False, False, True, True]
    assert all(body["stream_options"] == {"include_usage": True} for body in openai_peer.bodies)


def test_tokens_are_counted_from_the_stream_when_the_server_does_not(openai_peer: Peer) -> None:
    figures = load.measure(Target(openai_peer.url, "uncounted"), _plan(requests=1), Level(1), seed=1)
    assert (figures["tokens"], figures["prompt_tokens"]) == (3, None)


@pytest.mark.parametrize(
    ("model", "reason"),
    [("refusing", "HTTP 503"), ("failing", "the engine died"), ("dying", "without a finish_reason")],
)
def test_a_stream_that_ends_badly_is_an_error(openai_peer: Peer, model: str, reason: str) -> None:
    figures = load.measure(Target(openai_peer.url, model), _plan(requests=2), Level(2), seed=1)
    assert figures["errors"] == 2
    assert reason in str(figures["error"])
    assert figures["tokens"] == 0


def test_one_long_prompt_amid_the_others_is_not_part_of_their_figures(openai_peer: Peer) -> None:
    figures = load.measure(Target(openai_peer.url, "m"), _plan(requests=2, long_tokens=500), Level(2), seed=1)
    assert (figures["requests"], figures["tokens"]) == (3, 2 * 6)
    assert isinstance(figures["long_ttft_ms"], float)
    assert max(len(body["messages"][0]["content"]) for body in openai_peer.bodies) > 2000


def test_a_long_prompt_is_sent_even_when_all_others_fail(openai_peer: Peer) -> None:
    figures = load.measure(
        Target(openai_peer.url, "refusing"), _plan(requests=2, long_tokens=50), Level(2), seed=1
    )
    assert (figures["requests"], figures["errors"]) == (3, 3)


def test_arrivals_at_a_rate_do_not_wait_for_answers(openai_peer: Peer) -> None:
    figures = load.measure(Target(openai_peer.url, "m"), _plan(requests=6), Level(1, rate=500.0), seed=1)
    assert (figures["requests"], figures["errors"]) == (6, 0)


@pytest.mark.parametrize("model", ["m", "closing", "chunked", "keeping"])
def test_unstreamed_requests(openai_peer: Peer, model: str) -> None:
    figures = unstreamed.measure(Target(openai_peer.url, model), connections=3, requests=20, max_tokens=1)
    assert (figures["requests"], figures["errors"]) == (20, 0)
    assert len(openai_peer.bodies) == 20
    assert openai_peer.most_at_once <= 3
    assert isinstance(figures["requests_s"], float)


def test_unstreamed_requests_that_are_refused_are_errors(openai_peer: Peer) -> None:
    figures = unstreamed.measure(Target(openai_peer.url, "refusing"), connections=2, requests=4, max_tokens=1)
    assert (figures["errors"], figures["requests_s"]) == (4, 0.0)
    assert "503" in str(figures["error"])


def _free_url() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/v1"


def test_nobody_at_the_address() -> None:
    with pytest.raises(ServerUnreachable):
        first_model(_free_url(), None)
    figures = load.measure(Target(_free_url(), "m"), _plan(requests=1), Level(1), seed=1)
    assert "ConnectError" in str(figures["error"])


def test_the_cpu_seconds_of_a_server_are_its_trees() -> None:
    spin = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        spent = cpu.tree_seconds(process.pid)
    assert 0.4 <= spent < 30
    with pytest.raises(UsageError, match="no process"):
        cpu.tree_seconds(2**22 + 1)


def test_cpu_seconds_where_there_is_no_proc() -> None:
    limit = time.monotonic() + 60
    while time.process_time() < 1.5 and time.monotonic() < limit:
        pass
    assert cpu._from_ps()[os.getpid()].seconds >= 1
    assert cpu._seconds("1-02:03:04") == 86400 + 2 * 3600 + 3 * 60 + 4
    assert cpu._seconds("03:04.50") == pytest.approx(184.5)


@pytest.mark.parametrize(
    ("pattern", "expected"), [("150", [150]), ("20,1000", [20, 1000]), ("1x1000, 3x20", [1000, 20, 20, 20])]
)
def test_prompt_lengths(pattern: str, expected: list[int]) -> None:
    assert prompts.lengths(pattern) == expected


@pytest.mark.parametrize("pattern", ["", "x", "0", "-5", "2x", "x20", "1,,2", "99999999x20", "ten"])
def test_prompt_lengths_that_are_none(pattern: str) -> None:
    with pytest.raises(UsageError):
        prompts.lengths(pattern)


def test_a_prompt_is_as_long_as_wanted_and_like_no_other() -> None:
    assert len(prompts.text(1000, 1).split()) == pytest.approx(1000, abs=20)
    assert prompts.text(50, 1) == prompts.text(50, 1)
    assert len({prompts.text(50, seed)[:7] for seed in range(100)}) > 95


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
        ("https://host/api/v1/", "https://host/api/v1"),
    ],
)
def test_addresses(given: str, base: str) -> None:
    assert base_url(given) == base


@pytest.mark.parametrize("given", ["ftp://host", "http://", ""])
def test_addresses_that_are_none(given: str) -> None:
    with pytest.raises(UsageError):
        base_url(given)


def test_this_machines_key_stays_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TURBOSPARK_HOME", str(tmp_path))
    monkeypatch.setenv("TURBOSPARK_API_KEY", "own")
    urls = ["http://127.0.0.1:1", "http://10.0.0.1:1"]
    own, foreign = servers.targets(urls, ["m"], ServerFlags())
    assert (own.key, foreign.key) == ("own", None)
    assert is_loopback("http://[::1]:8080/v1")
    file = tmp_path / "key"
    file.write_text("given")
    file.chmod(0o600)
    assert servers.targets(urls, ["m"], ServerFlags(api_key_file=file))[1].key == "given"


@pytest.mark.parametrize(
    ("urls", "models", "flags"),
    [
        (["http://a", "http://a/v1"], ["m"], ServerFlags()),
        (["http://a", "http://b", "http://c"], ["m"], ServerFlags()),
        (["http://a", "http://b"], ["m", "n", "o"], ServerFlags()),
        (["http://a", "http://b"], ["m"], ServerFlags(pid=(1,))),
    ],
)
def test_lists_that_do_not_fit_each_other(urls: list[str], models: list[str], flags: ServerFlags) -> None:
    with pytest.raises(UsageError):
        servers.targets(urls, models, flags)
