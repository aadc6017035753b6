"""Sequences join, leave and are aborted in any order, and each says what it says alone."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.runtime.engine.conftest import MakeEngine
from tests.runtime.engine.driver import Driver, alone, assert_same, request
from turbospark_cli.runtime.engine.text import TextEngine
from turbospark_cli.runtime.requests import Sampling


def _ids(number: int, length: int) -> list[int]:
    return [(number * 37 + place * place * 11 + place) % 256 for place in range(length)]


def _machine(engine: TextEngine) -> type[RuleBasedStateMachine]:
    """Requests that come, go and are aborted in any order, over one engine that is used again and again."""
    menu = [
        request(_ids(number, length), tokens, sampling=sampling)
        for number, (length, tokens, sampling) in enumerate(
            [
                (1, 9, Sampling(temperature=0)),
                (40, 1, Sampling(temperature=0)),
                (3, 14, Sampling(temperature=1.0, seed=3)),
                (200, 6, Sampling(temperature=0)),
                (70, 12, Sampling(temperature=0.8, top_p=0.8, seed=4)),
                (2, 2, Sampling(temperature=0, presence_penalty=1.0)),
            ]
        )
    ]
    solo = [alone(engine, wanted) for wanted in menu]

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.driver = Driver(engine)
            self.asked: dict[int, int] = {}

        @rule(choice=st.integers(0, len(menu) - 1))
        def start(self, choice: int) -> None:
            number = len(self.asked)
            self.asked[number] = choice
            self.driver.start(number, menu[choice])

        @rule(steps=st.integers(1, 6))
        def step(self, steps: int) -> None:
            for _ in range(steps):
                self.driver.step()

        @precondition(lambda self: self.driver.answers)
        @rule(data=st.data())
        def abort(self, data: st.DataObject) -> None:
            self.driver.abort(data.draw(st.sampled_from(sorted(self.driver.answers))))

        @rule(number=st.integers(10_000, 10_003))
        def abort_somebody_unknown(self, number: int) -> None:
            engine.abort(number)

        def teardown(self) -> None:
            self.driver.finish()
            for number, answer in self.driver.answers.items():
                expected = solo[self.asked[number]]
                assert_same(answer, expected.pieces)
                assert answer.end == expected.end

    return Machine


@pytest.mark.parametrize("family", ["llama-gqa", "gemma3", "qwen3_next"])
def test_any_order_of_joining_leaving_and_aborting(family: str, make_engine: MakeEngine) -> None:
    run_state_machine_as_test(
        _machine(make_engine(family, max_batch=4)),
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
