"""`transcribe --url`, against a small server that answers as OpenAI's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.audio.test_command import run
from turbospark_cli.audio import remote
from turbospark_cli.audio.remote import Server
from turbospark_cli.audio.transcript import Event, Language, Options, Progress, Segment
from turbospark_cli.errors import (
    AuthenticationFailed,
    ModelNotFound,
    ServerUnreachable,
    TurbosparkError,
    UnreadableAudio,
)

ANSWER = {
    "task": "transcribe",
    "language": "english",
    "duration": "4.5",
    "text": " One two. Three.",
    "segments": [
        {
            "id": 0,
            "seek": 0,
            "start": 0.0,
            "end": 2.0,
            "text": " One two.",
            "tokens": [1],
            "avg_logprob": -0.5,
        },
        {"id": 1, "seek": 0, "start": 2.0, "end": 4.0, "text": " Three.", "tokens": []},
    ],
    "words": [
        {"word": "One", "start": 0.0, "end": 0.5},
        {"word": "two.", "start": 0.5, "end": 2.1},
        {"word": "Three.", "start": 2.1, "end": 4.0},
    ],
}


class Stub(ThreadingHTTPServer):
    """Keeps what it is sent, and answers with `status` and `answer`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.answer: Any = ANSWER
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.fields: dict[str, list[str]] = {}
        self.files: list[tuple[str | None, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Stub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers.get("authorization"))
        head = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
        for part in BytesParser().parsebytes(head + body).get_payload():
            content = part.get_payload(decode=True)  # type: ignore[union-attr]
            name = part.get_param("name", header="content-disposition")  # type: ignore[union-attr]
            if name == "file":
                self.server.files.append((part.get_filename(), content))  # type: ignore[union-attr, arg-type]
            else:
                self.server.fields.setdefault(str(name), []).append(content.decode())  # type: ignore[union-attr]
        answer = self.server.answer
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def sent(stub: Stub, path: Path, options: Options, key: str | None = None) -> list[Event]:
    with path.open("rb") as file:
        return list(remote.transcribe(Server(f"{stub.url}/v1", "m", key), file, path.name, options))


def test_the_file_goes_out_as_it_is_and_the_answer_comes_back(stub: Stub, spoken: Path) -> None:
    options = Options(language="en", prompt="Ada", temperatures=(0.4,), word_timestamps=True)
    first, *segments, last = sent(stub, spoken, options, "secret")
    assert stub.paths == ["/v1/audio/transcriptions"]
    assert stub.keys == ["Bearer secret"]
    assert stub.files == [("harvard.opus", spoken.read_bytes())]
    assert stub.fields == {
        "model": ["m"],
        "response_format": ["verbose_json"],
        "language": ["en"],
        "prompt": ["Ada"],
        "temperature": ["0.4"],
        "timestamp_granularities[]": ["segment", "word"],
    }
    assert (first, last) == (Language("english", 1.0), Progress(4.5))
    assert [(each.start, each.end, each.text) for each in segments if isinstance(each, Segment)] == [
        (0.0, 2.0, " One two."),
        (2.0, 4.0, " Three."),
    ]
    words = [[word.text for word in each.words] for each in segments if isinstance(each, Segment)]
    assert words == [[" One", " two."], [" Three."]]


def test_translation_has_its_own_route(stub: Stub, spoken: Path) -> None:
    sent(stub, spoken, Options(task="translate"))
    assert stub.paths == ["/v1/audio/translations"]
    assert stub.keys == [None]
    assert stub.fields["temperature"] == ["0.0"]


def test_a_server_that_says_the_text_only(stub: Stub, spoken: Path) -> None:
    stub.answer = {"text": "All of it."}
    assert sent(stub, spoken, Options()) == [Segment(0.0, 0.0, "All of it."), Progress(0.0)]


@pytest.mark.parametrize(
    ("status", "answer", "error", "message"),
    [
        (401, {}, AuthenticationFailed, "wants a key"),
        (404, {"error": {"message": "No model m."}}, ModelNotFound, "does not transcribe: No model m."),
        (413, b"too\nlarge\x1b[2J", UnreadableAudio, "does not take harvard.opus: too large [2J"),
        (400, {"error": {"message": "Invalid file format."}}, UnreadableAudio, "Invalid file format."),
        (503, b"", TurbosparkError, "failed with HTTP 503: -"),
        (200, b"<html>", TurbosparkError, "is no transcript"),
        (200, {"segments": []}, TurbosparkError, "is no transcript"),
    ],
)
def test_what_a_server_refuses_is_one_sentence(
    stub: Stub, spoken: Path, status: int, answer: Any, error: type[TurbosparkError], message: str
) -> None:
    stub.status, stub.answer = status, answer
    with pytest.raises(error) as raised:
        sent(stub, spoken, Options())
    assert message in raised.value.message
    assert type(raised.value) is error


def test_nobody_there(spoken: Path) -> None:
    with spoken.open("rb") as file, pytest.raises(ServerUnreachable, match="No server answers at"):
        list(remote.transcribe(Server("http://127.0.0.1:9/v1", "m"), file, "a", Options()))


def test_the_command_writes_what_the_server_heard(stub: Stub, spoken: Path) -> None:
    done = run(spoken, "--url", stub.url, "-f", "srt", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1\n00:00:00,000 --> 00:00:02,000\nOne two.\n\n2\n")
    assert stub.fields["model"] == ["whisper-base"]
    assert "language" not in stub.fields


def test_a_pipe_goes_out_too_and_one_refusal_does_not_stop_the_rest(
    stub: Stub, spoken: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.wav").touch()
    done = run(tmp_path / "empty.wav", "-", "--url", f"{stub.url}/v1", "-q", data=spoken.read_bytes())
    assert (done.returncode, done.stdout) == (1, "One two.\nThree.\n")
    assert done.stderr == "error: empty.wav is empty.\n"
    assert stub.files == [("audio.wav", spoken.read_bytes())]


def test_an_unreachable_server_has_its_exit_code(spoken: Path) -> None:
    done = run(spoken, spoken, "--url", "http://127.0.0.1:9")
    assert done.returncode == 5
    assert done.stderr.count("error: ") == 1
