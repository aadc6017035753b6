"""Runs `turbospark transcribe` with a model that needs no weights; $FAKE says how it behaves.

"" hears everything; "stuck" says one segment and then waits for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tests.audio.fake_transcriber import FakeTranscriber
from turbospark_cli import cli
from turbospark_cli.audio import families
from turbospark_cli.audio.transcript import Event, Options, Segment
from turbospark_cli.commands import hosted

if TYPE_CHECKING:
    from turbospark_cli.audio.transcript import Sound


class Stuck(FakeTranscriber):
    """Says one segment, then waits."""

    def transcribe(self, audio: Iterable[Sound], options: Options) -> Generator[Event, None, None]:
        for event in super().transcribe(audio, options):
            yield event
            if isinstance(event, Segment):
                threading.Event().wait()


def main() -> None:
    model = Stuck() if os.environ.get("FAKE") == "stuck" else FakeTranscriber()
    hosted.find_install = lambda *_, **__: SimpleNamespace(path=Path("fake"))  # type: ignore[assignment]
    families.load = lambda folder: model
    cli.main()


if __name__ == "__main__":
    main()
