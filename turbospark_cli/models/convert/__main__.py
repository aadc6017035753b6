"""The converter process: `python -m turbospark_cli.models.convert FORMAT SOURCE TARGET`.

It says one JSON object a line on stdout: {"done", "total"} while it works, then {"facts": ...} or
{"error": sentence}. It ends when its stdin does, since whoever wanted the result is gone then.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert.facts import Facts

_MEMORY_BASE: Final = 4 * 1024**3  # bytes of address space, beside several times the file
_MEMORY_PER_BYTE: Final = 8
_SECONDS_BASE: Final = 300  # of CPU time, beside a minute per gigabyte
_SECONDS_PER_BYTE: Final = 60 / 1e9


def main() -> int:
    """Convert; the exit code is 0 when the last line holds facts."""
    kind, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    _limit(source.stat().st_size)
    try:
        facts = _converter(kind)(source, target, lambda done, total: _say({"done": done, "total": total}))
    except ConversionFailed as error:
        _say({"error": error.message})
        return 1
    except MemoryError:
        _say({"error": "The file needs more memory to convert than a file of its size may."})
        return 1
    except OSError as error:
        _say({"error": f"The converted model could not be written: {error.strerror}."})
        return 1
    _say({"facts": dataclasses.asdict(facts)})
    return 0


def _converter(kind: str) -> Callable[[Path, Path, Callable[[int, int], None]], Facts]:
    if kind == "ctranslate2":
        from turbospark_cli.models.convert import whisper

        return whisper.convert
    from turbospark_cli.models.convert import main as text

    return text.convert


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os._exit(1)


def _limit(size: int) -> None:
    """Bound memory and CPU time by the size of the file, so that a hostile one ends this process only."""
    wanted = {
        resource.RLIMIT_AS: _MEMORY_BASE + size * _MEMORY_PER_BYTE,
        resource.RLIMIT_CPU: _SECONDS_BASE + int(size * _SECONDS_PER_BYTE),
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in wanted.items():
        hard = resource.getrlimit(kind)[1]
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (soft, hard))


if __name__ == "__main__":
    sys.exit(main())
