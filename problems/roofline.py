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
    source: str = ""
    """Where the figures are printed; empty: measured on this machine."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a problem must move and compute at least: the part of an Anatomy that a roofline needs."""

    bytes_moved: int
    """Compulsory traffic [B]."""
    matmul_flop: int
    """Matrix products, convolutions, attention [FLOP]."""
    pointwise_ops: int
    """All other arithmetic [FLOP]."""

    @property
    def flop(self) -> int:
        return self.matmul_flop + self.pointwise_ops


@dataclass(frozen=True, slots=True)
class Reached:
    """How near to a device's limits one kernel came."""

    bytes_per_s: float
    """Compulsory bytes over the kernel's time [B/s]; what it moved more than that is not counted."""
    flop_per_s: float
    """The traced algorithm's arithmetic over the kernel's time [FLOP/s]."""
    floor_ms: float | None = None
    """Least time on the device; None for a device that is not in PEAKS."""
    fraction: float | None = None
    """floor_ms over the kernel's time: 1 is the speed of light."""


NVIDIA = "https://www.nvidia.com/en-us/data-center/"
A100_SHEET = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)


def _gpu(name: str, gb_per_s: float, rates: tuple[float, float, float], source: str) -> Peaks:
    """Peaks from a data sheet's own units: GB/s and dense TFLOP/s in fp32, tf32 and fp16 or bf16."""
    fp32, tf32, half = (rate * TERA for rate in rates)
    return Peaks(name, gb_per_s * GIGA, {"fp32": fp32, "tf32": tf32, "fp16": half, "bf16": half}, source)


# Dense rates: half of what the vendor prints "with sparsity". Order matters to find_peaks: the first
# entry whose words all occur in the device's name is taken. Where editions of a sheet differ, the larger
# figure stands: a floor that is too low misses a suspicious time, one that is too high accuses an honest kernel.
PEAKS: dict[str, Peaks] = {
    # One eighth of the eight-GPU HGX board; its memory is printed as 62 to 64 TB/s.
    "B200": _gpu("B200", 8000, (75, 1125, 2250), NVIDIA + "hgx/"),
    "H200 NVL": _gpu("H200 NVL", 4800, (60, 417.5, 835.5), NVIDIA + "h200/"),
    "H200": _gpu("H200", 4800, (67, 494.5, 989.5), NVIDIA + "h200/"),
    "H100 NVL": _gpu("H100 NVL", 3900, (60, 417.5, 835.5), NVIDIA + "h100/"),
    # The 2022 edition of the H100 data sheet; later ones leave the PCIe card out.
    "H100 PCIe": _gpu("H100 PCIe", 2000, (51, 378, 756), "NVIDIA H100 Tensor Core GPU data sheet, 2022, PCIe column"),
    "H100": _gpu("H100", 3350, (67, 494.5, 989.5), NVIDIA + "h100/"),
    "A100 PCIe 80GB": _gpu("A100 PCIe 80GB", 1935, (19.5, 156, 312), A100_SHEET),
    "A100 80GB": _gpu("A100 80GB", 2039, (19.5, 156, 312), A100_SHEET),
    # The 40 GB parts, SXM and PCIe alike.
    "A100": _gpu("A100", 1555, (19.5, 156, 312), "NVIDIA A100 Tensor Core GPU architecture white paper"),
    "L40S": _gpu("L40S", 864, (91.6, 183, 362), NVIDIA + "l40s/"),
    "L4": _gpu("L4", 300, (30.3, 60, 121), NVIDIA + "l4/"),
    "A10G": _gpu("A10G", 600, (31.5, 35, 70), "a part that AWS alone has (g5 instances); no public data sheet"),
    "A10": _gpu("A10", 600, (31.2, 62.5, 125), NVIDIA + "products/a10-gpu/"),
    # With FP32 accumulation; FP16 accumulation reaches twice the half-precision rate.
    "RTX 4090": _gpu(
        "RTX 4090", 1008, (82.6, 82.6, 165.2), "NVIDIA Ada GPU architecture white paper, GeForce RTX 4090"
    ),
    # No TF32 and no BF16 units, so their rates are FP32's.
    "T4": Peaks("T4", 320e9, {"fp32": 8.1e12, "tf32": 8.1e12, "fp16": 65e12, "bf16": 8.1e12}, NVIDIA + "tesla-t4/"),
    # FP32 is the vector rate.
    "MI300X": _gpu(
        "MI300X",
        5300,
        (163.4, 653.7, 1307.4),
        "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
    ),
}


def find_peaks(device_name: str) -> Peaks | None:
    """The table's entry for a device as its driver names it (`NVIDIA H100 80GB HBM3`), or None."""
    for key, peaks in PEAKS.items():
        tokens = device_name.lower().replace("-", " ").split()
        if all(word in tokens for word in key.lower().split()):
            return peaks
    return None


def floor_ms(costs: Anatomy | Costs, device_peaks: Peaks, precision: str = "fp32") -> float:
    """The least time on a device [ms]: the larger of the memory and the arithmetic floor.

    The roofline model of Williams, Waterman and Patterson (CACM 52(4), 2009), with compulsory traffic
    only. The memory floor holds for every program that reads its inputs and writes its output from and
    to main memory (data that stays in a cache can beat it). The arithmetic floor holds for the
    algorithm that was traced: algebra (a sum over a product), Winograd or FFT convolution, or fp32
    emulated on tensor cores can honestly beat it. A time below the floor is a reason to look, not a proof.
    """
    return max(memory_ms(costs, device_peaks), arithmetic_ms(costs, device_peaks, precision))


def memory_ms(costs: Anatomy | Costs, device_peaks: Peaks) -> float:
    """Time to move the compulsory bytes at peak bandwidth [ms]."""
    return 1e3 * costs.bytes_moved / device_peaks.bytes_per_s


def arithmetic_ms(costs: Anatomy | Costs, device_peaks: Peaks, precision: str = "fp32") -> float:
    """Time for products at the precision's rate or the rest at the fp32 rate, which may overlap [ms]."""
    vector = device_peaks.flop_per_s["fp32"]
    product = device_peaks.flop_per_s.get(precision, vector)
    return 1e3 * max(costs.matmul_flop / product, costs.pointwise_ops / vector)


def in_precision(costs: Anatomy | Costs, precision: str) -> Costs:
    """The costs of an fp32 problem when it is judged in `precision`: half of the bytes in fp16 and bf16.

    Indices and masks keep their size, so for problems that have some the result is a little too low.
    """
    size = 2 if precision in ("fp16", "bf16") else 4
    return Costs(costs.bytes_moved * size // 4, costs.matmul_flop, costs.pointwise_ops)


def reached(costs: Anatomy | Costs, kernel_ms: float, device_name: str, precision: str = "fp32") -> Reached:
    """What a kernel that took `kernel_ms` reached on a device, named as its driver names it."""
    moved = in_precision(costs, precision)
    rates = (1e3 * moved.bytes_moved / kernel_ms, 1e3 * moved.flop / kernel_ms)
    peaks = find_peaks(device_name)
    if peaks is None:
        return Reached(*rates)
    floor = floor_ms(moved, peaks, precision)
    return Reached(*rates, floor_ms=floor, fraction=floor / kernel_ms)


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
