"""What a command line names as sound: files, standard input, the microphone, and how to begin with each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from turbospark_cli.audio import codec, codec_stream, pipeline
from turbospark_cli.audio.batch import Listening
from turbospark_cli.audio.codec import Recording
from turbospark_cli.audio.transcript import Options, Transcriber
from turbospark_cli.errors import UnreadableAudio

if TYPE_CHECKING:
    from turbospark_cli.audio.remote import Server

STDIN: Final = "standard input"
MICROPHONE: Final = "microphone"
_STREAMS: Final = (STDIN, MICROPHONE)
_DESCRIPTORS: Final = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # what a shell makes of <(program)


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of each input to listen to, in seconds."""

    start: float
    end: float | None
    skip_silence: bool


def name(source: str) -> str:
    """How people are told about it."""
    return source if source in _STREAMS else Path(source).name or source


@contextmanager
def listen(
    source: str, *, stream: BinaryIO, transcriber: Transcriber, options: Options, part: Part
) -> Iterator[Listening]:
    """Begin to transcribe `source` in this process; `stream` is what standard input or a microphone gave."""
    with _opened(source, stream, part) as recording:
        events = pipeline.transcribe(recording, transcriber, options, skip_silence=part.skip_silence)
        try:
            yield Listening(events, recording.start, recording.seconds)
        finally:
            events.close()


@contextmanager
def send(source: str, *, stream: BinaryIO, server: Server, options: Options) -> Iterator[Listening]:
    """Begin to let `server` transcribe `source`."""
    from turbospark_cli.audio import remote

    with ExitStack() as stack:
        if source in _STREAMS:
            file = stream if source == MICROPHONE else stack.enter_context(codec_stream.spooled(stream))
        else:
            file = stack.enter_context(codec.open_bytes(Path(source)))
        called = "audio.wav" if source in _STREAMS else name(source)
        yield Listening(remote.transcribe(server, file, called, options))


@contextmanager
def _opened(source: str, stream: BinaryIO, part: Part) -> Iterator[Recording]:
    with ExitStack() as stack:
        if source in _STREAMS:
            opening = codec_stream.open_stream(stream, source, start=part.start, end=part.end)
        elif source.startswith(_DESCRIPTORS):
            try:
                opened = stack.enter_context(Path(source).open("rb"))
            except OSError as error:
                raise UnreadableAudio(f"{source} cannot be opened: {error.strerror}.") from error
            opening = codec_stream.open_stream(opened, source, start=part.start, end=part.end)
        else:
            opening = codec.open_file(Path(source), start=part.start, end=part.end)
        yield stack.enter_context(opening)
