from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from turbospark_cli.models import staging

_HOLD = """
import sys
from pathlib import Path
from turbospark_cli.models import staging
with staging.folder(Path(sys.argv[1]), "other") as path:
    print(path, flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_empty_and_goes_with_all_it_holds(tmp_path: Path) -> None:
    with staging.folder(tmp_path / "area", "tiny") as path:
        (path / "deep").mkdir()
        (path / "deep" / "file").write_text("x")
    assert not path.exists()


def test_a_living_owner_keeps_its_folder_and_a_killed_one_loses_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        held = Path(owner.stdout.readline().strip())
        with staging.folder(tmp_path, "tiny"):
            assert held.is_dir()
        owner.kill()
        owner.wait()
        assert held.is_dir()
        with staging.folder(tmp_path, "tiny"):
            assert not held.exists()


def test_who_waits_for_a_lock_is_told(tmp_path: Path) -> None:
    told = threading.Event()
    held = threading.Event()

    def second() -> None:
        with staging.lock(tmp_path / "lock", told.set):
            held.set()

    with staging.lock(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert told.wait(timeout=60)
        assert not held.is_set()
    thread.join(timeout=60)
    assert held.is_set()


def test_a_folder_without_an_owner_file_is_a_leftover(tmp_path: Path) -> None:
    (tmp_path / "tiny.abc").mkdir()
    with staging.folder(tmp_path, "tiny"):
        assert not (tmp_path / "tiny.abc").exists()


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    area = tmp_path / "area"
    area.mkdir()
    (area / "tiny.abc").symlink_to(outside)
    with staging.folder(area, "tiny"):
        assert (outside / "precious").exists()
