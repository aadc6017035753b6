"""The generated reference says what the code says."""

from __future__ import annotations

from docs.generate import REFERENCE, pages


def test_the_reference_is_fresh() -> None:
    """`make docs` writes it."""
    written = {path.name: path.read_text() for path in REFERENCE.glob("*.md")}
    assert written == pages()
