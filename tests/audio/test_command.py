"""`turbospark transcribe` as a process, with a model that is not one: outputs, failures, interruptions."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
WHOLE: Final = "Samples 0 to 160000.\n"  # how the fake begins, when it hears all of the clip
PATIENCE: Final = 120  # seconds


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tests.audio.transcribe_driver", "transcribe", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | more


def run(
    *arguments: str | Path, data: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments),
        input=data if data is not None else b"",
        capture_output=True,
        cwd=cwd or ROOT,
        env=environment(),
        check=False,
        timeout=PATIENCE,
    )
    assert b"Traceback" not in done.stderr
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_to_standard_output(spoken: Path) -> None:
    done = run(spoken, "--no-vad")
    assert (done.returncode, done.stdout[: len(WHOLE)]) == (0, WHOLE)


def test_standard_input(spoken: Path) -> None:
    assert run("-", "--no-vad", data=spoken.read_bytes()).stdout.startswith(WHOLE)


def test_silence_is_skipped_unless_told_otherwise(spoken: Path) -> None:
    assert run(spoken, "-q").stdout.startswith("Samples 0 to 10")
    assert run(spoken, "-q").stderr == ""


def test_a_part_of_a_file(spoken: Path) -> None:
    done = run(spoken, "--no-vad", "--start", "0:02.5", "--end", "4", "--timestamps")
    assert done.stdout == "[00:02.500 --> 00:04.000] Samples 0 to 24000.\n"


def test_json_on_one_line(spoken: Path) -> None:
    document = json.loads(run(spoken, "--no-vad", "--json", "--word-timestamps", "-l", "de").stdout)
    assert (document["file"], document["language"]) == ("harvard.opus", "de")
    assert document["words"][0]["word"] == "Samples"


def test_many_files_in_many_forms_into_a_folder(spoken: Path, tmp_path: Path) -> None:
    shutil.copy(spoken, tmp_path / "b.opus")
    done = run(spoken, tmp_path / "b.opus", "-f", "srt", "-f", "json", "-o", tmp_path / "subs")
    assert done.returncode == 0
    written = [
        str(tmp_path / "subs" / f"{name}.{form}") for name in ("harvard", "b") for form in ("srt", "json")
    ]
    assert done.stdout.splitlines() == written
    assert names(tmp_path / "subs") == ["b.json", "b.srt", "harvard.json", "harvard.srt"]
    assert (tmp_path / "subs" / "b.srt").read_text().startswith("1\n00:00:00,")


def test_one_failure_does_not_stop_the_rest(spoken: Path, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    (tmp_path / "empty.wav").touch()
    done = run(
        tmp_path / "text.wav", spoken, tmp_path / "empty.wav", tmp_path, "-o", tmp_path / "out", "--no-vad"
    )
    assert done.returncode == 1
    assert names(tmp_path / "out") == ["harvard.txt"]
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert [error.split()[1] for error in errors] == ["text.wav", "empty.wav", tmp_path.name]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 2, "There is nothing to transcribe"),
        (["gone.wav"], 1, "There is no file gone.wav."),
        (["-", "-"], 2, "Standard input can be read once only."),
        (["a.wav", "--start", "soon"], 2, "--start takes a time like 90, 1:30 or 1:01:30.5, not 'soon'."),
        (["a.wav", "--start", "1e3"], 2, "--start takes a time"),
        (["a.wav", "--start", "9", "--end", "9"], 2, "--end must come after --start."),
        (["a.wav", "-l", "dee"], 2, "whisper-base does not know the language 'dee'."),
        (["a.wav", "--mic"], 2, "--mic records, so it takes no file."),
        (["--mic", "--start", "1"], 2, "--start does not go with --mic."),
        (["a.wav", "--device", "x"], 2, "--device names a microphone and needs --mic."),
        (["a.wav", "--api-key-file", "x"], 2, "--api-key-file holds a server's key and needs --url."),
        (["a.wav", "--url", "h", "--no-vad"], 2, "--vad is for a model in this process"),
        (["a.wav", "--url", "h", "--end", "1"], 2, "--end is for a model in this process"),
        (["a.wav", "-f", "doc"], 2, "'doc'"),
        (["a.wav", "-f", "srt", "-f", "vtt"], 2, "srt and vtt cannot both go to standard output."),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments: Sequence[str], code: int, sentence: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert done.stderr.count("error: ") == 1


def test_a_full_disk_is_one_sentence(spoken: Path) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            command(spoken, "-q"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.decode() == "error: The output cannot be written: No space left on device.\n"


@contextmanager
def stuck(*arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment(FAKE="stuck"),
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_text_comes_before_the_end_and_ctrl_c_ends_it(spoken: Path) -> None:
    with stuck(spoken, "--no-vad", "-q") as process:
        assert process.stdout is not None
        assert process.stdout.readline().decode() == WHOLE
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
        assert (process.returncode, said) == (130, b"")


def test_ctrl_c_leaves_nothing_half_written(spoken: Path, tmp_path: Path) -> None:
    """The first file is done, the second one is not: a pipe that stays open holds it."""
    folder = tmp_path / "out"
    readable, writable = os.pipe()
    with os.fdopen(writable, "wb") as pipe:
        process = subprocess.Popen(
            command(spoken, "-", "-o", folder, "-q"),
            stdin=readable,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
        )
        os.close(readable)
        assert process.stdout is not None
        assert process.stdout.readline().decode().strip() == str(folder / "harvard.txt")
        pipe.write(spoken.read_bytes()[:1000])
        pipe.flush()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")
    assert names(folder) == ["harvard.txt"]


def test_a_reader_who_leaves_is_no_failure(spoken: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: fifo.open("rb").close())
    reader.start()
    with fifo.open("wb") as out:
        reader.join()
        done = subprocess.run(
            command(spoken, "-q"),
            stdout=out,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
