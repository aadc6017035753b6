"""What a model's authors recommend fills what a request leaves open, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turbospark_cli.runtime.engine.recommended import complete, read
from turbospark_cli.runtime.requests import Sampling


def write(folder: Path, value: object) -> Path:
    (folder / "generation_config.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def test_the_known_fields_are_read(tmp_path: Path) -> None:
    config = {
        "eos_token_id": 2,
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
        "min_p": 0,
        "repetition_penalty": 1.05,
    }
    found = read(write(tmp_path, config))
    assert found == Sampling(temperature=0.7, top_p=0.8, top_k=20, min_p=0.0, repetition_penalty=1.05)


@pytest.mark.parametrize("value", [None, True, "0.5", -1, 9, [0.5], float("nan"), float("inf")])
def test_a_value_that_cannot_be_used_is_passed_over(tmp_path: Path, value: object) -> None:
    assert read(write(tmp_path, {"temperature": value, "top_p": 0.5})) == Sampling(top_p=0.5)


@pytest.mark.parametrize("value", ["", "[]", "{", "[" * 100_000])
def test_a_broken_file_recommends_nothing(tmp_path: Path, value: str) -> None:
    assert read(write(tmp_path, value)) == Sampling()


def test_no_file_recommends_nothing(tmp_path: Path) -> None:
    assert read(tmp_path) == Sampling()


def test_a_request_wins_over_the_recommendation() -> None:
    asked = Sampling(temperature=0.0, top_k=0, seed=7, presence_penalty=0.5)
    recommended = Sampling(temperature=0.7, top_k=20, top_p=0.8)
    assert complete(asked, recommended) == Sampling(
        temperature=0.0, top_k=0, top_p=0.8, seed=7, presence_penalty=0.5
    )
