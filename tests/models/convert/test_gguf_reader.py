"""Our reader agrees with the `gguf` package on good files and refuses every bad one with a sentence."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from tests.models import gguf_files
from turbospark_cli.errors import ConversionFailed
from turbospark_cli.models.convert import gguf_reader


def test_it_reads_what_the_package_reads(tiny_gguf: Path) -> None:
    ours, theirs = gguf_reader.read(tiny_gguf), GGUFReader(tiny_gguf)
    expected = {key: each.contents() for key, each in theirs.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata.values == expected
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.type is tensor.tensor_type
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert mine.data.tobytes() == tensor.data.tobytes()


def header(version: int = 3, tensors: int = 0, keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def tensor(name: bytes = b"t", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


BAD = {
    "empty": b"",
    "another format": b"PK\x03\x04" + bytes(100),
    "only a magic": b"GGUF",
    "version": header(version=1),
    "byte order": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "many tensors": header(tensors=2**63),
    "many keys": header(keys=2**63),
    "cut": header(keys=1),
    "long key": header(keys=1) + text(b"k", 2**62),
    "key not text": header(keys=1) + text(b"\xff\xfe") + struct.pack("<IB", 0, 1),
    "key type": header(keys=1) + text(b"k") + struct.pack("<I", 99),
    "long string": header(keys=1) + text(b"k") + struct.pack("<I", 8) + text(b"v", 2**40),
    "long array": header(keys=1) + text(b"k") + struct.pack("<IIQ", 9, 0, 2**62),
    "array beyond the end": header(keys=1) + text(b"k") + struct.pack("<IIQ", 9, 4, 1000),
    "array of arrays": header(keys=1) + text(b"k") + struct.pack("<IIQIQ", 9, 9, 1, 0, 0),
    "key twice": header(keys=2) + (text(b"k") + struct.pack("<IB", 0, 1)) * 2,
    "alignment": header(keys=1) + text(b"general.alignment") + struct.pack("<II", 4, 3),
    "alignment zero": header(keys=1) + text(b"general.alignment") + struct.pack("<II", 4, 0),
    "alignment text": header(keys=1) + text(b"general.alignment") + struct.pack("<I", 8) + text(b"x"),
    "no dimensions": header(tensors=1) + tensor(dims=()),
    "five dimensions": header(tensors=1) + tensor(dims=(1, 1, 1, 1, 1)) + bytes(99),
    "dimension zero": header(tensors=1) + tensor(dims=(0,)) + bytes(999),
    "dimension huge": header(tensors=1) + tensor(dims=(2**63,)) + bytes(999),
    "product overflows": header(tensors=1) + tensor(dims=(2**30,) * 4) + bytes(999),
    "type": header(tensors=1) + tensor(kind=12345) + bytes(999),
    "half a block": header(tensors=1) + tensor(dims=(33,), kind=2) + bytes(999),
    "data beyond the end": header(tensors=1) + tensor() + bytes(32),
    "offset huge": header(tensors=1) + tensor(offset=2**63) + bytes(999),
    "tensor twice": header(tensors=2) + tensor() * 2 + bytes(999),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ConversionFailed) as caught:
        gguf_reader.read(path)
    assert caught.value.message.endswith(".")


def test_every_cut_of_a_good_file_is_refused(tmp_path: Path, tiny_gguf: Path) -> None:
    whole = tiny_gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [*range(400), *range(400, len(whole) - 1, 997)]:
        path.write_bytes(whole[:size])
        with pytest.raises(ConversionFailed):
            gguf_reader.read(path)


def test_version_2_and_dense_files_are_read(tmp_path: Path) -> None:
    path = gguf_files.write(tmp_path / "f32.gguf", gguf_files.TinyModel(quant=GGMLQuantizationType.F32))
    data = bytearray(path.read_bytes())
    data[4] = 2
    path.write_bytes(data)
    norm = gguf_reader.read(path).tensors["output_norm.weight"]
    expected = gguf_files.tensors(gguf_files.TinyModel())["output_norm.weight"]
    assert np.array_equal(norm.data.reshape(-1).view("<f4"), expected)
