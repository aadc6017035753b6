"""Admission: slots, order, bounds."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from turbospark_cli.runtime.queue import LONGEST_RETRY, AdmissionQueue, Pace

SLOTS, DEPTH = 2, 3


class Admissions(RuleBasedStateMachine):
    """Arrivals, departures and finishes in any order, against a list and a set."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: AdmissionQueue[int] = AdmissionQueue(SLOTS, DEPTH)
        self.running: set[int] = set()
        self.waiting: deque[int] = deque()
        self.next = 0

    @rule()
    def arrive(self) -> None:
        self.next += 1
        if self.queue.take_slot():
            assert not self.waiting, "a newcomer overtook the queue"
            self.running.add(self.next)
        elif not self.queue.full:
            self.waiting.append(self.next)
            assert self.queue.join(self.next) == len(self.waiting)
        else:
            assert len(self.waiting) == DEPTH

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(list(self.waiting)))
        self.waiting.remove(entry)
        assert self.queue.leave(entry)
        assert not self.queue.leave(entry)

    @precondition(lambda self: self.running)
    @rule()
    def finish(self) -> None:
        self.running.pop()
        following = self.queue.release_slot()
        assert following == (self.waiting.popleft() if self.waiting else None)
        if following is not None:
            self.running.add(following)

    @invariant()
    def agrees(self) -> None:
        assert self.queue.running == len(self.running) <= SLOTS
        assert len(self.queue) == len(self.waiting) <= DEPTH
        assert list(self.queue.positions()) == list(enumerate(self.waiting, start=1))


TestAdmissions = Admissions.TestCase
TestAdmissions.settings = settings(max_examples=60, deadline=None)


def test_no_queue_at_all() -> None:
    queue: AdmissionQueue[str] = AdmissionQueue(1, 0)
    assert queue.take_slot()
    assert not queue.take_slot()
    assert queue.full


def test_pace_is_the_time_to_drain() -> None:
    pace = Pace()
    assert pace.retry_after(10) == 1, "nothing is known yet"
    for second in range(0, 20, 2):
        pace.handover(float(second), waiting=True)
    assert pace.retry_after(5) == 10
    assert pace.retry_after(1000) == LONGEST_RETRY


def test_pace_ignores_idle_time() -> None:
    pace = Pace()
    pace.handover(0.0, waiting=True)
    pace.handover(1.0, waiting=False)
    pace.handover(5000.0, waiting=True)
    pace.handover(5001.0, waiting=True)
    assert pace.retry_after(4) == 4
