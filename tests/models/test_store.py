from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from turbospark_cli.errors import CorruptInstall, ModelNotFound
from turbospark_cli.models import completion, receipt, staging
from turbospark_cli.models.receipt import Receipt
from turbospark_cli.models.store import Install, Store


def facts(alias: str, **changes: object) -> Receipt:
    made = Receipt(
        schema_version=receipt.SCHEMA_VERSION,
        alias=alias,
        kind="text",
        family="tiny",
        title="Tiny",
        licence="MIT",
        capabilities=("chat",),
        context_length=64,
        parameters=10,
        quantization=None,
        source="package-index",
        origins=(),
        files=(),
        tool_version="0",
        created="2026-01-01T00:00:00+00:00",
    )
    return msgspec.structs.replace(made, **changes)


def publish(store: Store, alias: str, content: str = "weights") -> Install:
    with staging.folder(store.incoming, alias) as work:
        draft = work / "install"
        draft.mkdir()
        (draft / "model.safetensors").write_text(content)
        return store.publish(draft, facts(alias, files=receipt.inventory(draft)))


def test_an_empty_store_creates_nothing(store: Store) -> None:
    assert store.list() == []
    assert store.broken() == {}
    assert not store.home.exists()


def test_publish_find_list_remove(store: Store) -> None:
    publish(store, "b")
    install = publish(store, "a")
    assert store.find("a") == install
    assert [each.id for each in store.list()] == ["a", "b"]
    assert install.path == store.home / "models" / "text" / "a.gturbo"
    assert receipt.is_intact(install.path, install.receipt)
    assert completion.read_names(store.home) == ["a", "b"]
    freed = store.remove(install.path)
    assert freed >= len("weights")
    assert not install.path.exists()
    assert completion.read_names(store.home) == ["b"]
    assert list(store.incoming.glob("*.*/")) == []


def test_publish_replaces_an_older_install(store: Store) -> None:
    publish(store, "a", "old")
    install = publish(store, "a", "new")
    assert (install.path / "model.safetensors").read_text() == "new"
    assert [each.id for each in store.list()] == ["a"]


def test_a_missing_model_names_the_three_nearest_and_the_pull(store: Store) -> None:
    for alias in ("tiny-1", "tiny-2", "tiny-3", "zzz"):
        publish(store, alias)
    with pytest.raises(ModelNotFound) as caught:
        store.find("tiny-4")
    hint = caught.value.hint or ""
    assert all(alias in hint for alias in ("tiny-1", "tiny-2", "tiny-3"))
    assert "zzz" not in hint
    assert "turbospark models pull" in hint


def test_a_catalog_model_that_is_absent_names_its_pull(store: Store) -> None:
    with pytest.raises(ModelNotFound) as caught:
        store.find("smollm2-135m")
    assert "turbospark models pull smollm2-135m" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["../a", "a/../../x", "", ".", "a\0"])
def test_a_hostile_name_is_only_not_found(store: Store, name: str) -> None:
    publish(store, "a")
    with pytest.raises(ModelNotFound):
        store.find(name)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 1}', "\xff"])
def test_a_damaged_receipt_is_refused_and_hides_nothing_else(store: Store, content: str) -> None:
    publish(store, "good")
    bad = publish(store, "bad")
    (bad.path / "receipt.json").write_bytes(content.encode("latin-1"))
    assert [each.id for each in store.list()] == ["good"]
    assert list(store.broken()) == [bad.path]
    with pytest.raises(CorruptInstall):
        store.find("bad")


def test_a_fifo_in_place_of_a_receipt_blocks_nobody(store: Store) -> None:
    install = publish(store, "a")
    (install.path / "receipt.json").unlink()
    os.mkfifo(install.path / "receipt.json")
    with pytest.raises(CorruptInstall, match="no receipt"):
        store.find("a")


def test_a_receipt_of_another_schema_or_model_is_refused(store: Store) -> None:
    install = publish(store, "a")
    receipt.write(install.path, facts("a", schema_version=99))
    with pytest.raises(CorruptInstall, match="another version"):
        store.find("a")
    receipt.write(install.path, facts("b"))
    with pytest.raises(CorruptInstall, match="belongs to b"):
        store.find("a")


def test_a_receipt_that_names_files_outside_is_refused(store: Store) -> None:
    install = publish(store, "a")
    receipt.write(install.path, facts("a", files=(receipt.InstalledFile("../../x", 1, "0" * 64),)))
    with pytest.raises(CorruptInstall, match="outside"):
        store.find("a")


def test_a_packed_install_of_another_program_is_refused_with_a_sentence(store: Store) -> None:
    folder = store.folder("text", "old")
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(CorruptInstall, match="another program"):
        store.find("old")


def test_damage_to_a_file_is_noticed(store: Store) -> None:
    install = publish(store, "a")
    weights = install.path / "model.safetensors"
    weights.write_text("WEIGHTS")
    assert not receipt.is_intact(install.path, install.receipt)
    weights.unlink()
    assert not receipt.is_intact(install.path, install.receipt)


def test_use_is_remembered_and_forgotten_with_the_install(store: Store) -> None:
    install = publish(store, "a")
    assert install.used is None
    store.mark_used(install)
    assert store.find("a").used is not None
    store.remove(install.path)
    assert publish(store, "a").used is None


def test_completion_survives_a_home_that_is_gone(tmp_path: Path) -> None:
    assert completion.read_names(tmp_path / "nowhere") == []
    (tmp_path / "file").write_text("")
    completion.write_names(tmp_path / "file", ["a"])
    shutil.rmtree(tmp_path / "file", ignore_errors=True)
