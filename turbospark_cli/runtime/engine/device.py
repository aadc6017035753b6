"""Device policy: Metal, CUDA or CPU; which BLAS computes and how prompts are cut.

On Linux the CPU build of MLX links a reference BLAS (a few GFLOP/s). A real BLAS that is loaded with global
symbols *before* `mlx.core` is imported replaces it, so `load_blas` must run first in every process that
computes. Order: MKL (extra `cpu`), a system OpenBLAS, the built-in one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

DeviceKind = Literal["metal", "cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class Device:
    """How this process computes.

    `prefill_chunk` is the number of prompt tokens read in one go: the longest that running streams wait
    for somebody else's prompt. `full_sort` says that sorting a whole vocabulary is cheap here.
    """

    kind: DeviceKind
    detail: str  # one phrase for the banner
    prefill_chunk: int

    @property
    def full_sort(self) -> bool:
        return self.kind != "cpu"


def load_blas() -> str:
    """Load the best BLAS this machine has into the process and name it. Call before importing MLX."""
    if platform.system() != "Linux":
        return "Accelerate"
    blas = _load_best()
    # PERF: numpy's own BLAS does small products only, where its threads wait longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return blas


def _load_best() -> str:
    # PERF: MKL's TBB threads share out work as cores come free. Its OpenMP threads wait for each other at
    # every product, which is several times slower than one thread once anything else wants a core.
    for path in _installed("tbb", "libtbb.so"):
        if _load(path):
            os.environ.setdefault("MKL_THREADING_LAYER", "TBB")
    for path in _installed("mkl", "libmkl_rt.so"):
        if _load(path):
            return "MKL"
    openblas = ctypes.util.find_library("openblas")
    if openblas and _load(openblas):
        return "OpenBLAS"
    return "built-in BLAS, which is slow: install the extra `cpu`"


def _installed(package: str, name: str) -> Iterator[str]:
    """Paths of an installed package's library."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return
    yield from (str(file.locate()) for file in files if file.name.startswith(name))


def _load(path: str) -> bool:
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def select(blas: str) -> Device:
    """The device MLX computes on by default, set up for our use of it."""
    import mlx.core as mx

    if mx.metal.is_available():
        return Device("metal", "Metal", prefill_chunk=512)
    if hasattr(mx, "cuda") and mx.cuda.is_available():
        return Device("cuda", "CUDA", prefill_chunk=512)
    # SAFETY: on a CPU MLX compiles kernels with the system's C++ compiler and loads them from a path in the
    # shared temporary folder that anybody can guess. They gain a few percent and cost seconds at the start.
    mx.disable_compile()
    return Device("cpu", f"CPU, {blas}", prefill_chunk=128)


def available_memory() -> int:
    """Bytes that can be taken without swapping; the size of memory where the system does not say more."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
