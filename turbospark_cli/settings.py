"""Every setting of turbospark, and where its value came from.

A value is looked up in this order: flag, `TURBOSPARK_*` variable, `config.toml` in the home folder, default.
One frozen dataclass holds them; the metadata of its fields is the single source of each setting's help,
variable, flag, type and bounds. A dataclass and not a struct, since `turbospark --help` imports this file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from turbospark_cli import console
from turbospark_cli.errors import UsageError
from turbospark_cli.nearest import nearest
from turbospark_cli.setting_values import Parse, boolean, choice, hosts, integer, origins, path, seconds, text

CONFIG_NAME: Final = "config.toml"
SOURCE_DEFAULT: Final = "default"


def _about(
    name: str, parse: Parse, explanation: str, *, secret: bool = False, config: bool = True, also: str = ""
) -> dict[str, Any]:
    """The metadata of one field.

    `config` is false for what config.toml cannot hold; `also` is another tool's variable with this meaning.
    """
    return {
        "help": explanation,
        "env": f"TURBOSPARK_{name.upper()}",
        "flag": f"--{name.replace('_', '-')}",
        "parse": parse,
        "secret": secret,
        "config": config,
        "also": also,
    }


@dataclass(frozen=True, slots=True)
class Settings:
    """What turbospark was told; sizes are counts, times are seconds."""

    home: Path = field(
        default=Path("~/.turbospark"),
        metadata=_about("home", path, "Folder of installed models, caches and config.toml.", config=False),
    )
    port: int = field(
        default=8080,
        metadata=_about("port", integer(0, 65535), "TCP port to listen on; 0 takes a free one."),
    )
    bind: str = field(
        default="loopback",
        metadata=_about(
            "bind", text, "Where to listen: loopback (127.0.0.1 and ::1) or an address, which needs a key."
        ),
    )
    allowed_host: tuple[str, ...] = field(
        default=(), metadata=_about("allowed_host", hosts, "Further Host names that requests may carry.")
    )
    allowed_origin: tuple[str, ...] = field(
        default=(), metadata=_about("allowed_origin", origins, "Web origins that may call the server.")
    )
    api_key: str | None = field(
        default=None,
        metadata=_about(
            "api_key", text, "Key that clients must send; as a flag it shows in ps.", secret=True
        ),
    )
    api_key_file: Path | None = field(
        default=None, metadata=_about("api_key_file", path, "File that holds the key, readable by you only.")
    )
    max_queue_depth: int = field(
        default=64,
        metadata=_about("max_queue_depth", integer(0), "Requests that may wait; one more gets a 429."),
    )
    queue_timeout: float = field(
        default=120.0,
        metadata=_about("queue_timeout", seconds, "Seconds that a request may wait before it gets a 503."),
    )
    max_batch: int = field(
        default=16,
        metadata=_about("max_batch", integer(1, 1024), "Sequences that one engine runs at a time."),
    )
    log_level: str = field(
        default="info",
        metadata=_about(
            "log_level", choice("debug", "info", "warning", "error"), "Least severe record to log."
        ),
    )
    log_format: str = field(
        default="text", metadata=_about("log_format", choice("text", "json"), "Shape of a log record.")
    )
    access_log: bool = field(
        default=False,
        metadata=_about("access_log", boolean, "Log a line for each request, without its content."),
    )
    offline: bool = field(
        default=False, metadata=_about("offline", boolean, "Never download anything.", also="HF_HUB_OFFLINE")
    )

    def key(self) -> bytes | None:
        """The key that clients must send, from `api_key` or the first line of `api_key_file`.

        Raises UsageError when the file cannot be read or holds no key.
        """
        if self.api_key is not None:
            return self.api_key.strip().encode()
        return None if self.api_key_file is None else _read_key(self.api_key_file)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, and for each field the place its value came from, in words."""

    settings: Settings
    sources: dict[str, str]


def metadata(name: str) -> Mapping[str, Any]:
    """`help`, `env`, `flag`, `parse`, `secret`, `config` and `also` of the setting called `name`."""
    return _METADATA[name]


_METADATA: Final = {each.name: each.metadata for each in fields(Settings)}


def load(**flags: object) -> Resolved:
    """Resolve every setting; a flag that is None (or an empty list) was not given.

    Raises UsageError that names the setting and the place of a value that cannot be used.
    """
    unknown = flags.keys() - _METADATA.keys()
    if unknown:
        raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
    home_place, home = _find("home", flags, {}, "")
    folder = Path("~/.turbospark").expanduser() if home is None else cast("Path", home)
    values: dict[str, Any] = {"home": folder}
    sources = {"home": home_place}
    file = folder / CONFIG_NAME
    config = _read_config(file)
    for name in list(_METADATA)[1:]:
        sources[name], value = _find(name, flags, config, str(file))
        if sources[name] != SOURCE_DEFAULT:
            values[name] = value
    _choose_key(values, sources)
    if sources["api_key"] == _METADATA["api_key"]["flag"]:
        console.warn("--api-key shows in the process list; --api-key-file and TURBOSPARK_API_KEY do not.")
    return Resolved(Settings(**values), sources)


def _find(
    name: str, flags: Mapping[str, object], config: Mapping[str, object], file: str
) -> tuple[str, object]:
    """The place and the parsed value of one setting."""
    facts = _METADATA[name]
    flag = flags.get(name)
    # An empty variable counts as unset.
    variable = next((each for each in (facts["env"], facts["also"]) if os.environ.get(each)), None)
    if flag is not None and flag not in ([], ()):
        place, raw = facts["flag"], flag
    elif variable:
        place, raw = variable, os.environ[variable]
    elif name in config:
        place, raw = file, config[name]
    else:
        return SOURCE_DEFAULT, None
    try:
        return place, facts["parse"](raw)
    except ValueError as error:
        shown = "" if facts["secret"] else f", not {raw!r}"
        raise UsageError(f"{name} must be {error}{shown} (from {place}).") from None


def _choose_key(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Keep the key from the stronger place; a key and a key file from one place are a mistake."""
    both = ("api_key", "api_key_file")
    if any(sources[name] == SOURCE_DEFAULT for name in both):
        return
    ranks = {name: _rank(name, sources[name]) for name in both}
    if ranks["api_key"] == ranks["api_key_file"]:
        places = " and ".join(dict.fromkeys(sources[name] for name in both))
        raise UsageError(f"Both a key and a key file are given (from {places}).", hint="Give one of them.")
    weaker = max(both, key=lambda name: ranks[name])
    del values[weaker]
    sources[weaker] = SOURCE_DEFAULT


def _rank(name: str, place: str) -> int:
    facts = _METADATA[name]
    return [facts["flag"], facts["env"]].index(place) if place in (facts["flag"], facts["env"]) else 2


def _read_config(file: Path) -> Mapping[str, object]:
    try:
        raw = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from None
    import tomllib

    try:
        config = tomllib.loads(raw)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not valid TOML: {error}.") from None
    if "api_key" in config:
        _warn_if_open(file)
    known = [name for name, facts in _METADATA.items() if facts["config"]]
    for name in config:
        if name not in known:
            raise _unknown_key(name, known, file)
    return config


def _unknown_key(name: str, known: list[str], file: Path) -> UsageError:
    if name in _METADATA:
        return UsageError(f"{name} cannot be set in {file}.", hint=f"Set {_METADATA[name]['env']} instead.")
    return UsageError(
        f"{file} has an unknown key: {name}.", hint=f"Nearest: {', '.join(nearest(name, known))}."
    )


def _read_key(file: Path) -> bytes:
    """The first line of `file`; warns when others may read the file."""
    try:
        with file.open("rb") as stream:
            key = stream.readline(4096).strip()
        _warn_if_open(file)
    except OSError as error:
        raise UsageError(f"The key file {file} cannot be read: {error.strerror}.") from None
    if not key:
        raise UsageError(f"The key file {file} is empty.", hint="Put the key on its first line.")
    return key


def _warn_if_open(file: Path) -> None:
    if file.stat().st_mode & 0o077:
        console.warn(f"other users can read {file}, which holds a key; run: chmod 600 {file}")
