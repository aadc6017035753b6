"""Where transcripts go, and that a file is there complete or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from turbospark_cli.audio import outputs
from turbospark_cli.audio.outputs import Output, plan
from turbospark_cli.errors import OutputFailed, UsageError


def test_without_a_path_it_is_standard_output() -> None:
    for output in (None, "-"):
        assert plan(["a.wav", "b.wav"], [], output) == [(Output("txt", None),)] * 2


def test_the_name_of_a_file_says_its_form(tmp_path: Path) -> None:
    for name, form in (("a.srt", "srt"), ("a.JSON", "json"), ("a.out", "txt")):
        assert plan(["a.wav"], [], str(tmp_path / name)) == [(Output(form, tmp_path / name),)]  # type: ignore[arg-type]
    assert plan(["a.wav"], ["vtt"], str(tmp_path / "a.srt")) == [(Output("vtt", tmp_path / "a.srt"),)]


def test_a_folder_takes_all(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "subs"
    planned = plan(["x/a.wav", "b.mp3"], ["srt", "vtt", "srt"], str(folder))
    assert planned == [
        (Output("srt", folder / "a.srt"), Output("vtt", folder / "a.vtt")),
        (Output("srt", folder / "b.srt"), Output("vtt", folder / "b.vtt")),
    ]
    assert folder.is_dir()
    assert plan(["a.wav"], [], f"{tmp_path}/one/") == [(Output("txt", tmp_path / "one" / "a.txt"),)]
    assert plan(["a.wav"], [], str(tmp_path)) == [(Output("txt", tmp_path / "a.txt"),)]


def test_names_that_would_meet_keep_their_endings(tmp_path: Path) -> None:
    planned = plan(["a.wav", "a.mp3", "b.wav"], [], f"{tmp_path}/")
    assert [output.path for (output,) in planned] == [
        tmp_path / name for name in ("a.wav.txt", "a.mp3.txt", "b.txt")
    ]


@pytest.mark.parametrize(
    ("inputs", "forms", "output", "sentence"),
    [
        (["a.wav"], ["srt", "json"], None, "srt and json cannot both go to standard output."),
        (["a.wav", "b.wav"], ["srt"], None, "The srt of several files cannot go to standard output."),
        (["a.wav", "b.wav"], [], "taken", "is a file, and there is more than one transcript to write."),
        (
            ["x/a.wav", "y/a.wav"],
            [],
            "new/",
            "The transcripts of x/a.wav and y/a.wav would have the same name.",
        ),
        (["a.wav"], [], "gone/a.txt", "There is no folder gone to write a.txt to."),
        (["taken"], [], "taken", "taken is the sound itself, which its transcript would replace."),
        (["a.wav"], [], "taken/", "The folder taken cannot be made: File exists."),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: list[str], forms: Any, output: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("keep")
    with pytest.raises(UsageError) as raised:
        plan(inputs, forms, output)
    assert sentence in raised.value.message


def test_saving_replaces_in_one_step(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    (tmp_path / "link.txt").symlink_to(target)
    outputs.save(target, "one")
    outputs.save(tmp_path / "link.txt", "zwei ü")
    assert target.read_text("utf-8") == "zwei ü"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.txt", "link.txt"]
    assert (tmp_path / "link.txt").is_symlink()


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    outputs.save(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()
    with pytest.raises(OutputFailed, match="full cannot be written: No space left on device"):
        outputs.save(Path("/dev/full"), "text")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    target.write_text("before")

    def write_half(self: Path, text: str, encoding: str) -> int:
        with self.open("w", encoding=encoding) as file:
            file.write(text[: len(text) // 2])
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OutputFailed) as raised:
        outputs.save(target, "a new text")
    assert raised.value.message == "a.txt cannot be written: No space left on device."
    assert raised.value.exit_code == 1
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]
    assert target.read_text() == "before"
