"""Transcription by a running server, through OpenAI's route for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import httpx2
import msgspec

from turbospark_cli.audio.transcript import Event, Language, Options, Progress, Segment, Word
from turbospark_cli.errors import (
    AuthenticationFailed,
    ModelNotFound,
    ServerUnreachable,
    TurbosparkError,
    UnreadableAudio,
)

_SHOWN: Final = 300  # characters of a server's own error
_CONNECT: Final = 10.0  # seconds; the answer itself may take as long as the model needs


@dataclass(frozen=True, slots=True)
class Server:
    """`base` ends in the path that holds `audio/transcriptions`, without a slash."""

    base: str
    model: str
    key: str | None = None


class _Word(msgspec.Struct):
    word: str
    start: float
    end: float
    probability: float = 1.0


class _Segment(msgspec.Struct):
    start: float
    end: float
    text: str
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 1.0
    no_speech_prob: float = 0.0


class _Answer(msgspec.Struct):
    """The verbose_json of OpenAI; servers that leave parts out still say the text."""

    text: str
    language: str | None = None
    duration: float | str | None = None  # OpenAI has sent both
    segments: tuple[_Segment, ...] | None = None
    words: tuple[_Word, ...] | None = None


def transcribe(server: Server, file: BinaryIO, name: str, options: Options) -> Iterator[Event]:
    """Send all of `file`; the events of the answer.

    Raises ServerUnreachable, AuthenticationFailed, ModelNotFound, or UnreadableAudio when the server does
    not take the file.
    """
    answer = _decode(_post(server, file, name, options), server, name)
    if answer.language:
        yield Language(answer.language, 1.0)
    seconds = float(answer.duration or 0)
    words = [
        Word(each.start, each.end, f" {each.word.strip()}", each.probability) for each in answer.words or ()
    ]
    segments = answer.segments or (_Segment(0.0, seconds, answer.text),)
    for place, each in enumerate(segments):
        last = place == len(segments) - 1
        count = sum(1 for word in words if last or (word.start + word.end) / 2 < each.end)
        own, words = tuple(words[:count]), words[count:]
        yield Segment(
            each.start,
            each.end,
            each.text,
            each.tokens,
            each.temperature,
            each.avg_logprob,
            each.compression_ratio,
            each.no_speech_prob,
            own,
        )
    yield Progress(seconds or segments[-1].end)


def _post(server: Server, file: BinaryIO, name: str, options: Options) -> httpx2.Response:
    route = "translations" if options.task == "translate" else "transcriptions"
    fields: dict[str, Any] = {"model": server.model, "response_format": "verbose_json"}
    if options.language is not None:
        fields["language"] = options.language
    if options.prompt is not None:
        fields["prompt"] = options.prompt
    fields["temperature"] = str(options.temperatures[0])
    if options.word_timestamps:
        fields["timestamp_granularities[]"] = ["segment", "word"]
    headers = {} if server.key is None else {"authorization": f"Bearer {server.key}"}
    timeout = httpx2.Timeout(None, connect=_CONNECT)
    try:
        with httpx2.Client(timeout=timeout, trust_env=False) as client:
            return client.post(
                f"{server.base}/audio/{route}", data=fields, files={"file": (name, file)}, headers=headers
            )
    except httpx2.HTTPError as error:
        raise ServerUnreachable(
            f"No server answers at {server.base} ({type(error).__name__}).",
            hint="Start one with `turbospark serve`.",
        ) from None


def _decode(response: httpx2.Response, server: Server, name: str) -> _Answer:
    if response.status_code != httpx2.codes.OK:
        raise _refusal(response, server, name)
    try:
        return msgspec.json.decode(response.content, type=_Answer, strict=False)
    except msgspec.DecodeError as error:
        raise TurbosparkError(f"The answer of {server.base} is no transcript: {error}.") from error


def _refusal(response: httpx2.Response, server: Server, name: str) -> TurbosparkError:
    said = _message(response)
    status = response.status_code
    if status in (401, 403):
        return AuthenticationFailed(f"{server.base} wants a key.", hint="Pass it with --api-key-file.")
    if status == 404:
        return ModelNotFound(f"{server.base} has no such model or does not transcribe: {said}")
    if status in (400, 413, 415, 422):
        return UnreadableAudio(f"{server.base} does not take {name}: {said}")
    return TurbosparkError(f"{server.base} failed with HTTP {status}: {said}")


def _message(response: httpx2.Response) -> str:
    """The server's own words, on one line."""
    try:
        said = msgspec.json.decode(response.content)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        said = response.text
    return (
        " ".join("".join(each if each.isprintable() else " " for each in str(said)).split())[:_SHOWN] or "-"
    )
