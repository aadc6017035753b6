from __future__ import annotations

from pathlib import Path

import pytest

from turbospark_cli import settings as all_settings
from turbospark_cli.errors import DownloadFailed, ModelNotFound, UsageError
from turbospark_cli.models import catalog, pull, receipt, staging
from turbospark_cli.models.receipt import Receipt
from turbospark_cli.models.store import Install, Store
from turbospark_cli.runtime.channel import EngineInfo, Load
from turbospark_cli.runtime.runtime import ModelCard
from turbospark_cli.serve import startup
from turbospark_cli.serve.banner import MAX_LINES, banner
from turbospark_cli.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TURBOSPARK_HOME", str(tmp_path / "home"))
    return all_settings.load(offline=True).settings


def install(home: Path, alias: str, kind: str = "text") -> Install:
    store = Store(home)
    with staging.folder(store.incoming, alias) as work:
        draft = work / "install"
        draft.mkdir()
        (draft / "config.json").write_text("{}")
        facts = Receipt(
            schema_version=receipt.SCHEMA_VERSION,
            alias=alias,
            kind=kind,  # type: ignore[arg-type]
            family="tiny",
            title="Tiny",
            licence="MIT",
            capabilities=("chat",),
            context_length=64,
            parameters=10,
            quantization=None,
            source="package-index",
            origins=(),
            files=receipt.inventory(draft),
            tool_version="0",
            created="2026-01-01T00:00:00+00:00",
        )
        return store.publish(draft, facts)


def ids(settings: Settings, *names: str) -> list[str]:
    return [each.load.model_id for each in startup.choose(settings, names)]


def test_a_fresh_machine_gets_the_starter(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DownloadFailed):
        ids(settings)

    def fake_pull(store: Store, name: str, *, offline: bool) -> Install:
        return install(store.home, name)

    monkeypatch.setattr(startup, "pull", fake_pull)
    online = all_settings.load(offline=False).settings
    assert ids(online) == [catalog.STARTER]
    said = capsys.readouterr()
    assert f"{catalog.STARTER} is not installed; pulling it" in said.err
    assert said.out == ""
    assert ids(settings) == [catalog.STARTER]
    assert pull.pull is not fake_pull


def test_without_a_name_the_starter_is_meant(settings: Settings) -> None:
    install(settings.home, "another")
    install(settings.home, catalog.STARTER)
    assert ids(settings) == [catalog.STARTER]


def test_without_a_name_and_starter_one_sentence_says_what_to_pass(settings: Settings) -> None:
    install(settings.home, "another")
    with pytest.raises(UsageError) as caught:
        ids(settings)
    assert "turbospark serve another" in caught.value.message


def test_names_are_installs_or_folders(settings: Settings, tmp_path: Path) -> None:
    install(settings.home, "another")
    folder = tmp_path / "gemma4.gturbo"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert ids(settings, "another", str(folder), "another") == ["another", "gemma4"]
    (attachment,) = startup.choose(settings, ["another"])
    assert attachment.load == Load(
        kind="text",
        model_id="another",
        path=str(settings.home / "models" / "text" / "another.gturbo"),
        max_batch=settings.max_batch,
    )
    assert attachment.created > 0


def test_what_cannot_be_served_is_refused(settings: Settings, tmp_path: Path) -> None:
    install(settings.home, "voice", kind="tts")
    with pytest.raises(UsageError):
        ids(settings, "voice")
    with pytest.raises(ModelNotFound):
        ids(settings, "nothing-like-it")
    with pytest.raises(ModelNotFound):
        ids(settings, str(tmp_path / "no-such-folder"))


@pytest.mark.parametrize("count", [1, 3, 30])
def test_the_banner_stays_short(count: int) -> None:
    info = EngineInfo(8192, 100, "cpu", "float32, MKL, 2 threads")
    cards = [ModelCard(f"model-{i}", (), 1, "ready", None, info) for i in range(count)]
    lines = banner("http://127.0.0.1:8080", cards, needs_key=True, seconds=1.234)
    text = "\n".join(lines)
    assert len(lines) <= MAX_LINES
    for part in ("cpu, float32, MKL", "model-0", "http://127.0.0.1:8080/v1", "needed", "ready in 1.2 s"):
        assert part in text
