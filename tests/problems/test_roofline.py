"""Speed-of-light floors."""

import dataclasses

import pytest

from problems.anatomy import Anatomy
from problems.roofline import PEAKS, Peaks, find_peaks, floor_ms, measure_cpu

DEVICE = Peaks("toy", 1e9, {"fp32": 1e12, "bf16": 1e13})
ANATOMY = Anatomy(
    traced="real tensors", inputs=(), arguments=(), outputs=(), parameter_count=0, parameter_bytes=0,
    matmul_flop=0, pointwise_ops=0, bytes_moved=10**6, reduction_length=1, operators={},
)  # fmt: skip


def test_a_problem_without_arithmetic_takes_the_time_of_its_bytes():
    assert floor_ms(ANATOMY, DEVICE) == pytest.approx(1.0)


def test_a_product_takes_the_time_of_its_arithmetic_in_its_precision():
    product = dataclasses.replace(ANATOMY, matmul_flop=10**11)
    assert floor_ms(product, DEVICE) == pytest.approx(100.0)
    assert floor_ms(product, DEVICE, "bf16") == pytest.approx(10.0)


def test_pointwise_work_runs_at_the_fp32_rate_in_every_precision():
    pointwise = dataclasses.replace(ANATOMY, pointwise_ops=10**11)
    assert floor_ms(pointwise, DEVICE, "bf16") == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("device_name", "entry"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
    ],
)
def test_a_device_is_found_by_the_name_its_driver_gives(device_name, entry):
    assert find_peaks(device_name) is PEAKS[entry]


def test_an_unknown_device_has_no_peaks():
    assert find_peaks("NVIDIA GH200 480GB") is None


def test_low_precision_is_never_slower_than_fp32():
    assert all(rate >= peaks.flop_per_s["fp32"] for peaks in PEAKS.values() for rate in peaks.flop_per_s.values())


def test_measured_peaks_of_this_cpu_are_those_of_a_computer():
    peaks = measure_cpu(nbytes=1 << 22, size=128)
    assert 1e8 < peaks.bytes_per_s < 1e13 and 1e7 < peaks.flop_per_s["fp32"] < 1e14
