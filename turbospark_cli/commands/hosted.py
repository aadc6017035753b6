"""Installs, and a text engine inside this process, for commands that answer without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turbospark_cli import console, settings
from turbospark_cli.errors import ModelNotFound, UsageError, by_code
from turbospark_cli.models import catalog
from turbospark_cli.models.pull import pull
from turbospark_cli.models.store import Install, Store
from turbospark_cli.progress import size_text
from turbospark_cli.runtime.channel import Load
from turbospark_cli.runtime.engine.backend import Backend
from turbospark_cli.runtime.engine.main import build
from turbospark_cli.runtime.events import Event, Failed
from turbospark_cli.runtime.requests import GenerationRequest

_PURPOSES: Final = {
    "text": "text",
    "embedding": "embeddings",
    "image": "images",
    "stt": "speech to text",
    "tts": "text to speech",
    "music": "music",
}


def find_install(name: str, *, may_pull: bool, kind: str = "text") -> Install:
    """The install called `name`; one that the catalog knows is announced and pulled first.

    Raises ModelNotFound, DownloadFailed, or UsageError for a model of another kind.
    """
    chosen = settings.load().settings
    store = Store(chosen.home)
    try:
        install = store.find(name)
    except ModelNotFound:
        if not may_pull or chosen.offline or name not in catalog.rows():
            raise
        console.note(f"{name} is not installed; pulling it ({size_text(catalog.find(name).size)}).")
        install = pull(store, name)
    if install.kind != kind:
        raise UsageError(f"{name} is a model for {_PURPOSES[install.kind]}, not for {_PURPOSES[kind]}.")
    store.mark_used(install)
    return install


def load_engine(install: Install, *, max_batch: int) -> Backend:
    """Load `install` on this thread, which must also be the one that steps it."""
    return build(Load("text", install.id, str(install.path), max_batch=max_batch))


def generate(engine: Backend, requests: list[GenerationRequest]) -> Iterator[list[tuple[int, Event]]]:
    """Run `requests` together; yields the events of each step as (place in the list, event).

    Raises InvalidRequest or ContextLengthExceeded before any of them starts, and the fault of one that fails.
    """
    prompts = [engine.prepare(request) for request in requests]
    for place, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
        engine.start(place, request, prompt)
    while not engine.idle:
        events = engine.step()
        for _, event in events:
            if isinstance(event, Failed):
                raise by_code(event.code)(event.message)
        yield events
