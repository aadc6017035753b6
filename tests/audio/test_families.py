"""Which code runs which model, by its config.json."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turbospark_cli.audio import families
from turbospark_cli.errors import CorruptInstall, UsageError


def folder(tmp_path: Path, config: str) -> Path:
    install = tmp_path / "ears.gturbo"
    install.mkdir()
    (install / "config.json").write_text(config)
    return install


def test_a_real_install_is_loaded_by_its_type(whisper_tiny_en: Path) -> None:
    transcriber = families.load(whisper_tiny_en)
    assert (transcriber.languages, transcriber.multilingual) == (frozenset({"en"}), False)


@pytest.mark.parametrize("config", ["", "{", "[]", '{"model_type": 5}', "{}"])
def test_a_config_that_says_nothing_is_a_corrupt_install(tmp_path: Path, config: str) -> None:
    with pytest.raises(CorruptInstall, match=r"config\.json of ears "):
        families.load(folder(tmp_path, config))


def test_no_config_is_a_corrupt_install(tmp_path: Path) -> None:
    with pytest.raises(CorruptInstall, match=r"config\.json of gone cannot be read"):
        families.load(tmp_path / "gone.gturbo")


def test_another_kind_of_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ears is a 'llama' model, which turbospark cannot transcribe with"):
        families.load(folder(tmp_path, '{"model_type": "llama"}'))


def test_a_family_whose_package_is_missing_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "turbospark_cli.audio.qwen3_asr", None)
    with pytest.raises(UsageError) as raised:
        families.load(folder(tmp_path, '{"model_type": "qwen3_asr"}'))
    assert raised.value.hint == "Install it: pip install 'turbospark[qwen3-asr]'"
