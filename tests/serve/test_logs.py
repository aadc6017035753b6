from __future__ import annotations

import json
import logging
import sys
from typing import Any

from turbospark_cli.serve.logs import JsonFormatter, TextFormatter


def record(message: str, error: Exception | None = None, **fields: Any) -> logging.LogRecord:
    info = None
    if error is not None:
        try:
            raise error
        except type(error):
            info = sys.exc_info()
    made = logging.LogRecord("turbospark.x", logging.INFO, __file__, 1, message, (), info)
    made.fields = fields
    return made


def test_text_is_one_line_whatever_a_client_sends() -> None:
    line = TextFormatter().format(record("request", path="/a\n2026 forged \x1b[31m", status=200))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert line.endswith("status=200")
    assert " info turbospark.x request " in line


def test_json_is_one_object() -> None:
    line = JsonFormatter().format(record("request", path='/a"\n', status=200))
    assert len(line.splitlines()) == 1
    entry = json.loads(line)
    assert entry["path"] == '/a"\n'
    assert entry["status"] == 200
    assert entry["level"] == "info"


def test_tracebacks_are_kept() -> None:
    assert "ValueError: x" in TextFormatter().format(record("failed", ValueError("x")))
    assert (
        "ValueError: x" in json.loads(JsonFormatter().format(record("failed", ValueError("x"))))["traceback"]
    )
