"""Fixtures of the commands' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.commands.openai_peer import Peer, peer


@pytest.fixture
def openai_peer() -> Iterator[Peer]:
    """A small OpenAI-compatible server on loopback."""
    with peer() as server:
        yield server
