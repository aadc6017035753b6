"""The runtime as its users see it: attached models, and generations from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from turbospark_cli.errors import TurbosparkError
from turbospark_cli.runtime import channel
from turbospark_cli.runtime.generation import Generation
from turbospark_cli.runtime.instance import Instance, Limits
from turbospark_cli.runtime.observer import Observer, SilentObserver, Stats
from turbospark_cli.runtime.process import ENGINE_COMMAND
from turbospark_cli.runtime.registry import Registry
from turbospark_cli.runtime.requests import GenerationRequest
from turbospark_cli.runtime.supervisor import Policy, State

_LIMITS: Final = Limits()
_POLICY: Final = Policy()

ModelState = Literal["loading", "ready", "restarting", "failed"]


class Attachment(Struct, frozen=True):
    """A model to serve: what its engine shall load, and the names it answers to besides `load.model_id`."""

    load: channel.Load
    aliases: tuple[str, ...] = ()
    created: int = 0  # Unix time of the install; 0: the time it is attached


class ModelCard(Struct, frozen=True):
    """An attached model as clients may see it."""

    id: str
    aliases: tuple[str, ...]
    created: int  # Unix time
    state: ModelState
    reason: str | None  # a sentence; only when failed
    info: channel.EngineInfo | None  # known once an engine has been ready


class Health(Struct, frozen=True):
    """Whether requests are being answered: `ok` and `loading` are well, the others are not."""

    state: Literal["ok", "loading", "stalled", "failed"]
    detail: str


class _Attached:
    """One entry of the registry."""

    def __init__(self, attachment: Attachment, instance: Instance) -> None:
        self.id = attachment.load.model_id
        self.aliases = attachment.aliases
        self.created = attachment.created or int(time.time())
        self.instance = instance

    @property
    def card(self) -> ModelCard:
        supervisor = self.instance.supervisor
        state: ModelState = "failed"
        if supervisor.state is State.LOADING:
            state = "loading"
        elif supervisor.state is State.READY:
            state = "ready"
        elif supervisor.state is State.RESTARTING:
            state = "restarting"
        return ModelCard(self.id, self.aliases, self.created, state, supervisor.reason, supervisor.info)


class Runtime:
    """All attached models. Made and used on one running event loop; no method blocks it."""

    def __init__(
        self,
        attachments: Iterable[Attachment],
        *,
        limits: Limits = _LIMITS,
        observer: Observer | None = None,
        policy: Policy = _POLICY,
        command: Sequence[str] = ENGINE_COMMAND,
    ) -> None:
        watcher = observer or SilentObserver()
        self._registry = Registry(
            _Attached(a, Instance(a.load, limits, watcher, policy=policy, command=command))
            for a in attachments
        )

    async def start(self) -> None:
        """Starts every engine and returns; requests that come before they are ready wait for them."""
        for attached in self._registry.models:
            attached.instance.supervisor.start()

    async def settled(self) -> list[ModelCard]:
        """Waits until every model is either ready or failed."""
        await asyncio.gather(*(a.instance.supervisor.settled() for a in self._registry.models))
        return self.models()

    async def stop(self) -> None:
        """Ends every open generation with `Failed` and every engine; returns when all are gone."""
        await asyncio.gather(*(attached.instance.stop() for attached in self._registry.models))

    def fail_all(self, error: TurbosparkError) -> None:
        """Ends every open generation with `error`; new ones are still accepted."""
        for attached in self._registry.models:
            attached.instance.fail_all(error)

    def models(self) -> list[ModelCard]:
        """Every attached model, in the order of attachment."""
        return [attached.card for attached in self._registry.models]

    def resolve(self, name: str) -> ModelCard:
        """The model that would answer a request for `name`. Raises ModelNotFound."""
        return self._registry.resolve(name).card

    def find(self, name: str) -> ModelCard:
        """The model with this very name or alias. Raises ModelNotFound, also for a lone model."""
        found = self._registry.find(name)
        if found is None:
            raise self._registry.not_found(name)
        return found.card

    def load(self, name: str) -> None:
        """Tries a failed model again now. Raises ModelNotFound."""
        self._registry.resolve(name).instance.supervisor.load()

    def generate(self, request: GenerationRequest) -> Generation:
        """A generation to enter with `async with`; see `Generation`. Raises ModelNotFound."""
        return Generation(self._registry.resolve(request.model).instance, request)

    def stats(self) -> list[Stats]:
        """The present load of every model."""
        return [attached.instance.stats for attached in self._registry.models]

    def health(self) -> Health:
        """The worst that is true of any model."""
        cards = self.models()
        for attached in self._registry.models:
            if attached.instance.supervisor.stalled:
                return Health("stalled", f"The engine of {attached.id} does not answer.")
        for card in cards:
            if card.state == "failed":
                return Health("failed", card.reason or "The server is stopping.")
        for card in cards:
            if card.state != "ready":
                return Health("loading", f"The model {card.id} is {card.state}.")
        return Health("ok", "Every model is ready.")
