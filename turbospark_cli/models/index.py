"""One pinned wheel from the package index, fetched by pip in a process of its own.

pip is the ordinary client of the index: it brings the user's own configuration (mirror, proxy, certificates,
login), so nothing here knows where the index is. pip refuses a file whose hash differs from the pinned one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from turbospark_cli.errors import DownloadFailed
from turbospark_cli.models import receipt
from turbospark_cli.models.catalog import Wheel

_PROGRESS: Final = re.compile(r"Progress (\d+)(?: of \d+)?")
_URL: Final = re.compile(r"\w+://\S+")  # may hold a login
_TAIL: Final = 200  # lines of pip's output that an error is read from
_UNREACHABLE: Final = (
    "Retrying (",
    "onnection error",
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeout",
    "ssl certificate",
)
_OLD_PIP: Final = ("invalid choice: 'raw'", "no such option")


def download(wheel: Wheel, folder: Path, progress: Callable[[int], None]) -> Path:
    """Fetch `wheel` into `folder`, an empty work folder; the path of the verified file.

    `progress` gets the bytes of this wheel that have arrived. Raises DownloadFailed. The process is ended
    when this call is left in any way.
    """
    requirement = folder / "wanted.txt"
    requirement.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", "utf-8")
    arrived = folder / "arrived"
    tail: deque[str] = deque(maxlen=_TAIL)
    process = _start_pip(requirement, arrived, folder)
    with process:
        try:
            for line in _lines(process):
                tail.append(line)
                if match := _PROGRESS.fullmatch(line):
                    progress(int(match[1]))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failure(wheel, "\n".join(tail))
    path = arrived / wheel.file
    # SAFETY: pip has checked the hash; this one guards against a pip that was told to look elsewhere.
    if not path.is_file() or receipt.digest(path) != wheel.sha256:
        raise _wrong_hash(wheel)
    return path


def _start_pip(requirement: Path, arrived: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--no-binary=:none:"]
    command += ["--only-binary=:all:", "--require-hashes", "--progress-bar=raw", "--no-cache-dir"]
    command += ["--no-input", "--no-color", "--disable-pip-version-check"]
    command += ["--dest", str(arrived), "--requirement", str(requirement)]
    scratch = folder / "pip"
    scratch.mkdir()
    # NOTE: the user's configuration counts, except what would silence pip, keep it from running outside of a
    # virtual environment, or leave its temporary files where the next pull does not clean.
    own = {"PIP_QUIET": "0", "PIP_VERBOSE": "0", "PIP_REQUIRE_VIRTUALENV": "0", "TMPDIR": str(scratch)}
    return subprocess.Popen(
        command,
        cwd=scratch,
        env={**os.environ, **own, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    if process.stdout is not None:
        for line in process.stdout:
            yield line.strip()


def _failure(wheel: Wheel, output: str) -> DownloadFailed:
    what = f"{wheel.package} {wheel.version}"
    if "No module named pip" in output:
        return DownloadFailed(
            f"This Python has no pip, which fetches {what} from the package index.",
            hint="Install turbospark again with its dependencies, or run `python -m ensurepip --upgrade`.",
        )
    if any(sign in output for sign in _OLD_PIP):
        return DownloadFailed(
            "The pip of this Python is too old to report progress.",
            hint="Upgrade it: `python -m pip install --upgrade pip`.",
        )
    if "DO NOT MATCH THE HASHES" in output:
        return _wrong_hash(wheel)
    if any(sign in output for sign in _UNREACHABLE):
        return DownloadFailed(
            f"The package index could not be reached, so {what} was not fetched.",
            hint="Check the network, and the proxy or mirror that `pip config list` shows; then pull again.",
        )
    if "No matching distribution" in output:
        # A pip that was told not to retry is silent about a network that is down.
        unsure = ", or cannot be reached" if "(from versions: none)" in output else ""
        return DownloadFailed(
            f"The package index that pip uses has no {what}{unsure}.",
            hint="A mirror may lack it; `pip config list` shows which index pip uses.",
        )
    if "No space left on device" in output:
        return DownloadFailed(f"The disk became full while {what} was fetched.")
    reasons = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    reason = _URL.sub("the index", reasons[-1]) if reasons else "it gave no reason"
    return DownloadFailed(f"pip could not fetch {what}: {reason}")


def _wrong_hash(wheel: Wheel) -> DownloadFailed:
    return DownloadFailed(
        f"The package index sent a file for {wheel.package} {wheel.version} whose SHA-256 is not the pinned "
        "one; nothing was installed.",
        hint="A proxy or mirror may have changed it; `pip config list` shows which index pip uses.",
    )
