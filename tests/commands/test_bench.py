"""`turbospark bench` as a user runs it: the real model offline, real servers side by side."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.commands.openai_peer import Peer
from tests.commands.programs import home_of, scripted_server, turbospark
from turbospark_cli.commands.bench import offline
from turbospark_cli.commands.bench.flags import OfflineFlags
from turbospark_cli.commands.bench.offline import Cell
from turbospark_cli.errors import UsageError

SMALL = ("--max-tokens", "3", "--prompt-tokens", "5", "-r", "2")


def test_lists_make_a_grid() -> None:
    assert offline.cells(OfflineFlags("8,16", "0", "1,2", "4")) == [
        Cell(1, 4, 8, 0),
        Cell(1, 4, 16, 0),
        Cell(2, 4, 8, 0),
        Cell(2, 4, 16, 0),
    ]
    assert offline.cells(OfflineFlags()) == [Cell(1, 0, 512, 128)]


@pytest.mark.parametrize(
    "flags", [OfflineFlags("0", "0"), OfflineFlags("x"), OfflineFlags(batch="0"), OfflineFlags(depth="-1")]
)
def test_grids_of_nothing(flags: OfflineFlags) -> None:
    with pytest.raises(UsageError):
        offline.cells(flags)


@pytest.mark.starter
def test_the_real_model_offline(starter: Path, tmp_path: Path) -> None:
    done = turbospark(
        home_of(starter), "bench", "smollm2-135m", "-p6", "-n0,4", "-b1,2", "-d0,3", "-r2", "-ojson"
    )
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert [(r["batch"], r["depth"], r["generate"]) for r in records] == [
        (batch, depth, count) for batch in (1, 2) for depth in (0, 3) for count in (0, 4)
    ]
    assert all(r["prompt_tok_s"] > 0 and r["cpu_s"] > 0 and r["rounds"] == 2 for r in records)
    assert all((r["decode_tok_s"] is None) == (r["generate"] == 0) for r in records)


def test_two_servers_side_by_side(openai_peer: Peer, tmp_path: Path) -> None:
    second = openai_peer.url.replace("127.0.0.1", "localhost")
    done = turbospark(
        tmp_path, "bench", "--url", openai_peer.url, "--url", second, "--concurrency", "1,2", *SMALL
    )
    assert done.returncode == 0, done.stderr
    tables = done.stdout.strip().split("\n\n")
    assert [table.splitlines()[0].split("|")[1].strip() for table in tables] == ["1 at a time", "2 at a time"]
    for table in tables:
        rows = {line.split("|")[1].strip(): line.split("|")[2:5] for line in table.splitlines()[2:]}
        assert [cell.strip() for cell in rows["tokens"]] == [
            str(tokens) for tokens in (12 if "1 at" in table else 24, 12 if "1 at" in table else 24, 1)
        ]
        assert {"ttft_p50_ms", "ttft_p95_ms", "itl_p99_ms", "itl_max_ms", "total_tok_s"} <= rows.keys()
    assert {body["model"] for body in openai_peer.bodies} == {"listed"}


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_forms_for_machines(openai_peer: Peer, tmp_path: Path, form: str) -> None:
    done = turbospark(tmp_path, "bench", "m", "--url", openai_peer.url, "-o", form, *SMALL)
    assert done.returncode == 0, done.stderr
    if form == "csv":
        (record,) = csv.DictReader(io.StringIO(done.stdout))
    else:
        found = json.loads(done.stdout)
        (record,) = found if form == "json" else [found]
    assert record["url"] == openai_peer.url
    assert float(record["tokens"]) == 12
    assert float(record["rounds"]) == 2


def test_errors_are_counted_and_said(openai_peer: Peer, tmp_path: Path) -> None:
    done = turbospark(tmp_path, "bench", "refusing", "--url", openai_peer.url, *SMALL)
    assert (done.returncode, done.stdout) == (5, "")
    assert "HTTP 503" in done.stderr


def test_unstreamed_mode_never_asks_for_a_stream(openai_peer: Peer, tmp_path: Path) -> None:
    arguments = ("--no-stream", "--concurrency", "2", "--requests", "6", "-r", "1")
    done = turbospark(tmp_path, "bench", "m", "--url", openai_peer.url, *arguments)
    assert done.returncode == 0, done.stderr
    assert "| requests_s " in done.stdout
    assert not any(body.get("stream") for body in openai_peer.bodies)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("bench",), "Name a model"),
        (("bench", "m", "--concurrency", "2"), "--concurrency"),
        (("bench", "m", "--url", "http://127.0.0.1:1", "-p", "5"), "--prompt"),
        (("bench", "m", "--url", "http://127.0.0.1:1", "--rate", "1", "--concurrency", "1"), "--rate"),
        (("bench", "m", "--url", "http://127.0.0.1:1", "--no-stream", "--long-tokens", "5"), "--long-tokens"),
        (("bench", "m", "--url", "http://127.0.0.1:1", "--concurrency", "0"), "--concurrency"),
    ],
)
def test_flags_that_do_not_go_together(tmp_path: Path, arguments: tuple[str, ...], part: str) -> None:
    done = turbospark(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert part in done.stderr


@pytest.mark.starter
def test_our_own_server_streamed_and_not(starter: Path, tmp_path: Path) -> None:
    with scripted_server(starter, tmp_path) as server:
        who = ("--url", server["url"], "--pid", str(server["pid"]))
        streamed = turbospark(tmp_path, "bench", *who, "--concurrency", "4", "-o", "json", *SMALL)
        small = turbospark(
            tmp_path,
            "bench",
            *who,
            "--no-stream",
            "--concurrency",
            "4",
            "--requests",
            "40",
            "-r",
            "1",
            "-o",
            "json",
        )
    (record,) = json.loads(streamed.stdout)
    assert (record["requests"], record["errors"]) == (8, 0)
    assert record["tokens"] == 8 * 3
    assert record["prompt_tokens"] > 5
    assert record["server_cpu_s"] > 0
    (record,) = json.loads(small.stdout)
    assert (record["requests"], record["errors"]) == (40, 0)
    assert record["requests_s"] > 0
    assert record["cpu_ms_per_request"] > 0
