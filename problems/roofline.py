"""Speed-of-light floors: the least time that a problem's bytes and arithmetic need on a device."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from problems.anatomy import Anatomy

TERA = 1e12
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a device can do at most."""

    name: str
    bytes_per_s: float
    """Main memory bandwidth [B/s]."""
    flop_per_s: dict[str, float]
    """Dense arithmetic rate by precision, for matrix products; `fp32` is the plain vector rate [FLOP/s]."""


def _gpu(name: str, gb_per_s: float, fp32: float, tf32: float, half: float) -> Peaks:
    """Peaks from a data sheet's own units: GB/s and dense TFLOP/s."""
    rates = {"fp32": fp32, "tf32": tf32, "fp16": half, "bf16": half}
    return Peaks(name, gb_per_s * GIGA, {precision: rate * TERA for precision, rate in rates.items()})


# Dense rates: half of what the vendor prints "with sparsity". Order matters to find_peaks: the first
# entry whose words all occur in the device's name is taken.
PEAKS: dict[str, Peaks] = {
    # NVIDIA HGX B200 data sheet, one eighth of the eight-GPU board.
    "B200": _gpu("B200", 8000, 75, 1125, 2250),
    # NVIDIA H200 data sheet, SXM column.
    "H200": _gpu("H200", 4800, 67, 494.5, 989.5),
    # NVIDIA H100 data sheet, NVL column; then the PCIe column of its 2022 edition.
    "H100 NVL": _gpu("H100 NVL", 3900, 60, 417.5, 835.5),
    "H100 PCIe": _gpu("H100 PCIe", 2000, 51, 378, 756),
    # NVIDIA H100 data sheet, SXM column.
    "H100": _gpu("H100", 3350, 67, 494.5, 989.5),
    # NVIDIA A100 data sheet: 80 GB PCIe, 80 GB SXM, then the 40 GB parts.
    "A100 PCIe 80GB": _gpu("A100 PCIe 80GB", 1935, 19.5, 156, 312),
    "A100 80GB": _gpu("A100 80GB", 2039, 19.5, 156, 312),
    "A100": _gpu("A100", 1555, 19.5, 156, 312),
    # NVIDIA L40S data sheet.
    "L40S": _gpu("L40S", 864, 91.6, 183, 362),
    # NVIDIA L4 data sheet.
    "L4": _gpu("L4", 300, 30.3, 60, 121),
    # NVIDIA A10 data sheet for memory; A10G (an AWS part) has 35 TFLOP/s of tensor TF32, 70 of FP16.
    "A10G": _gpu("A10G", 600, 31.5, 35, 70),
    "A10": _gpu("A10", 600, 31.2, 62.5, 125),
    # NVIDIA Ada architecture white paper, GeForce RTX 4090, FP32 accumulation.
    "RTX 4090": _gpu("RTX 4090", 1008, 82.6, 82.6, 165.2),
    # NVIDIA T4 data sheet; no TF32 and no BF16 units, so their rates are FP32's.
    "T4": Peaks("T4", 320e9, {"fp32": 8.1e12, "tf32": 8.1e12, "fp16": 65e12, "bf16": 8.1e12}),
    # AMD Instinct MI300X data sheet; FP32 is the vector rate.
    "MI300X": _gpu("MI300X", 5300, 163.4, 653.7, 1307.4),
}


def find_peaks(device_name: str) -> Peaks | None:
    """The table's entry for a device as its driver names it (`NVIDIA H100 80GB HBM3`), or None."""
    for key, peaks in PEAKS.items():
        tokens = device_name.lower().replace("-", " ").split()
        if all(word in tokens for word in key.lower().split()):
            return peaks
    return None


def floor_ms(anatomy: Anatomy, device_peaks: Peaks, precision: str = "fp32") -> float:
    """The least time on a device [ms]: the larger of the memory and the arithmetic floor.

    The roofline model of Williams, Waterman and Patterson (CACM 52(4), 2009), with compulsory traffic
    only. The memory floor holds for every program that reads its inputs and writes its output from and
    to main memory (data that stays in a cache can beat it). The arithmetic floor holds for the
    algorithm that was traced: algebra (a sum over a product), Winograd or FFT convolution, or fp32
    emulated on tensor cores can honestly beat it. A time below the floor is a reason to look, not a proof.
    """
    return max(memory_ms(anatomy, device_peaks), arithmetic_ms(anatomy, device_peaks, precision))


def memory_ms(anatomy: Anatomy, device_peaks: Peaks) -> float:
    """Time to move the compulsory bytes at peak bandwidth [ms]."""
    return 1e3 * anatomy.bytes_moved / device_peaks.bytes_per_s


def arithmetic_ms(anatomy: Anatomy, device_peaks: Peaks, precision: str = "fp32") -> float:
    """Time for products at the precision's rate or the rest at the fp32 rate, which may overlap [ms]."""
    vector = device_peaks.flop_per_s["fp32"]
    product = device_peaks.flop_per_s.get(precision, vector)
    return 1e3 * max(anatomy.matmul_flop / product, anatomy.pointwise_ops / vector)


def measure_cpu(nbytes: int = 64 << 20, size: int = 1024, repeats: int = 3) -> Peaks:
    """Peaks of this CPU from a copy of `nbytes` and an fp32 product of `size` x `size` matrices.

    Best of `repeats`, about 0.2 s in all on two cores. On a busy machine the figures come out low.
    Imports torch: call it in a child process.
    """
    import torch

    source, target = torch.ones(nbytes // 4), torch.empty(nbytes // 4)
    left, right, product = torch.ones(size, size), torch.ones(size, size), torch.empty(size, size)
    copy_s, matmul_s = [], []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        target.copy_(source)
        copied = time.perf_counter()
        torch.mm(left, right, out=product)
        matmul_s.append(time.perf_counter() - copied)
        copy_s.append(copied - started)
    return Peaks("cpu", 2 * nbytes / min(copy_s), {"fp32": 2 * size**3 / min(matmul_s)})
