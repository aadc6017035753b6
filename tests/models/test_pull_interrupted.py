"""A pull that is killed leaves nothing that anybody sees, and the next one works and cleans up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.models import pull_driver
from tests.models.package_index import Index
from turbospark_cli.models import completion, receipt
from turbospark_cli.models.catalog import Row
from turbospark_cli.models.pull import pull, silent
from turbospark_cli.models.store import Store


def start(store: Store, row: Row, *moment: str) -> subprocess.Popen[str]:
    store.home.mkdir(exist_ok=True)
    file = store.home / "row.json"
    file.write_bytes(msgspec.json.encode(row))
    command = [sys.executable, "-m", "tests.models.pull_driver", str(store.home), str(file), *moment]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


def leftovers(store: Store) -> list[Path]:
    return [path for path in store.incoming.iterdir() if path.is_dir()]


@pytest.mark.parametrize("moment", [name for name in pull_driver.MOMENTS if name != "after publishing"])
def test_killed_before_the_end(store: Store, index: Index, only_tiny: Row, moment: str) -> None:
    index.half_only = moment == "downloading"
    with start(store, only_tiny, moment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        process.send_signal(signal.SIGKILL)
    assert store.list() == []
    assert store.broken() == {}
    assert completion.read_names(store.home) == []
    assert len(leftovers(store)) == 1

    index.half_only = False
    index.release.set()
    install = pull(store, only_tiny.alias, progress=silent)
    assert receipt.is_intact(install.path, install.receipt)
    assert leftovers(store) == []


def test_killed_after_publishing(store: Store, index: Index, only_tiny: Row) -> None:
    with start(store, only_tiny, "after publishing") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        process.kill()
    install = pull(store, only_tiny.alias, progress=silent)
    assert index.downloads == 1
    assert receipt.is_intact(install.path, install.receipt)


def test_ctrl_c_ends_the_children_and_leaves_no_folder(store: Store, index: Index, only_tiny: Row) -> None:
    index.half_only = True
    with start(store, only_tiny, "downloading") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        process.send_signal(signal.SIGINT)
    assert process.returncode != 0
    assert leftovers(store) == []
    assert store.list() == []


def test_two_pulls_at_once_download_once(store: Store, index: Index, only_tiny: Row) -> None:
    with start(store, only_tiny) as first, start(store, only_tiny) as second:
        outputs = [process.communicate()[0].strip() for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert outputs == [str(store.find("tiny").path)] * 2
    assert index.downloads == 1
    assert leftovers(store) == []
