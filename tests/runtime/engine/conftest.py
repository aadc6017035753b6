"""Fixtures for the engine. BLAS is loaded here, since MLX must not be imported before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turbospark_cli.runtime.engine import device

BLAS = device.load_blas()

from tests.runtime.engine.driver import cpu  # noqa: E402 - imports MLX
from tests.runtime.engine.families import FAMILIES  # noqa: E402
from tests.runtime.engine.tiny import write_install  # noqa: E402
from turbospark_cli.runtime.engine.text import TextEngine  # noqa: E402

MakeEngine = Callable[..., TextEngine]


@pytest.fixture(scope="session", autouse=True)
def _no_run_time_compilation() -> None:
    """As in an engine process on a CPU."""
    device.select(BLAS)


@pytest.fixture(scope="session")
def make_engine(tmp_path_factory: pytest.TempPathFactory) -> MakeEngine:
    """A fresh engine over a tiny model of a family of families.py; installs are written once a session."""
    installs: dict[str, Any] = {}

    def make(family: str, max_batch: int = 8, prefill_chunk: int = 32) -> TextEngine:
        if family not in installs:
            folder = tmp_path_factory.mktemp("tiny") / family
            installs[family] = write_install(folder, FAMILIES[family].config)
        return TextEngine(installs[family], cpu(prefill_chunk), max_batch)

    return make
