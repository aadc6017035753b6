from __future__ import annotations

import hashlib
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from tests.models.conftest import use_index
from tests.models.package_index import Index
from turbospark_cli.errors import DownloadFailed
from turbospark_cli.models import index as package_index
from turbospark_cli.models.catalog import Row, Wheel


@pytest.fixture
def wheel(tiny_row: Row) -> Wheel:
    return tiny_row.source.wheels[0]


def test_a_pinned_wheel_arrives_with_progress(index: Index, wheel: Wheel, tmp_path: Path) -> None:
    seen: list[int] = []
    path = package_index.download(wheel, tmp_path, seen.append)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == wheel.sha256
    assert seen[-1] == wheel.size


def test_pip_leaves_its_temporary_files_in_the_work_folder(
    index: Index, wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    work = tmp_path / "work"
    work.mkdir()
    package_index.download(wheel, work, lambda done: None)
    assert list(elsewhere.iterdir()) == []


def test_a_wrong_hash_is_refused(index: Index, wheel: Wheel, tmp_path: Path) -> None:
    index.wheel = index.wheel[:-1] + b"X"
    with pytest.raises(DownloadFailed, match="SHA-256 is not the pinned one"):
        package_index.download(wheel, tmp_path, lambda done: None)


def test_a_file_that_pip_let_through_is_checked_once_more(
    wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lax = tmp_path / "lax-pip"
    lax.write_text(
        "#!/bin/sh\n"
        f'while [ "$1" != "--dest" ]; do shift; done; mkdir -p "$2"; echo other > "$2/{wheel.file}"\n'
    )
    lax.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(lax))
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(DownloadFailed, match="SHA-256 is not the pinned one"):
        package_index.download(wheel, work, lambda done: None)


def test_a_version_that_the_index_lacks(index: Index, wheel: Wheel, tmp_path: Path) -> None:
    absent = msgspec.structs.replace(wheel, version="9.9")
    with pytest.raises(DownloadFailed, match=r"has no tiny-model 9\.9\."):
        package_index.download(absent, tmp_path, lambda done: None)


def test_an_index_that_cannot_be_reached(
    wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    use_index(monkeypatch, f"http://127.0.0.1:{port}/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DownloadFailed, match="could not be reached") as caught:
        package_index.download(wheel, tmp_path, lambda done: None)
    assert "127.0.0.1" not in caught.value.message


def test_a_python_without_pip(wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c \"raise SystemExit('No module named pip')\"\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(DownloadFailed, match="no pip") as caught:
        package_index.download(wheel, work, lambda done: None)
    assert "ensurepip" in (caught.value.hint or "")


def test_the_users_quiet_pip_still_reports_progress(
    index: Index, wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_QUIET", "3")
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    seen: list[int] = []
    package_index.download(wheel, tmp_path, seen.append)
    assert seen


def test_leaving_the_call_ends_pip(index: Index, wheel: Wheel, tmp_path: Path) -> None:
    index.half_only = True

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        package_index.download(wheel, tmp_path, interrupt)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("option --progress-bar: invalid choice: 'raw' (choose from off, on)", "too old"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "disk became full"),
        ("Could not fetch URL x: There was a problem confirming the ssl certificate", "could not be reached"),
        ("ERROR: No matching distribution found (from versions: none)", "has no tiny-model 1.0"),
        ("ERROR: HTTP error 401 for https://user:secret@host/x", "HTTP error 401 for the index$"),
        ("", "gave no reason"),
    ],
)
def test_what_pip_says_becomes_one_sentence(
    wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, message: str
) -> None:
    failing = tmp_path / "python"
    failing.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(failing))
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(DownloadFailed, match=message) as caught:
        package_index.download(wheel, work, lambda done: None)
    assert "secret" not in caught.value.message
    assert "\n" not in caught.value.message
