"""Runs the converter in a process of its own, so that a damaged or hostile file can end only that process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.catalog import Format


class Facts(Struct, frozen=True):
    """What the converter learned about the model."""

    architecture: str  # the model_type
    context_length: int  # tokens
    parameters: int
    bits: int | None  # None: dense
    group_size: int
    stored_as: str
    has_chat_template: bool
    languages: tuple[str, ...] = ()  # that a speech model knows


def convert(kind: Format, source: Path, target: Path, progress: Callable[[int, int], None]) -> Facts:
    """Convert the weight file `source` into the existing, empty folder `target`.

    What a format keeps beside its weights lies in the folder of `source`.

    `progress` gets (tensors done, all tensors). Raises ConversionFailed, also when the process is ended by a
    signal. The process is ended when this call is left in any way.
    """
    command = [sys.executable, "-P", "-m", "turbospark_cli.models.convert", kind, str(source), str(target)]
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
        )
        with process:
            try:
                last = _follow(process, progress)
            except BaseException:
                process.kill()
                raise
        if process.returncode == 0 and "facts" in last:
            return msgspec.convert(last["facts"], Facts)
        raise ConversionFailed(_reason(process.returncode, last, complaints))


def _follow(process: subprocess.Popen[str], progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Report progress until the process has said its last line, and return that."""
    last: dict[str, Any] = {}
    for line in process.stdout or ():
        last = json.loads(line)
        if "done" in last:
            progress(last["done"], last["total"])
    return last


def _reason(code: int, last: dict[str, Any], complaints: IO[bytes]) -> str:
    if "error" in last:
        return str(last["error"])
    if code < 0:
        name = signal.Signals(-code).name
        return f"The converter was ended by {name}: the file is damaged, or the machine is out of memory."
    complaints.seek(0)
    lines = complaints.read().decode("utf-8", "replace").strip().splitlines()
    return f"The converter failed: {lines[-1] if lines else 'it gave no reason'}"
