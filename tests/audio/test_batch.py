"""What a person sees on a terminal while a model listens."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

from tests.audio.test_command import ROOT, command, environment


def on_terminal(*arguments: str | Path) -> tuple[int, str]:
    """The exit code, and everything that a terminal of 100 columns was sent."""
    master, terminal = pty.openpty()
    with subprocess.Popen(
        command(*arguments), stdin=terminal, stdout=terminal, stderr=terminal, env=environment(), cwd=ROOT
    ) as process:
        os.close(terminal)
        seen = b""
        while True:
            try:
                data = os.read(master, 65_536)
            except OSError:  # the last writer has left
                break
            if not data:
                break
            seen += data
    os.close(master)
    return process.returncode, seen.decode()


def test_progress_and_unfinished_text_change_in_place(spoken: Path) -> None:
    code, seen = on_terminal(spoken, "--no-vad")
    assert code == 0
    states = [state for state in seen.split("\r\x1b[K") if state]
    assert "harvard.opus:   0%, 0:00 of 0:12" in states
    assert any(re.fullmatch(r"harvard\.opus:   0%, 0:00 of 0:12  Samples", state) for state in states)
    assert any(re.fullmatch(r"harvard\.opus:  87%, 0:10 of 0:12, 0:0\d left", state) for state in states)
    texts = [state for state in states if state.endswith("\r\n")]
    assert texts[0] == "Samples 0 to 160000.\r\n"
    assert len(texts) == 2
    assert seen.endswith("\r\x1b[K")


def test_quiet_leaves_the_text_alone(spoken: Path) -> None:
    _, seen = on_terminal(spoken, "--no-vad", "-q")
    assert "\x1b" not in seen
    assert seen.startswith("Samples 0 to 160000.\r\n")


def test_nothing_piped_in_is_told(spoken: Path) -> None:
    code, seen = on_terminal("-")
    assert code == 2
    assert "Nothing is piped in." in seen
