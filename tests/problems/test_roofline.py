"""Speed-of-light floors."""

import dataclasses

import pytest

from problems.anatomy import Anatomy
from problems.roofline import PEAKS, Costs, Peaks, find_peaks, floor_ms, in_precision, measure_cpu, reached

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
        ("NVIDIA H200 NVL", "H200 NVL"),
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


def test_every_device_of_the_table_says_where_its_figures_are_printed():
    assert [name for name, peaks in PEAKS.items() if not peaks.source] == []


def test_a_copy_at_full_bandwidth_reaches_the_whole_roofline():
    found = reached(Costs(bytes_moved=4_800_000_000, matmul_flop=0, pointwise_ops=0), 1.0, "NVIDIA H200")
    assert found.bytes_per_s == pytest.approx(4.8e12) and found.fraction == pytest.approx(1.0)


def test_half_precision_moves_half_of_the_bytes_and_computes_the_same():
    costs = Costs(bytes_moved=100, matmul_flop=7, pointwise_ops=5)
    assert in_precision(costs, "bf16") == Costs(50, 7, 5)
    assert in_precision(costs, "tf32") == in_precision(costs, "fp32") == costs


def test_rates_are_known_on_a_device_without_a_data_sheet_and_its_floor_is_not():
    found = reached(dataclasses.replace(ANATOMY, matmul_flop=10**6), 2.0, "AMD EPYC, 2 CPUs")
    assert (found.bytes_per_s, found.flop_per_s) == (pytest.approx(5e8), pytest.approx(5e8))
    assert found.floor_ms is None and found.fraction is None


def test_a_product_in_tf32_is_held_against_the_tensor_cores_rate():
    product = Costs(bytes_moved=0, matmul_flop=494_500_000_000, pointwise_ops=0)
    assert reached(product, 2.0, "NVIDIA H200", "tf32").fraction == pytest.approx(0.5)
    assert reached(product, 2.0, "NVIDIA H200", "fp32").fraction == pytest.approx(494.5 / 67 / 2)
