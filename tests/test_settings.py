"""Where each setting's value comes from, and which values are refused in whose name."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from turbospark_cli import settings
from turbospark_cli.errors import UsageError
from turbospark_cli.settings import Settings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no variable of the machine's."""
    for field in fields(Settings):
        for name in (field.metadata["env"], field.metadata["also"]):
            if name:
                monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TURBOSPARK_HOME", str(tmp_path))
    return tmp_path


def _config(home: Path, text: str) -> Path:
    file = home / "config.toml"
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_defaults_without_any_source(home: Path) -> None:
    resolved = settings.load()
    assert resolved.settings == Settings(home=home)
    assert resolved.sources["home"] == "TURBOSPARK_HOME"
    assert {source for name, source in resolved.sources.items() if name != "home"} == {"default"}


def test_the_default_home_is_in_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURBOSPARK_HOME")
    monkeypatch.setenv("HOME", "/nowhere")
    assert settings.load().settings.home == Path("/nowhere/.turbospark")


def test_flag_before_variable_before_file_before_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _config(home, "port = 1\nmax_batch = 1\nqueue_timeout = 1.5\n")
    monkeypatch.setenv("TURBOSPARK_PORT", "2")
    monkeypatch.setenv("TURBOSPARK_MAX_BATCH", "2")
    resolved = settings.load(port=3)
    chosen = resolved.settings
    assert (chosen.port, chosen.max_batch, chosen.queue_timeout, chosen.max_queue_depth) == (3, 2, 1.5, 64)
    names = ("port", "max_batch", "queue_timeout", "max_queue_depth")
    assert [resolved.sources[name] for name in names] == [
        "--port",
        "TURBOSPARK_MAX_BATCH",
        str(file),
        "default",
    ]


def test_every_setting_has_its_own_variable_flag_and_help() -> None:
    metadata = [settings.metadata(field.name) for field in fields(Settings)]
    assert len({facts["env"] for facts in metadata}) == len(metadata)
    assert len({facts["flag"] for facts in metadata}) == len(metadata)
    assert all(facts["help"].endswith(".") for facts in metadata)
    assert [field.name for field in fields(Settings) if field.metadata["secret"]] == ["api_key"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("queue_timeout", "2.5", 2.5),
        ("access_log", "yes", True),
        ("access_log", "OFF", False),
        ("allowed_host", "a.example, b.example,", ("a.example", "b.example")),
        ("log_format", "json", "json"),
        ("api_key_file", "~/key", Path("/nowhere/key")),
    ],
)
def test_text_of_a_variable(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv(settings.metadata(name)["env"], text)
    assert getattr(settings.load().settings, name) == value


def test_an_empty_variable_or_list_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBOSPARK_PORT", "")
    resolved = settings.load(allowed_host=[], port=None)
    assert (resolved.settings.port, resolved.settings.allowed_host) == (8080, ())
    assert resolved.sources["allowed_host"] == "default"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "65536"),
        ("port", "http"),
        ("port", "8080.0"),
        ("max_batch", "0"),
        ("queue_timeout", "-1"),
        ("queue_timeout", "inf"),
        ("queue_timeout", "nan"),
        ("access_log", "perhaps"),
        ("log_level", "loud"),
        ("bind", "   "),
    ],
)
def test_a_bad_value_names_its_setting_and_its_source(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    variable = settings.metadata(name)["env"]
    monkeypatch.setenv(variable, text)
    with pytest.raises(UsageError) as caught:
        settings.load()
    assert name in caught.value.message
    assert variable in caught.value.message
    assert repr(text) in caught.value.message


@pytest.mark.parametrize("line", ['port = "x"', "port = true", "access_log = 1", "allowed_host = [1]"])
def test_a_bad_type_in_the_file_names_the_file(home: Path, line: str) -> None:
    file = _config(home, line)
    with pytest.raises(UsageError) as caught:
        settings.load()
    assert line.split(maxsplit=1)[0] in caught.value.message
    assert str(file) in caught.value.message


def test_an_unknown_key_of_the_file_names_the_nearest(home: Path) -> None:
    _config(home, "max_queue_dept = 3")
    with pytest.raises(UsageError) as caught:
        settings.load()
    assert "max_queue_dept" in caught.value.message
    assert "max_queue_depth" in (caught.value.hint or "")


def test_home_cannot_be_set_in_the_file_that_lies_in_it(home: Path) -> None:
    _config(home, 'home = "/elsewhere"')
    with pytest.raises(UsageError, match="home cannot be set"):
        settings.load()


@pytest.mark.parametrize("content", [b"port = ", b"\xff = 1"])
def test_a_file_that_is_not_toml(home: Path, content: bytes) -> None:
    (home / "config.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"config\.toml"):
        settings.load()


def test_an_unknown_flag_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="colour"):
        settings.load(colour="red")


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        settings.load().settings.port = 1  # type: ignore[misc]


def test_another_tools_variable_for_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert settings.load().sources["offline"] == "HF_HUB_OFFLINE"
    monkeypatch.setenv("TURBOSPARK_OFFLINE", "0")
    assert not settings.load().settings.offline


def _key_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    file = folder / "key"
    file.write_bytes(content)
    file.chmod(mode)
    return file


def test_no_key() -> None:
    assert settings.load().settings.key() is None


def test_the_key_is_the_first_line_of_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _key_file(tmp_path, b"  secret \nrest\n")
    assert settings.load(api_key_file=file).settings.key() == b"secret"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_file_that_others_can_read_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    file = _key_file(tmp_path, b"secret", mode)
    assert settings.load(api_key_file=file).settings.key() == b"secret"
    said = capsys.readouterr().err
    assert f"chmod 600 {file}" in said
    assert "secret" not in said.replace(str(file), "")


@pytest.mark.parametrize("content", [b"", b"\n", b"  \nsecond line"])
def test_an_empty_key_file_is_refused(tmp_path: Path, content: bytes) -> None:
    chosen = settings.load(api_key_file=_key_file(tmp_path, content)).settings
    with pytest.raises(UsageError, match="is empty"):
        chosen.key()


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    chosen = settings.load(api_key_file=tmp_path / "none").settings
    with pytest.raises(UsageError, match="cannot be read"):
        chosen.key()


def test_a_key_as_a_flag_warns_and_one_in_the_environment_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert settings.load(api_key="hidden-word").settings.key() == b"hidden-word"
    said = capsys.readouterr().err
    assert said.startswith("warning:")
    assert "hidden-word" not in said
    monkeypatch.setenv("TURBOSPARK_API_KEY", "hidden-word")
    assert settings.load().settings.key() == b"hidden-word"
    assert capsys.readouterr().err == ""


def test_an_empty_key_is_refused_without_being_shown() -> None:
    with pytest.raises(UsageError) as caught:
        settings.load(api_key="   ")
    assert "'   '" not in caught.value.message


def test_the_stronger_place_decides_between_key_and_key_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURBOSPARK_API_KEY", "from-the-environment")
    resolved = settings.load(api_key_file=_key_file(tmp_path, b"from-the-file"))
    assert resolved.settings.key() == b"from-the-file"
    assert (resolved.settings.api_key, resolved.sources["api_key"]) == (None, "default")


def test_both_keys_from_one_place_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Both a key and a key file"):
        settings.load(api_key="a", api_key_file=tmp_path / "key")


def test_a_key_in_a_config_that_others_can_read_is_warned_of(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _config(home, 'api_key = "hidden-word"')
    settings.load()
    assert capsys.readouterr().err == ""
    file.chmod(0o644)
    settings.load()
    assert f"chmod 600 {file}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "host", ["a b", "http://a.example", "a.example/", "a.example:x", "*", "user@a.example"]
)
def test_what_no_host_header_can_say_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="allowed_host must be a list of host names"):
        settings.load(allowed_host=[host])


@pytest.mark.parametrize(
    "host", ["a.example", "a.example:443", "192.168.1.20", "[fd7a::1]:8080", "my_mac.local"]
)
def test_host_names(host: str) -> None:
    assert settings.load(allowed_host=[host]).settings.allowed_host == (host,)


@pytest.mark.parametrize("origin", ["a.example", "https://a.example/chat", "https://", "http://a b"])
def test_what_no_browser_sends_as_origin_is_refused(origin: str) -> None:
    with pytest.raises(UsageError, match="allowed_origin must be a list of origins"):
        settings.load(allowed_origin=[origin])


@pytest.mark.parametrize(
    "origin", ["https://a.example", "https://a.example/", "app://obsidian.md", "null", "*"]
)
def test_origins(origin: str) -> None:
    assert settings.load(allowed_origin=[origin]).settings.allowed_origin == (origin,)
