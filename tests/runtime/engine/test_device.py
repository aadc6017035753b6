"""Which device and which BLAS, by what the machine has."""

from __future__ import annotations

import ctypes.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from turbospark_cli.runtime.engine import device


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that were loaded, all of which can be; none is really."""
    names: list[str] = []

    def load(path: str) -> bool:
        names.append(path)
        return True

    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(device, "_load", load)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: f"lib{name}.so.0")
    monkeypatch.delenv("MKL_THREADING_LAYER", raising=False)
    return names


def _packages(monkeypatch: pytest.MonkeyPatch, *there: str) -> None:
    def installed(package: str, name: str) -> list[str]:
        return [f"/packages/{package}/{name}"] if package in there else []

    monkeypatch.setattr(device, "_installed", installed)


def test_mkl_first_on_tbb_threads(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _packages(monkeypatch, "tbb", "mkl")
    assert device.load_blas() == "MKL"
    assert loaded == ["/packages/tbb/libtbb.so", "/packages/mkl/libmkl_rt.so"]
    assert os.environ["MKL_THREADING_LAYER"] == "TBB"


def test_a_users_choice_of_threads_stands(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_THREADING_LAYER", "SEQUENTIAL")
    _packages(monkeypatch, "tbb", "mkl")
    device.load_blas()
    assert os.environ["MKL_THREADING_LAYER"] == "SEQUENTIAL"


def test_then_the_systems_openblas(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _packages(monkeypatch)
    assert device.load_blas() == "OpenBLAS"
    assert loaded == ["libopenblas.so.0"]
    assert "MKL_THREADING_LAYER" not in os.environ


def test_then_the_one_that_mlx_brings(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _packages(monkeypatch, "mkl")
    monkeypatch.setattr(device, "_load", lambda _: False)
    assert "built-in" in device.load_blas()
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    assert "built-in" in device.load_blas()


def test_a_mac_needs_none(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert device.load_blas() == "Accelerate"
    assert loaded == []


def test_a_library_that_cannot_be_loaded_is_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(b"not a library")
    assert not device._load(str(broken))
    assert not device._load(str(tmp_path / "none.so"))
    assert list(device._installed("no-such-package-of-ours", "lib.so")) == []
    assert all(Path(path).name.startswith("core") for path in device._installed("mlx", "core"))


@pytest.mark.parametrize(
    ("metal", "cuda", "kind", "chunk", "full_sort"),
    [
        (True, False, "metal", 512, True),
        (True, True, "metal", 512, True),
        (False, True, "cuda", 512, True),
        (False, False, "cpu", 128, False),
    ],
)
def test_the_device_mlx_has(
    metal: bool, cuda: bool, kind: str, chunk: int, full_sort: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cuda:
        is_available = staticmethod(lambda: cuda)

    disabled: list[bool] = []
    monkeypatch.setattr(mx.metal, "is_available", lambda: metal)
    monkeypatch.setattr(mx, "cuda", Cuda, raising=False)
    monkeypatch.setattr(mx, "disable_compile", lambda: disabled.append(True))
    found = device.select("MKL")
    assert (found.kind, found.prefill_chunk, found.full_sort) == (kind, chunk, full_sort)
    assert ("MKL" in found.detail) == (kind == "cpu")
    assert bool(disabled) == (kind == "cpu")


def test_a_build_of_mlx_without_cuda_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: False)
    monkeypatch.delattr(mx, "cuda", raising=False)
    assert device.select("OpenBLAS").detail == "CPU, OpenBLAS"


def test_available_memory_is_some_of_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < device.available_memory() <= total

    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "open", refuse)
    assert device.available_memory() == total


def test_the_real_order_of_loading_is_blas_before_mlx() -> None:
    """In a process of its own, as an engine does: the library named is the one that is mapped."""
    script = (
        "import sys\n"
        "from turbospark_cli.runtime.engine import device\n"
        "assert 'mlx.core' not in sys.modules\n"
        "name = device.load_blas()\n"
        "assert 'mlx.core' not in sys.modules\n"
        "import mlx.core as mx\n"
        "mx.eval(mx.ones((64, 64)) @ mx.ones((64, 64)))\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        "print(name, 'libmkl_rt' in maps, 'libopenblas' in maps)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    name = done.stdout.split()[0]
    assert name in {"MKL", "OpenBLAS", "Accelerate", "built-in"}
    if name == "MKL":
        assert done.stdout.split()[1] == "True"
    if name == "OpenBLAS":
        assert done.stdout.split()[2] == "True"
