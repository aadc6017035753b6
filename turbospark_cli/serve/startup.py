"""From settings to a running server: which models, which engines, when it is ready, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from turbospark_cli import console
from turbospark_cli.errors import EngineUnavailable, ModelNotFound, TurbosparkError, UsageError
from turbospark_cli.models import catalog
from turbospark_cli.models.pull import pull
from turbospark_cli.models.store import Install, Store
from turbospark_cli.progress import size_text
from turbospark_cli.runtime.channel import Load
from turbospark_cli.runtime.instance import Limits
from turbospark_cli.runtime.runtime import Attachment, ModelCard, Runtime
from turbospark_cli.serve import logs
from turbospark_cli.serve.access import Access, host_names
from turbospark_cli.serve.app import PATHS, build_app
from turbospark_cli.serve.banner import banner
from turbospark_cli.serve.bind import Binding, bind, check_key
from turbospark_cli.serve.observe import Metrics
from turbospark_cli.serve.server import serve
from turbospark_cli.settings import Settings

SCRIPTED_ID: Final = "scripted"
_ENGINES_END_S: Final = 0.5  # an engine that takes longer ends by itself when its socket closes


@dataclass(frozen=True, slots=True)
class Script:
    """The scripted backend: a folder with a tokenizer, and what it shall say."""

    tokenizer: Path
    file: Path | None = None


def run(settings: Settings, names: Sequence[str], script: Script | None, *, ready_json: bool) -> None:
    """Serve until a signal comes.

    Raises UsageError, PortTaken and ModelNotFound before anything is started, and what a model's loading
    fails with.
    """
    started = time.perf_counter()
    key = settings.key()
    check_key(settings.bind, key)
    binding = bind(settings.bind, settings.port)
    try:
        loads = [_scripted(script, settings)] if script else choose(settings, names)
        logs.configure(settings.log_level, settings.log_format)
        server = _Server(settings, binding, key, loads, started, ready_json=ready_json)
        _settle_memory()
        uvloop.run(server.run())
    finally:
        binding.close()
    if server.failure is not None:
        raise server.failure


def _settle_memory() -> None:
    """PERF: the collector need not look again at what was imported, nor after every few requests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _scripted(script: Script, settings: Settings) -> Attachment:
    return Attachment(
        Load(
            kind="scripted",
            model_id=SCRIPTED_ID,
            path=str(script.tokenizer),
            script=None if script.file is None else str(script.file),
            max_batch=settings.max_batch,
        )
    )


def choose(settings: Settings, names: Sequence[str]) -> list[Attachment]:
    """The models to serve; without names the starter, which a fresh machine pulls."""
    store = Store(settings.home)
    if names:
        return [_attachment(settings, store, name) for name in dict.fromkeys(names)]
    installs = [install for install in store.list() if install.kind == "text"]
    if installs and all(install.id != catalog.STARTER for install in installs):
        known = ", ".join(install.id for install in installs)
        raise UsageError(
            f"Name the model to serve: turbospark serve {installs[0].id}", hint=f"Installed: {known}."
        )
    return [_attachment(settings, store, catalog.STARTER)]


def _attachment(settings: Settings, store: Store, name: str) -> Attachment:
    folder = Path(name).expanduser()
    if os.sep in name and (folder / "config.json").is_file():
        return _load(settings, folder.stem, folder, created=0)
    install = _installed(settings, store, name)
    if install.kind != "text":
        raise UsageError(f"{install.id} is a model of kind {install.kind}, which cannot be served yet.")
    store.mark_used(install)
    return _load(settings, install.id, install.path, created=int(install.path.stat().st_mtime))


def _load(settings: Settings, model_id: str, path: Path, created: int) -> Attachment:
    load = Load(
        kind="text",
        model_id=model_id,
        path=str(path.resolve()),
        max_batch=settings.max_batch,
    )
    return Attachment(load, created=created)


def _installed(settings: Settings, store: Store, name: str) -> Install:
    try:
        return store.find(name)
    except ModelNotFound:
        row = catalog.rows().get(name)
        if row is None:
            raise
        if not settings.offline:
            console.note(f"{name} is not installed; pulling it ({size_text(row.size)}).")
        return pull(store, name, offline=settings.offline)


class _Server:
    """One run on one event loop. `failure` holds why it had to end by itself."""

    def __init__(
        self,
        settings: Settings,
        binding: Binding,
        key: bytes | None,
        models: list[Attachment],
        started: float,
        *,
        ready_json: bool,
    ) -> None:
        self.failure: TurbosparkError | None = None
        self._settings = settings
        self._binding = binding
        self._key = key
        self._models = models
        self._started = started
        self._ready_json = ready_json

    async def run(self) -> None:
        settings, binding = self._settings, self._binding
        hosts = host_names(binding.addresses, settings.allowed_host, binding.port)
        metrics = Metrics(PATHS, log_access=settings.access_log)
        runtime = Runtime(
            self._models,
            limits=Limits(settings.max_queue_depth, settings.queue_timeout),
            observer=metrics,
        )
        any_address = binding.port if binding.is_everywhere else None
        access = Access(hosts, settings.allowed_origin, self._key, any_address=any_address)
        app = build_app(runtime, access, metrics)
        stop = asyncio.Event()
        await runtime.start()
        announcing = asyncio.create_task(self._announce(runtime, stop))
        try:
            await serve(
                app,
                binding.sockets,
                stop=stop,
                fail_streams=lambda: runtime.fail_all(
                    EngineUnavailable("The server is shutting down.", retry_after=1)
                ),
            )
        finally:
            announcing.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(runtime.stop(), _ENGINES_END_S)

    async def _announce(self, runtime: Runtime, stop: asyncio.Event) -> None:
        """Says that the server is ready, or ends it when a model cannot be loaded."""
        cards = await runtime.settled()
        failed = [card for card in cards if card.state == "failed"]
        if failed:
            if not stop.is_set():
                self.failure = EngineUnavailable(failed[0].reason or f"{failed[0].id} cannot be loaded.")
                stop.set()
            return
        self._say_ready(cards)

    def _say_ready(self, cards: list[ModelCard]) -> None:
        seconds = time.perf_counter() - self._started
        for line in banner(self._binding.url, cards, needs_key=self._key is not None, seconds=seconds):
            console.note(line)
        if self._ready_json:
            models = [card.id for card in cards]
            console.print_json({"url": self._binding.url, "pid": os.getpid(), "models": models})
