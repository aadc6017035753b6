"""`turbospark transcribe`: speech to text, from files, a pipe or the microphone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from turbospark_cli import console
from turbospark_cli.commands.model_names import complete_installed
from turbospark_cli.errors import UsageError

if TYPE_CHECKING:
    from turbospark_cli.audio.batch import Listening
    from turbospark_cli.audio.outputs import Output
    from turbospark_cli.audio.remote import Server
    from turbospark_cli.audio.transcript import Options, Task, Transcriber
    from turbospark_cli.audio.writers import Style
    from turbospark_cli.status_line import Status

    _Begin = Callable[..., AbstractContextManager[Listening]]  # a source, and the stream for `-` and --mic

DEFAULT_MODEL: Final = "whisper-base"


class Form(StrEnum):
    """The forms of `writers`, as a type that repeats on a command line."""

    txt = "txt"
    srt = "srt"
    vtt = "vtt"
    tsv = "tsv"
    json = "json"


Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE…|-", help="Sound to transcribe; - reads standard input."),
]
Model = Annotated[
    str, typer.Option("--model", "-m", autocompletion=complete_installed, help="Model to listen with.")
]
Language = Annotated[
    str, typer.Option("--language", "-l", help="What is spoken, such as en; auto finds out.")
]
Translate = Annotated[bool, typer.Option("--translate", help="Write in English, whatever is spoken.")]
Forms = Annotated[
    list[Form] | None,
    typer.Option(
        "--format", "-f", help="Form of the transcript (repeatable). Default: by the name after -o."
    ),
]
Target = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="PATH", help="File or folder to write. Default: standard output."),
]
Json = Annotated[bool, typer.Option("--json", help="Same as -f json.")]
Timestamps = Annotated[bool, typer.Option("--timestamps", help="Begin each line of txt with its times.")]
WordTimes = Annotated[
    bool,
    typer.Option("--word-timestamps", help="An entry for each word; in json and vtt within the segments."),
]
Prompt = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Names, spelling and style that the model may expect.")
]
Temperature = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Sample at this temperature. Default: 0, and higher where that fails."),
]
Vad = Annotated[bool | None, typer.Option("--vad/--no-vad", help="Skip what is not speech. Default: --vad.")]
Start = Annotated[
    str | None, typer.Option(metavar="TIME", help="Begin here: seconds or [hours:]minutes:seconds.")
]
End = Annotated[str | None, typer.Option(metavar="TIME", help="Stop here; with --mic, record for this long.")]
Mic = Annotated[bool, typer.Option("--mic", help="Record from the microphone until Ctrl-C, then transcribe.")]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Microphone to use, by name or number.")]
Url = Annotated[str | None, typer.Option(metavar="URL", help="Let this server do it.")]
KeyFile = Annotated[
    Path | None, typer.Option("--api-key-file", metavar="FILE", help="File that holds the server's key.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
NoPull = Annotated[bool, typer.Option("--no-pull", help="Fail when the model is not installed.")]


def command(
    files: Files = None,
    model: Model = DEFAULT_MODEL,
    language: Language = "auto",
    translate: Translate = False,
    forms: Forms = None,
    output: Target = None,
    json: Json = False,
    timestamps: Timestamps = False,
    word_timestamps: WordTimes = False,
    prompt: Prompt = None,
    temperature: Temperature = None,
    vad: Vad = None,
    start: Start = None,
    end: End = None,
    mic: Mic = False,
    device: Device = None,
    url: Url = None,
    api_key_file: KeyFile = None,
    quiet: Quiet = False,
    no_pull: NoPull = False,
) -> None:
    """Write down what is said in files, in a pipe or into the microphone.

    The text goes to standard output as it is understood. A model that is not installed is pulled first.
    """
    from turbospark_cli.audio import inputs, outputs
    from turbospark_cli.audio.transcript import Options
    from turbospark_cli.audio.writers import Style

    sources = _sources(files or [], mic=mic)
    _refuse(vad, start, end, mic, device, url, api_key_file, no_pull)
    first, last = _moment("--start", start) or 0.0, _moment("--end", end)
    if last is not None and last <= first:
        raise UsageError("--end must come after --start.")
    options = Options(
        task="translate" if translate else "transcribe",
        language=None if language == "auto" else language,
        prompt=prompt,
        temperatures=(temperature,) if temperature else Options().temperatures,
        word_timestamps=word_timestamps,
    )
    planned = outputs.plan(sources, [*(forms or ()), *(["json"] if json else ())], output)
    status = console.status(quiet=quiet)
    if url is not None:
        server = _server(url, model, api_key_file)
        begin: _Begin = partial(inputs.send, server=server, options=options)
    else:
        transcriber = _transcriber(model, options, status, may_pull=not no_pull)
        part = inputs.Part(first, None if mic else last, vad is not False)
        begin = partial(inputs.listen, transcriber=transcriber, options=options, part=part)
    style = Style(timestamps, word_timestamps)
    with _recorded(device, last, status) if mic else nullcontext(sys.stdin.buffer) as stream:
        _run(begin, stream, dict(zip(sources, planned, strict=True)), style, options.task, status)


def _recorded(device: str | None, seconds: float | None, status: Status) -> AbstractContextManager[BinaryIO]:
    from turbospark_cli.audio.recorder import recorded

    return recorded(device, seconds, status)


def _run(
    begin: _Begin,
    stream: BinaryIO,
    planned: dict[str, tuple[Output, ...]],
    style: Style,
    task: Task,
    status: Status,
) -> None:
    from turbospark_cli.audio import batch, inputs

    jobs = [
        batch.Job(inputs.name(source), partial(begin, source, stream=stream), each)
        for source, each in planned.items()
    ]
    if not batch.run(jobs, style, task, status):
        raise typer.Exit(1)


def _sources(files: list[str], *, mic: bool) -> list[str]:
    """Paths, or the one stream. Raises UsageError."""
    from turbospark_cli.audio.inputs import MICROPHONE, STDIN

    if mic:
        if files:
            raise UsageError("--mic records, so it takes no file.")
        return [MICROPHONE]
    if not files:
        raise UsageError(
            "There is nothing to transcribe: name a file, - for standard input, or --mic.",
            hint="turbospark transcribe talk.mp3",
        )
    if files.count("-") > 1:
        raise UsageError("Standard input can be read once only.")
    if "-" in files and sys.stdin.isatty():
        raise UsageError("Nothing is piped in.", hint="ffmpeg -i talk.mkv -f wav - | turbospark transcribe -")
    return [STDIN if file == "-" else file for file in files]


def _refuse(
    vad: bool | None,
    start: str | None,
    end: str | None,
    mic: bool,
    device: str | None,
    url: str | None,
    api_key_file: Path | None,
    no_pull: bool,
) -> None:
    """Raise UsageError for a flag that would be without effect."""
    if device is not None and not mic:
        raise UsageError("--device names a microphone and needs --mic.")
    if mic and start is not None:
        raise UsageError("--start does not go with --mic.")
    if url is None:
        if api_key_file is not None:
            raise UsageError("--api-key-file holds a server's key and needs --url.")
        return
    local = {"--vad": vad is not None, "--start": start is not None, "--no-pull": no_pull}
    local["--end"] = end is not None and not mic
    for flag, given in local.items():
        if given:
            raise UsageError(f"{flag} is for a model in this process and does not go with --url.")


def _moment(flag: str, text: str | None) -> float | None:
    """Seconds of 90, 90.5, 1:30 or 1:01:30. Raises UsageError."""
    if text is None:
        return None
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or not all(0 <= part < 1e7 for part in parts) or "e" in text.lower():
        raise UsageError(f"{flag} takes a time like 90, 1:30 or 1:01:30.5, not {text!r}.")
    seconds = 0.0
    for part in parts:
        seconds = 60 * seconds + part
    return seconds


def _transcriber(name: str, options: Options, status: Status, *, may_pull: bool) -> Transcriber:
    """The model, loaded. Raises UsageError for a language or a task that it does not know."""
    from turbospark_cli.commands.hosted import find_install
    from turbospark_cli.runtime.engine.device import load_blas, select

    install = find_install(name, may_pull=may_pull, kind="stt")
    select(load_blas())  # before anything imports MLX or numpy
    from turbospark_cli.audio import families

    status.show(f"Loading {name}")
    transcriber = families.load(install.path)
    status.clear()
    if options.language is not None and options.language not in transcriber.languages:
        from turbospark_cli.nearest import nearest

        best = ", ".join(nearest(options.language, transcriber.languages))
        raise UsageError(
            f"{name} does not know the language {options.language!r}.",
            hint=f"The nearest: {best}; auto finds out.",
        )
    if options.task == "translate" and not transcriber.multilingual:
        raise UsageError(f"{name} knows one language only, so it cannot translate.")
    return transcriber


def _server(url: str, model: str, api_key_file: Path | None) -> Server:
    from turbospark_cli import settings
    from turbospark_cli.audio.remote import Server
    from turbospark_cli.commands.bench.target import base_url, is_loopback

    base = base_url(url)
    key = None
    if api_key_file is not None or is_loopback(base):  # this machine's own key stays on this machine
        key = settings.load(api_key_file=api_key_file).settings.key()
    return Server(base, model, None if key is None else key.decode("latin-1"))
