"""The converter as a process: what it says, how it ends, and that only it dies of a bad file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models import conversion
from turbospark_cli.models.convert.main import convert


def test_it_reports_progress_and_facts(tiny_gguf: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    facts = conversion.convert("gguf", tiny_gguf, tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == [(done, seen[0][1]) for done in range(seen[0][1] + 1)]
    assert (facts.architecture, facts.bits, facts.stored_as) == ("llama", 4, "Q4_0")
    assert (tmp_path / "model.safetensors").is_file()


def test_a_bad_file_is_the_converters_own_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"nothing of the kind")
    with pytest.raises(ConversionFailed, match=r"^The file is not a GGUF file\.$"):
        conversion.convert("gguf", bad, tmp_path, lambda done, total: None)


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "KILL"])
def test_a_signal_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    dying = tmp_path / "python"
    dying.write_text(f'#!/bin/sh\necho \'{{"done": 1, "total": 2}}\'\nkill -{name} $$\n')
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    with pytest.raises(ConversionFailed, match=f"SIG{name}"):
        conversion.convert("gguf", tmp_path / "x", tmp_path, lambda done, total: None)


def test_an_unforeseen_fault_is_a_sentence(tiny_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(ConversionFailed, match="could not be written"):
        conversion.convert("gguf", tiny_gguf, tmp_path / "no" / "such" / "folder", lambda done, total: None)


def test_it_ends_with_its_parent(tiny_gguf: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "model.safetensors"
    os.mkfifo(fifo)  # the converter blocks when it opens this for writing
    command = [sys.executable, "-m", "turbospark_cli.models.convert", "gguf", str(tiny_gguf), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 1


def test_leaving_the_call_ends_the_process(tiny_gguf: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conversion.convert("gguf", tiny_gguf, tmp_path, interrupt)


def test_mutated_files_are_converted_or_refused_and_nothing_else(tiny_gguf: Path, tmp_path: Path) -> None:
    whole, dice = tiny_gguf.read_bytes(), random.Random(20)
    outcomes, longest = {True: 0, False: 0}, 0
    for number in range(400):
        mutant = bytearray(whole)
        for _ in range(dice.randint(1, 8)):
            place = dice.randrange(len(mutant) if dice.random() < 0.2 else 12_000)  # mostly in the header
            mutant[place] = dice.randrange(256)
        path, target = tmp_path / f"{number}.gguf", tmp_path / f"{number}"
        path.write_bytes(mutant)
        target.mkdir()
        converted = True
        try:
            convert(path, target, lambda done, total: None)
        except ConversionFailed as error:
            converted = False
            longest = max(longest, len(error.message))
        outcomes[converted] += 1
    assert longest < 300
    assert min(outcomes.values()) > 20


def test_a_mutant_that_would_run_for_ever_is_stopped_by_its_limit(tiny_gguf: Path, tmp_path: Path) -> None:
    from turbospark_cli.models.convert import __main__ as process

    script = (
        "import resource, sys\n"
        "from turbospark_cli.models.convert import __main__ as process\n"
        "process._SECONDS_BASE = 1\n"
        "process._limit(0)\n"
        "while True: pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGXCPU
    assert process._SECONDS_BASE > 60
