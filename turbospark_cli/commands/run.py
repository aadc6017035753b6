"""`turbospark run`: one question to a model, answered on stdout while it is generated."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turbospark_cli import console
from turbospark_cli.commands.model_names import complete_installed
from turbospark_cli.errors import UsageError

if TYPE_CHECKING:
    from turbospark_cli.runtime.engine.backend import Backend
    from turbospark_cli.runtime.events import Usage
    from turbospark_cli.runtime.requests import GenerationRequest

_SEEDS = 2**63


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", autocompletion=complete_installed, help="Model to ask.")
    ],
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The question; text piped in goes before it.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", "-s", help="System prompt.")] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0, max=2, help="0 always takes the likeliest token. Default: as its authors advise."
        ),
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="Keep the likeliest tokens of this total probability.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, help="Keep this many likeliest tokens; 0 keeps all.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="Drop tokens below this share of the likeliest one.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=_SEEDS - 1, help="Same seed, same answer.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer, in tokens.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends the answer (repeatable).")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Write speeds to stderr at the end.")] = False,
    no_pull: Annotated[bool, typer.Option("--no-pull", help="Fail when the model is not installed.")] = False,
) -> None:
    """Ask a model one question; the answer streams to stdout.

    Text that is piped in goes before the prompt. A model that is not installed is pulled first.
    """
    question = _question(prompt)
    from turbospark_cli.commands.hosted import find_install, load_engine
    from turbospark_cli.runtime.requests import ChatPrompt, GenerationRequest, Message, Sampling

    given: dict[str, Any] = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
    }
    sampling = Sampling(**{name: value for name, value in given.items() if value is not None})
    messages = [Message("system", _clean(system))] if system else []
    messages.append(Message("user", question))
    stops = tuple(_clean(text) for text in stop or () if text)
    install = find_install(model, may_pull=not no_pull)
    began = _Clock.now()
    engine = load_engine(install, max_batch=1)
    loaded = _Clock.now()
    request = GenerationRequest(install.id, ChatPrompt(tuple(messages)), sampling, max_tokens, stops)
    answer = _answer(engine, request)
    if stats:
        console.note(f"{engine.info.detail}; loaded in {loaded.wall - began.wall:.2f} s")
        console.note(answer.describe(loaded))


def _question(prompt: str | None) -> str:
    """What is piped in, an empty line, and the prompt; either may be missing, not both."""
    parts: list[str] = []
    if not sys.stdin.isatty():
        parts.append(sys.stdin.buffer.read().decode("utf-8", "replace").strip())
    if prompt is not None and prompt != "-":
        parts.append(_clean(prompt).strip())
    text = "\n\n".join(part for part in parts if part)
    if not text:
        raise UsageError(
            "There is no prompt: pass one after the model's name or pipe text in.",
            hint='turbospark run smollm2-135m "Why is the sky blue?"',
        )
    return text


def _clean(argument: str) -> str:
    """An argument without the lone surrogates that stand for bytes which are not UTF-8."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class _Clock:
    """A moment: wall and CPU seconds of this process."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> _Clock:
        return cls(time.perf_counter(), time.process_time())


@dataclass(slots=True)
class _Answer:
    """When the answer began and ended, and how long it was."""

    first: _Clock
    last: _Clock
    usage: Usage

    def describe(self, sent: _Clock) -> str:
        """One line of speeds; the first token belongs to the prompt's time."""
        reading = self.first.wall - sent.wall
        writing = self.last.wall - self.first.wall
        prompt, tokens = self.usage.prompt_tokens, self.usage.completion_tokens
        speed = f", {(tokens - 1) / writing:.1f} tok/s" if writing > 0 and tokens > 1 else ""
        return (
            f"prompt {prompt} tokens in {reading:.2f} s, {prompt / reading:.0f} tok/s; "
            f"answer {tokens} tokens in {writing:.2f} s{speed}; CPU {self.last.cpu - sent.cpu:.2f} s"
        )


def _answer(engine: Backend, request: GenerationRequest) -> _Answer:
    """Generate, writing text as it comes; the answer ends with a line end, also when it is cut short."""
    from turbospark_cli.commands.hosted import generate
    from turbospark_cli.runtime.events import Finished, TextDelta

    first: _Clock | None = None
    written = ""
    try:
        for events in generate(engine, [request]):
            for _, event in events:
                if isinstance(event, TextDelta) and event.text:
                    first = first or _Clock.now()
                    written = event.text
                    console.write_out(event.text)
                elif isinstance(event, Finished):
                    last = _Clock.now()
                    return _Answer(first or last, last, event.usage)
    finally:
        if written and not written.endswith("\n"):
            console.print_out("")
    raise AssertionError("an engine never becomes idle without ending what it runs")
