"""`turbospark run` as a user runs it, with the real model."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands.programs import command_line, environment, home_of, turbospark

GREEDY = ("--temperature", "0")


@pytest.mark.starter
def test_an_answer_on_stdout_and_speeds_on_stderr(starter: Path) -> None:
    question = (
        "run",
        "smollm2-135m",
        "What is the capital of France?",
        *GREEDY,
        "--max-tokens",
        "12",
        "--stats",
    )
    alone = turbospark(home_of(starter), *question)
    assert alone.returncode == 0, alone.stderr
    assert "Paris" in alone.stdout
    assert alone.stdout.endswith("\n")
    prompt, answer = map(int, re.findall(r"(\d+) tokens in", alone.stderr))
    assert 1 <= answer <= 12
    longer = turbospark(home_of(starter), *question, text="Some words that are piped in.\n" * 3)
    piped = int(re.findall(r"(\d+) tokens in", longer.stderr)[0])
    assert piped >= prompt + 3 * 6


@pytest.mark.starter
def test_piped_text_alone_is_a_prompt_and_system_and_stop_count(starter: Path) -> None:
    done = turbospark(
        home_of(starter),
        *("run", "smollm2-135m", "-s", "You count.", "--stop", "four", *GREEDY, "--max-tokens", "24"),
        text="Continue: one, two, three, four, five, six, seven",
    )
    assert done.returncode == 0, done.stderr
    assert "four" not in done.stdout


@pytest.mark.starter
def test_the_same_seed_gives_the_same_answer(starter: Path) -> None:
    def answer(seed: str) -> str:
        done = turbospark(
            home_of(starter), "run", "smollm2-135m", "Invent a word.", "--seed", seed, "--max-tokens", "10"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert answer("7") == answer("7")


@pytest.mark.starter
def test_ctrl_c_ends_the_line_and_exits_130(starter: Path) -> None:
    with subprocess.Popen(
        command_line("run", "smollm2-135m", "Write a very long story.", *GREEDY),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home_of(starter)),
    ) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate()
    assert process.returncode == 130
    assert (first + rest).endswith(b"\n")
    assert said == b""


@pytest.mark.starter
def test_a_reader_who_leaves_ends_the_answer(starter: Path) -> None:
    with subprocess.Popen(
        command_line("run", "smollm2-135m", "Write a very long story.", *GREEDY),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home_of(starter)),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("run", "smollm2-135m"), 2, "There is no prompt"),
        (("run", "smollm2-135m", "-"), 2, "There is no prompt"),
        (("run", "smollm2-135m", "Hello", "--no-pull"), 3, "turbospark models pull smollm2-135m"),
        (("run", "smollm3-135m", "Hello"), 3, "smollm2-135m"),
        (("run", "../../etc", "Hello"), 3, "etc"),
        (("run", "smollm2-135m", "Hello", "--max-tokens", "0"), 2, "max-tokens"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_run(tmp_path: Path, arguments: tuple[str, ...], code: int, part: str) -> None:
    done = turbospark(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_offline_a_missing_model_is_not_pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert turbospark(tmp_path, "run", "smollm2-135m", "Hello").returncode == 3
    assert not (tmp_path / "models").exists()


@pytest.mark.starter
def test_a_prompt_that_does_not_fit_is_told_before_anything_is_read(starter: Path) -> None:
    done = turbospark(home_of(starter), "run", "smollm2-135m", "Sum up.", text="word " * 9000)
    assert (done.returncode, done.stdout) == (2, "")
    assert "maximum context length" in done.stderr
