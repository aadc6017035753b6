"""What raises in the text engine ends whom it concerns, in a sentence, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.engine.conftest import MakeEngine
from tests.runtime.engine.driver import Driver, alone, assert_same, request
from turbospark_cli.runtime.events import Failed, Finished

_FAULT = Failed("internal_error", "The engine met an error while generating; try again.")


def _ids(number: int, length: int) -> list[int]:
    return [(number * 37 + place * place * 11 + place) % 256 for place in range(length)]


class _Breaking:
    """Stands in for a model call that raises from its `after`-th time on, `times` times."""

    def __init__(self, call: Any, after: int, times: int = 1) -> None:
        self._call, self._after, self._left = call, after, times

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._after > 0:
            self._after -= 1
        elif self._left:
            self._left -= 1
            raise RuntimeError("[metal] out of memory")
        return self._call(*args, **kwargs)


def test_a_prompt_that_cannot_be_read_fails_alone(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("llama-gqa")
    expected = alone(engine, request(_ids(0, 5), 12))
    driver = Driver(engine)
    driver.start(0, request(_ids(0, 5), 12))
    driver.step()
    monkeypatch.setattr(engine._model, "read_last", _Breaking(engine._model.read_last, after=0))
    driver.start(1, request(_ids(1, 5), 12))
    driver.start(2, request(_ids(2, 5), 12))
    driver.finish()
    assert driver.answers[1].end == _FAULT
    assert not driver.answers[1].tokens
    assert_same(driver.answers[0], expected.pieces)
    assert isinstance(driver.answers[2].end, Finished)


def test_a_step_that_raises_ends_its_rows_and_the_engine_goes_on(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("llama-gqa", max_batch=3)
    driver = Driver(engine)
    monkeypatch.setattr(engine._model, "decode", _Breaking(engine._model.decode, after=4))
    for number in range(5):
        driver.start(number, request(_ids(number, 5), 12))
    driver.finish()
    ends = [answer.end for answer in driver.answers.values()]
    assert ends[:3] == [_FAULT] * 3
    assert all(isinstance(end, Finished) for end in ends[3:])
    assert alone(engine, request(_ids(0, 5), 3)).end is not None


@pytest.mark.parametrize("round_", range(5))
def test_a_fault_on_looking_at_tokens_loses_nobody(
    round_: int, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that only wait for their last token are in the round, too."""
    engine = make_engine("llama-gqa")
    driver = Driver(engine)
    for number in range(3):  # budgets 1, 2, 3: at every round somebody is at the end
        driver.start(number, request(_ids(number, 3), number + 1))
    monkeypatch.setattr(engine, "_collect", _Breaking(engine._collect, after=round_))
    driver.finish()  # asserts that all have ended


def test_the_fault_of_one_round_is_told_without_its_words(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine("llama-gqa")
    monkeypatch.setattr(engine._model, "decode", _Breaking(engine._model.decode, after=0))
    answer = alone(engine, request(_ids(0, 3), 3))
    assert answer.end == _FAULT
    assert "out of memory" not in caplog.text
    assert "RuntimeError" in caplog.text
