"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turbospark_cli.models import catalog, receipt
from turbospark_cli.models.pull import pull
from turbospark_cli.models.store import Store
from turbospark_cli.runtime.engine.device import load_blas

load_blas()  # before any test imports MLX: with its own BLAS the real models take minutes


@pytest.fixture(scope="session")
def starter() -> Path:
    """The install folder of the real starter model; pulled once, into a cache outside the checkout.

    The cache is $TURBOSPARK_TEST_CACHE or ~/.cache/turbospark-tests. What is there already is used only when
    every hash of its receipt holds. Tests read it and never write to it.
    """
    return _installed(catalog.STARTER)


@pytest.fixture(scope="session")
def whisper_tiny_en() -> Path:
    """The install folder of the real Whisper tiny.en; see `starter`."""
    return _installed("whisper-tiny-en")


@pytest.fixture(scope="session")
def whisper_base() -> Path:
    """The install folder of the real multilingual Whisper base; see `starter`."""
    return _installed("whisper-base")


def _installed(alias: str) -> Path:
    cache = os.environ.get("TURBOSPARK_TEST_CACHE") or Path.home() / ".cache" / "turbospark-tests"
    store = Store(Path(cache))
    install = pull(store, alias)
    if not receipt.is_intact(install.path, install.receipt):
        install = pull(store, alias, force=True)
    return install.path
