"""Speech is our own code: no import of the package is another speech engine, and no dependency brings one."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
OTHERS: Final = {"torch", "openai_whisper", "mlx_whisper", "mlx_audio", "faster_whisper", "numba"}


def imports(path: Path) -> Iterator[str]:
    """Top-level names of everything that a file imports, wherever in it, also by `import_module`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in OTHERS:
            yield node.value


def test_nothing_imports_another_speech_engine() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "turbospark_cli").rglob("*.py")
        for name in imports(path)
        if name in OTHERS
    }
    assert not found


def test_an_import_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def f():\n    from torch.nn import Linear\n    import_module('faster_whisper')\n")
    assert set(imports(path)) == {"torch", "faster_whisper"}


def test_no_dependency_brings_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=;~ ]", line)[0].replace("-", "_") for line in project["dependencies"]}
    assert not names & OTHERS
    locked = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"^(torch|mlx-whisper|mlx-audio|faster-whisper|ctranslate2|numba)==", locked, re.M)
