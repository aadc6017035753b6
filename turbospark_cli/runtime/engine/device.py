"""Device policy: Metal, CUDA or CPU; what dtype the weights take, which BLAS, how many threads.

On Linux the CPU build of MLX links a reference BLAS (a few GFLOP/s). A real BLAS that is loaded with global
symbols *before* `mlx.core` is imported replaces it, so `load_blas` must run first in every process that
computes. Order: MKL (extra `cpu`), a system OpenBLAS, the built-in one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

DeviceKind = Literal["metal", "cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class Blas:
    """The matrix library this process computes with; `set_threads` is None when it cannot be told."""

    name: str
    set_threads: Callable[[int], object] | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """How this process computes.

    `prefill_chunk` is the number of prompt tokens read in one go: the longest that running streams wait
    for somebody else's prompt. `full_sort` says that sorting a whole vocabulary is cheap here.
    """

    kind: DeviceKind
    blas: Blas
    threads: int
    prefill_chunk: int

    @property
    def full_sort(self) -> bool:
        return self.kind != "cpu"

    @property
    def detail(self) -> str:
        """One phrase for the banner."""
        if self.kind != "cpu":
            return self.kind.capitalize() if self.kind == "metal" else "CUDA"
        return f"CPU, {self.blas.name}, {self.threads} thread{'s' if self.threads != 1 else ''}"


def load_blas() -> Blas:
    """Load the best BLAS this machine has into the process. Call before importing MLX."""
    if platform.system() != "Linux":
        return Blas("Accelerate")
    for name, path, symbol in _candidates():
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return Blas(name, getattr(library, symbol, None))
    return Blas("built-in BLAS (slow; install the extra `cpu`)")


def _candidates() -> list[tuple[str, str, str]]:
    """(name, library, thread setter) in order of preference."""
    found: list[tuple[str, str, str]] = []
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        files = []
    found.extend(
        ("MKL", str(file.locate()), "MKL_Set_Num_Threads") for file in files if "libmkl_rt" in file.name
    )
    openblas = ctypes.util.find_library("openblas")
    if openblas:
        found.append(("OpenBLAS", openblas, "openblas_set_num_threads"))
    return found


def select(blas: Blas, threads: int | None) -> Device:
    """The device MLX will use by default, set up. `threads` None lets a short measurement decide."""
    import mlx.core as mx

    if mx.metal.is_available():
        return Device("metal", blas, 0, prefill_chunk=512)
    if hasattr(mx, "cuda") and mx.cuda.is_available():
        return Device("cuda", blas, 0, prefill_chunk=512)
    return Device("cpu", blas, _set_threads(blas, threads), prefill_chunk=128)


def _set_threads(blas: Blas, wanted: int | None) -> int:
    """Set the BLAS threads; with no wish take every core, unless one alone is faster at this moment.

    Threads that wait for a core somebody else holds make a matrix product slower than one thread would.
    """
    if blas.set_threads is None:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(wanted, cores) if wanted else cores
    if not wanted and cores > 1:
        alone, together = (_product_seconds(blas.set_threads, n) for n in (1, cores))
        count = cores if together < alone else 1
    blas.set_threads(count)
    return count


def _product_seconds(set_threads: Callable[[int], object], threads: int) -> float:
    """Best of five times of a matrix-vector product of decode's kind: one row against 32 MB of weights."""
    import mlx.core as mx

    set_threads(threads)
    weights, row = mx.ones((8192, 1024)), mx.ones((1, 1024))
    mx.eval(weights, row)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        mx.eval(row @ weights.T)
        best = min(best, time.perf_counter() - start)
    return best


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
