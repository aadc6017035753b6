"""Which model a name means.

A name in a request is only a key to look up, never a path. Clients send what their settings hold: an id, an
alias, Ollama's `name:latest`, or, for side requests, the name of a model that is not here at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, Protocol, TypeVar

from turbospark_cli.errors import InvalidRequest, ModelNotFound
from turbospark_cli.nearest import nearest

_LATEST: Final = ":latest"
_LONGEST_NAME: Final = 256


class Named(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def aliases(self) -> tuple[str, ...]: ...


Model = TypeVar("Model", bound=Named)


class Registry(Generic[Model]):
    """The attached models by every name they answer to. An id wins over another model's alias."""

    def __init__(self, models: Iterable[Model]) -> None:
        self.models: tuple[Model, ...] = tuple(models)
        self._by_name: dict[str, Model] = {}
        for model in self.models:
            if model.id in self._by_name:
                raise ValueError(f"two attached models have the id {model.id!r}")
            self._by_name[model.id] = model
        for model in self.models:
            for alias in model.aliases:
                self._by_name.setdefault(alias, model)

    def find(self, name: str) -> Model | None:
        """The model with exactly this name, give or take `:latest`; None if there is none."""
        found = self._by_name.get(name)
        if found is None:
            other = name.removesuffix(_LATEST) if name.endswith(_LATEST) else name + _LATEST
            found = self._by_name.get(other)
        return found

    def resolve(self, name: str) -> Model:
        """The model that answers a request for `name`: a lone model answers to every name.

        Raises ModelNotFound, which lists near names, and InvalidRequest for a name that cannot be one.
        """
        found = self.find(name)
        if found is not None:
            return found
        if len(name) > _LONGEST_NAME:
            raise InvalidRequest(f"A model name has at most {_LONGEST_NAME} characters.", param="model")
        if len(self.models) == 1:
            return self.models[0]
        raise self.not_found(name)

    def not_found(self, name: str) -> ModelNotFound:
        """The error for a name that nothing here answers to."""
        near = nearest(name, (model.id for model in self.models))
        known = f"; attached: {', '.join(near)}" if near else ""
        return ModelNotFound(f"The model {name[:_LONGEST_NAME]!r} is not attached{known}.", param="model")
