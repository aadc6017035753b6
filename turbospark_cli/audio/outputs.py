"""Where transcripts go: standard output, a file or a folder; a file is there complete or not at all.

GUARANTEES. `save` writes aside and renames, so an error, a full disk or Ctrl-C leaves what was there before.
Two transcripts of one run never share a name, and none replaces a file that is being read.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from turbospark_cli.audio.writers import FORMATS, Format
from turbospark_cli.errors import OutputFailed, UsageError

STREAM: Final = "-"


@dataclass(frozen=True, slots=True)
class Output:
    """One form of one transcript; `path` None is standard output."""

    form: Format
    path: Path | None


def plan(inputs: Sequence[str], forms: Sequence[Format], output: str | None) -> list[tuple[Output, ...]]:
    """The outputs of each input. `inputs` are paths, or names of streams where no file is.

    Raises UsageError when they cannot all go where `output` says. Creates no file, but the folder.
    """
    chosen: tuple[Format, ...] = tuple(dict.fromkeys(forms)) or (_by_suffix(output),)
    if output is None or output == STREAM:
        _check_stream(inputs, chosen)
        return [(Output(chosen[0], None),) for _ in inputs]
    target = Path(output)
    if not _is_folder(output, len(inputs) > 1 or len(chosen) > 1):
        planned: list[tuple[Output, ...]] = [(Output(chosen[0], target),)]
    else:
        _make(target)
        stems = _stems(inputs)
        planned = [
            tuple(Output(form, target / f"{stems[each]}.{form}") for form in chosen) for each in inputs
        ]
    for outputs in planned:
        _check_targets(outputs, inputs)
    return planned


def save(path: Path, text: str) -> None:
    """Write a file in one step. Raises OutputFailed, and leaves no trace, when that fails."""
    try:
        if path.exists() and not path.is_file():  # a device or a pipe, which a rename would replace
            path.write_text(text, "utf-8")
            return
        target = path.resolve()
        draft = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
        try:
            draft.write_text(text, "utf-8")
            draft.replace(target)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
    except OSError as error:
        raise OutputFailed(
            f"{path.name} cannot be written: {error.strerror or error}.",
            hint="-o names another file or folder.",
        ) from error


def _by_suffix(output: str | None) -> Format:
    suffix = Path(output or "").suffix.removeprefix(".").lower()
    return suffix if suffix in FORMATS else "txt"


def _check_stream(inputs: Sequence[str], forms: Sequence[Format]) -> None:
    if len(forms) > 1:
        raise UsageError(
            f"{' and '.join(forms)} cannot both go to standard output.", hint="-o names a folder for them."
        )
    if len(inputs) > 1 and forms[0] not in ("txt", "json"):
        raise UsageError(
            f"The {forms[0]} of several files cannot go to standard output.",
            hint=f"-o names a folder for them: -f {forms[0]} -o subtitles/",
        )


def _is_folder(output: str, many: bool) -> bool:
    target = Path(output)
    if target.is_dir() or output.endswith("/"):
        return True
    if many and target.exists():
        raise UsageError(
            f"{output} is a file, and there is more than one transcript to write.",
            hint="-o names a folder for them.",
        )
    return many


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}.") from error


def _stems(inputs: Sequence[str]) -> dict[str, str]:
    """Input -> the name of its outputs without an ending; with the input's own where two would meet."""
    counts = Counter(Path(each).stem for each in inputs)
    stems = {each: Path(each).stem if counts[Path(each).stem] == 1 else Path(each).name for each in inputs}
    for stem, count in Counter(stems.values()).items():
        if count > 1:
            first, second = [each for each in inputs if stems[each] == stem][:2]
            raise UsageError(f"The transcripts of {first} and {second} would have the same name.")
    return stems


def _check_targets(outputs: Sequence[Output], inputs: Sequence[str]) -> None:
    sources = {os.path.realpath(each) for each in inputs}
    for each in outputs:
        if each.path is None:
            continue
        if os.path.realpath(each.path) in sources:
            raise UsageError(f"{each.path} is the sound itself, which its transcript would replace.")
        if not each.path.parent.is_dir():
            raise UsageError(f"There is no folder {each.path.parent} to write {each.path.name} to.")
