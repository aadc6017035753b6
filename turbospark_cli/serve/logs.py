"""Structured logs on stderr, as text or as one JSON object a line.

A record's message is a fixed text; what varies stands in `fields`. Nothing logged holds a prompt, a key, a
header or a query string.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from turbospark_cli.serve.observe import access_log
from turbospark_cli.serve.openai.wire import encode


def configure(level: str, style: str) -> None:
    """Send every logger of this process to stderr, as "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    access_log.setLevel(logging.INFO)  # asked for by a flag of its own


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


class TextFormatter(logging.Formatter):
    """`time level logger message key=value ...`"""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname.lower(), record.name, _one_line(record.getMessage())]
        parts += [f"{key}={_one_line(str(value))}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object: time, level, logger, message, the fields, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return encode(entry).decode()


def _one_line(text: str) -> str:
    """A client's path must not be able to start a new record."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
