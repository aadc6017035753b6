"""A loopback package index, a tiny model on it, and an empty store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models import gguf_files, package_index
from tests.models.package_index import Index
from turbospark_cli.models import catalog
from turbospark_cli.models.catalog import Row
from turbospark_cli.models.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "home")


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama in Q4_0."""
    return gguf_files.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_wheel(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that ships it."""
    return package_index.build_wheel(tmp_path_factory.mktemp("wheel"), tiny_gguf)


@pytest.fixture(scope="session")
def tiny_row(tiny_wheel: Path, tiny_gguf: Path) -> Row:
    """Its catalog row, with the alias `tiny`."""
    return package_index.catalog_row(package_index.wheel_row(tiny_wheel, tiny_gguf))


@pytest.fixture
def only_tiny(tiny_row: Row, monkeypatch: pytest.MonkeyPatch) -> Row:
    """A catalog that holds nothing but the tiny model."""
    monkeypatch.setattr(catalog, "rows", lambda: {tiny_row.alias: tiny_row})
    return tiny_row


@pytest.fixture
def index(tiny_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The index, and a pip that knows no other."""
    with package_index.serve(tiny_wheel) as running:
        use_index(monkeypatch, running.url)
        yield running


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Configure pip, as a user would, for this index alone."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
