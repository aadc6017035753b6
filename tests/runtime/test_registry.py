"""Names: ids, aliases, :latest, and the lone model that answers to all."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from turbospark_cli.errors import InvalidRequest, ModelNotFound
from turbospark_cli.runtime.registry import Registry


@dataclass
class Model:
    id: str
    aliases: tuple[str, ...] = ()


SMALL = Model("smollm2-135m", ("HuggingFaceTB/SmolLM2-135M-Instruct", "qwen"))
LARGE = Model("qwen3:4b", ("qwen3:latest",))
QWEN = Model("qwen")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("smollm2-135m", SMALL),
        ("smollm2-135m:latest", SMALL),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", SMALL),
        ("qwen3:4b", LARGE),
        ("qwen3", LARGE),
        ("qwen", QWEN),  # an id wins over another model's alias
    ],
)
def test_every_name_of_a_model(name: str, model: Model) -> None:
    assert Registry([SMALL, LARGE, QWEN]).resolve(name) is model


def test_a_lone_model_answers_to_any_name() -> None:
    registry = Registry([SMALL])
    assert registry.resolve("claude-haiku") is SMALL
    assert registry.find("claude-haiku") is None


def test_an_unknown_name_lists_near_ones() -> None:
    with pytest.raises(ModelNotFound, match=r"'smollm2-360m' is not attached.*smollm2-135m") as caught:
        Registry([SMALL, LARGE]).resolve("smollm2-360m")
    assert caught.value.param == "model"


def test_no_models_at_all() -> None:
    with pytest.raises(ModelNotFound):
        Registry([]).resolve("anything")


def test_a_name_is_not_a_document() -> None:
    with pytest.raises(InvalidRequest, match="256"):
        Registry([SMALL]).resolve("x" * 257)


def test_two_models_cannot_share_an_id() -> None:
    with pytest.raises(ValueError, match="two attached models"):
        Registry([QWEN, Model("qwen")])
