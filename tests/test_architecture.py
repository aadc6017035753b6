"""The walls of the house: file sizes, and import contracts that cover every module and can fail."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "turbospark_cli"
SOURCES: Final = sorted(PACKAGE.rglob("*.py"))
MOST_LINES_OF_A_FILE: Final = 300
MOST_LINES_OF_A_FUNCTION: Final = 60


def _contracts() -> dict[str, dict[str, Any]]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {contract["id"]: contract for contract in config["tool"]["importlinter"]["contracts"]}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_holds_one_concept(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MOST_LINES_OF_A_FILE, "split this file by concept"
    assert path.name not in {"utils.py", "helpers.py", "common.py"}, "name the file by what it holds"
    long = [
        f"{function.name} has {function.end_lineno - function.lineno + 1} lines"
        for function in _functions(ast.parse(source))
        if function.end_lineno and function.end_lineno - function.lineno >= MOST_LINES_OF_A_FUNCTION
    ]
    assert not long


def test_every_module_has_a_layer() -> None:
    layered = re.findall(r"turbospark_cli\.(\w+)", " ".join(_contracts()["layers"]["layers"]))
    present = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert present - {"__init__"} == set(layered)


def test_every_protocol_is_independent() -> None:
    protocols = {f"turbospark_cli.serve.{path.parent.name}" for path in PACKAGE.glob("serve/*/__init__.py")}
    assert protocols == set(_contracts()["protocols-apart"]["modules"])


def test_the_contracts_can_be_broken(tmp_path: Path) -> None:
    """A copy of the package with one forbidden import for each contract breaks every one of them."""
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    protocol = tmp_path / PACKAGE.name / "serve" / "second"
    protocol.mkdir()
    (protocol / "__init__.py").write_text("import turbospark_cli.serve.openai\n")
    config = tmp_path / "pyproject.toml"
    config.write_text(
        config.read_text().replace(
            'modules = ["turbospark_cli.serve.openai"]',
            'modules = ["turbospark_cli.serve.openai", "turbospark_cli.serve.second"]',
        )
    )
    violations = {
        "errors.py": ["turbospark_cli.console"],
        "models/__init__.py": [
            "falcon",
            "mlx.core",
            "rich",
            "typer",
            "sounddevice",
            "soundfile",
            "huggingface_hub",
            "gguf",
        ],
        "runtime/requests.py": ["turbospark_cli.runtime.engine.main", "turbospark_cli.models.command"],
    }
    for name, modules in violations.items():
        with (tmp_path / PACKAGE.name / name).open("a") as file:
            file.writelines(f"import {module}\n" for module in modules)
    run = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    kept = [
        contract["name"] for contract in _contracts().values() if f"{contract['name']} KEPT" in run.stdout
    ]
    assert kept == []
