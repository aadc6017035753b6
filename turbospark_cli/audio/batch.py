"""Transcribes one input after the other: shows the text as it grows, writes the outputs, survives failures.

GUARANTEES. An input that fails costs its own outputs only. A file is written once its transcript is
complete; standard output gets each segment as soon as it is final.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from turbospark_cli import console
from turbospark_cli.audio import outputs
from turbospark_cli.audio.outputs import Output
from turbospark_cli.audio.transcript import Event, Language, Partial, Progress, Segment, Task
from turbospark_cli.audio.writers import Facts, Style, Writer, writer
from turbospark_cli.errors import OutputFailed, UnreadableAudio
from turbospark_cli.status_line import Status, clock_text


@dataclass(frozen=True, slots=True)
class Listening:
    """One input that is being transcribed; `seconds` is its length where that is known."""

    events: Iterator[Event]
    start: float = 0.0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One input: its name, how to begin with it, and where its transcript goes."""

    name: str
    listen: Callable[[], AbstractContextManager[Listening]]
    outputs: tuple[Output, ...]


def run(jobs: Sequence[Job], style: Style, task: Task, status: Status) -> bool:
    """Do all jobs; False when one of them failed, which was then told on stderr.

    Raises BrokenPipeError when nobody reads standard output any more, and every error that is not about
    one input, such as a full disk behind standard output.
    """
    succeeded = True
    for number, job in enumerate(jobs, 1):
        label = f"[{number}/{len(jobs)}] {job.name}" if len(jobs) > 1 else job.name
        try:
            _Transcription(job, style, status, label).run(task)
        except (UnreadableAudio, OutputFailed) as error:
            status.clear()
            console.print_error(error)
            succeeded = False
        finally:
            status.clear()
    return succeeded


@dataclass(slots=True)
class _Transcription:
    """One job under way."""

    job: Job
    style: Style
    status: Status
    label: str
    _text: dict[Output, list[str]] = field(default_factory=dict)
    _language: str | None = None
    _done: float = 0.0
    _partial: str = ""
    _began: float = 0.0

    def run(self, task: Task) -> None:
        writers = {each: writer(each.form, self.style) for each in self.job.outputs}
        self._text = {each: [] for each in writers}
        with self.job.listen() as listening:
            self._began = time.monotonic()
            self._done = listening.start
            for output, each in writers.items():
                self._write(output, each.head())
            self._show(listening)
            for event in listening.events:
                self._take(event, writers)
                self._show(listening)
            facts = Facts(self.job.name, task, self._language, self._done - listening.start)
        self.status.clear()
        for output, each in writers.items():
            self._write(output, each.tail(facts))
            if output.path is not None:
                outputs.save(output.path, "".join(self._text[output]))
                console.print_out(str(output.path))

    def _take(self, event: Event, writers: dict[Output, Writer]) -> None:
        if isinstance(event, Language):
            self._language = event.code
        elif isinstance(event, Partial):
            self._partial = event.text
        elif isinstance(event, Progress):
            self._done = event.seconds
        elif isinstance(event, Segment):
            self._partial = ""
            for output, each in writers.items():
                self._write(output, each.segment(event))

    def _write(self, output: Output, text: str) -> None:
        if output.path is not None:
            self._text[output].append(text)
        elif text:
            self.status.clear()
            console.write_out(text)

    def _show(self, listening: Listening) -> None:
        done = self._done - listening.start
        parts = [clock_text(done)]
        if listening.seconds:
            share = min(done / listening.seconds, 1.0)
            parts = [f"{share:4.0%}", f"{clock_text(done)} of {clock_text(listening.seconds)}"]
            if 0 < share < 1:
                left = (time.monotonic() - self._began) * (1 - share) / share
                parts.append(f"{clock_text(left)} left")
        self.status.show(f"{self.label}: {', '.join(parts)}", self._partial.strip())
