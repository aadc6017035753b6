"""`turbospark models` through the command line's own entry, against a store on disk."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.models.package_index import Index
from tests.models.test_store import publish
from turbospark_cli import cli
from turbospark_cli.models.catalog import Row
from turbospark_cli.models.store import Store


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("TURBOSPARK_HOME", str(store.home))
    monkeypatch.delenv("TURBOSPARK_OFFLINE", raising=False)

    def call(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["turbospark", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, captured.out, captured.err)

    return call


def test_nothing_installed(run: Run) -> None:
    assert run("models", "list") == Result(
        0, "", "No model is installed; `turbospark models pull smollm2-135m` installs the starter.\n"
    )
    assert run("models", "list", "--json").out == "[]\n"


def test_pull_list_show_remove(run: Run, store: Store, index: Index, only_tiny: Row) -> None:
    path = str(store.folder("text", "tiny"))
    pulled = run("models", "pull", "tiny")
    assert (pulled.code, pulled.out) == (0, f"{path}\n")
    assert "Downloading tiny" in pulled.err
    again = run("models", "pull", "tiny")
    assert (again.code, again.out) == (0, f"{path}\n")
    assert "already installed" in again.err

    assert run("models", "list").out.splitlines()[0].split() == [
        "NAME",
        "KIND",
        "PARAMS",
        "QUANT",
        "SIZE",
        "USED",
    ]
    assert run("models", "ls", "-q").out == "tiny\n"
    assert [item["name"] for item in json.loads(run("models", "list", "--json").out)] == ["tiny"]

    shown = run("models", "show", "tiny").out
    assert all(
        word in shown for word in ("tiny (Tiny)", "4-bit", "128 tokens", "Apache-2.0", "tiny-model 1.0", path)
    )
    facts = json.loads(run("models", "show", "tiny", "--json").out)
    assert facts["context_length"] == 128
    assert facts["memory"]["float32"]["128"] > 0
    assert run("models", "show", "tiny", "--license").out == "Apache-2.0\n"
    assert (
        run("models", "show", "tiny", "--template").out
        == (Path(path) / "chat_template.jinja").read_text() + "\n"
    )
    assert "model.safetensors" in run("models", "show", "tiny", "--files").out

    refused = run("models", "rm", "tiny")
    assert refused.code == 2
    assert "-y" in refused.err
    removed = run("models", "rm", "tiny", "-y")
    assert (removed.code, removed.out) == (0, "")
    assert "free again" in removed.err
    assert store.list() == []


def test_quiet_and_json_pulls(run: Run, store: Store, index: Index, only_tiny: Row) -> None:
    path = str(store.folder("text", "tiny"))
    assert run("models", "pull", "tiny", "-q") == Result(0, f"{path}\n", "")
    assert json.loads(run("models", "pull", "tiny", "--json").out) == {
        "name": "tiny",
        "kind": "text",
        "path": path,
    }


def test_a_dry_run_changes_nothing(run: Run, store: Store, index: Index, only_tiny: Row) -> None:
    planned = run("models", "pull", "tiny", "--dry-run")
    assert planned.code == 0
    assert "would download" in planned.out
    facts = json.loads(run("models", "pull", "tiny", "--dry-run", "--json").out)
    assert (facts["installed"], facts["download"]) == (False, only_tiny.size)
    assert not store.home.exists()
    assert index.downloads == 0


def test_every_name_is_checked_before_the_first_pull(run: Run, index: Index, only_tiny: Row) -> None:
    result = run("models", "pull", "tiny", "tinny")
    assert result.code == 3
    assert "tiny" in result.err
    assert index.downloads == 0


def test_offline_is_honoured(run: Run, index: Index, only_tiny: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBOSPARK_OFFLINE", "1")
    result = run("models", "pull", "tiny")
    assert result.code == 1
    assert "downloads are turned off" in result.err
    assert index.downloads == 0


def test_the_catalog_marks_what_is_installed(run: Run, store: Store, only_tiny: Row) -> None:
    assert run("models", "list", "--available").out.splitlines()[1].split()[-1] == "no"
    publish(store, "tiny")
    assert run("models", "list", "--available").out.splitlines()[1].split()[-1] == "yes"


def test_sorting_and_kinds(run: Run, store: Store) -> None:
    publish(store, "small", "x")
    store.mark_used(publish(store, "large", "x" * 100))
    assert run("models", "list", "-q").out == "large\nsmall\n"
    assert run("models", "list", "-q", "--sort", "size").out == "large\nsmall\n"
    assert run("models", "list", "-q", "--sort", "used").out == "large\nsmall\n"
    assert run("models", "list", "-q", "--kind", "tts").out == ""
    assert run("models", "list", "--kind", "nonsense").code == 2
    assert run("models", "list", "--sort", "nonsense").code == 2


def test_a_broken_install_is_warned_about_and_hides_nothing(run: Run, store: Store) -> None:
    publish(store, "good")
    (publish(store, "bad").path / "receipt.json").write_text("{")
    result = run("models", "list", "-q")
    assert result.out == "good\n"
    assert "warning: The receipt of bad.gturbo" in result.err
    assert run("models", "show", "bad").code == 1


def test_an_unknown_model_gets_the_nearest_names(run: Run, store: Store) -> None:
    publish(store, "good")
    result = run("models", "show", "gud")
    assert result.code == 3
    assert result.err.startswith("error: No model is called 'gud'.\n\nhint: ")
    assert "good" in result.err


def test_flags_that_exclude_each_other(run: Run, store: Store) -> None:
    publish(store, "good")
    assert run("models", "show", "good", "--files", "--license").code == 2
    assert run("models", "show", "good", "--template").code == 1


def test_top_level_spellings(run: Run, store: Store) -> None:
    publish(store, "good")
    assert run("ls", "-q").out == run("list", "-q").out == "good\n"
    assert run("rm", "good", "-y").code == 0


def test_no_install_of_a_kind_is_not_no_install_at_all(run: Run, store: Store) -> None:
    publish(store, "tiny")
    assert run("models", "list", "--kind", "image") == Result(0, "", "No model of kind image is installed.\n")


def test_an_install_that_cannot_be_used_can_be_removed(run: Run, store: Store) -> None:
    path = publish(store, "tiny").path
    (path / "receipt.json").write_text("{}")
    shown = run("models", "show", "tiny")
    assert shown.code == 1
    assert "hint: `turbospark models rm tiny` removes it." in shown.err
    assert run("models", "rm", "tiny").code == 2
    removed = run("models", "rm", "tiny", "-y")
    assert (removed.code, removed.out) == (0, "")
    assert "Removed tiny" in removed.err
    assert not path.exists()
    assert run("models", "rm", "tiny", "-y").code == 3
