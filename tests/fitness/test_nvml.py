"""NVML read through a real shared library, compiled here, whose answers a file controls."""

from __future__ import annotations

import multiprocessing
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from fitness.evaluation import JudgeError
from fitness.nvml import Gpu, Process, Watch

LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The n-th number after `name` in the file KB_TEST_GPU; -1 where there is none. */
static long long answer(const char *name, int n) {
    char line[8192];
    FILE *file = fopen(getenv("KB_TEST_GPU"), "r");
    long long found = -1;
    while (file && fgets(line, sizeof line, file)) {
        char *word = strtok(line, " \n");
        if (!word || strcmp(word, name)) continue;
        for (int i = 0; i <= n && word; ++i) word = strtok(NULL, " \n");
        if (word) found = atoll(word);
    }
    if (file) fclose(file);
    return found;
}
static int give(unsigned *place, const char *name) {
    long long value = answer(name, 0);
    if (value < 0) return 3;
    *place = (unsigned)value;
    return 0;
}
typedef void *device;
struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gi, ci; };

extern "C" {
int nvmlInit_v2() { return answer("init", 0) > 0 ? (int)answer("init", 0) : 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, device *out) {
    if (strcmp(uuid + 5, "0010203-0405-0607-0809-0a0b0c0d0e0f")) return 6;
    *out = (device)(long)(uuid[4] == '1' ? 2 : 1);
    return 0;
}
int nvmlDeviceGetName(device, char *out, unsigned size) { snprintf(out, size, "Test GPU"); return 0; }
int nvmlDeviceGetMemoryInfo(device, memory *out) { out->total = 1000; out->used = 400; out->free = 600; return 0; }
int nvmlDeviceGetMaxClockInfo(device, int kind, unsigned *out) { return kind == 1 ? give(out, "max_clock") : 2; }
#ifndef WITHOUT_CLOCK
int nvmlDeviceGetClockInfo(device, int kind, unsigned *out) { return kind == 1 ? give(out, "clock") : 2; }
#endif
int nvmlDeviceGetTemperature(device, int, unsigned *out) { return give(out, "temperature"); }
int nvmlDeviceGetPowerUsage(device, unsigned *out) { return give(out, "power_mw"); }
int nvmlDeviceGetUtilizationRates(device, unsigned *out) { return give(out, "busy"); }
int nvmlDeviceGetCurrentClocksThrottleReasons(device, unsigned long long *out) {
    long long bits = answer("reasons", 0);
    *out = bits < 0 ? 0 : (unsigned long long)bits;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device, unsigned *count, process *out) {
    unsigned n = 0;
    while (answer("pids", (int)n) >= 0) ++n;
    unsigned room = *count;
    *count = n;
    if (n > room) return 7;
    for (unsigned i = 0; i < n; ++i) out[i] = {(unsigned)answer("pids", (int)i), 1048576ull * (i + 1), ~0u, ~0u};
    return 0;
}
int cuInit(unsigned) { return answer("no_device", 0) > 0 ? 100 : 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *out, int index) { *out = index; return index < 2 ? 0 : 101; }
int cuDeviceGetUuid(unsigned char *out, int which) {
    for (int i = 0; i < 16; ++i) out[i] = (unsigned char)i;
    out[0] = which ? 0x10 : 0;
    return 0;
}
}
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> dict[str, str]:
    """Two libraries: one with everything, one of a driver that tells no clock."""
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.cpp").write_text(LIBRARY)
    for name, flags in (("whole", []), ("clockless", ["-DWITHOUT_CLOCK"])):
        command = ["g++", "-shared", "-fPIC", "-O0", *flags, str(folder / "nvml.cpp"), "-o", str(folder / f"{name}.so")]
        subprocess.run(command, check=True)
    return {name: str(folder / f"{name}.so") for name in ("whole", "clockless")}


@pytest.fixture
def machine(libraries, tmp_path: Path, monkeypatch):
    """machine(clock=..., pids=[...]) sets what the library answers from now on."""
    path = tmp_path / "answers"
    monkeypatch.setenv("KB_TEST_GPU", str(path))
    state = {
        "clock": 1980,
        "max_clock": 1980,
        "temperature": 40,
        "power_mw": 350_500,
        "busy": 99,
        "reasons": 0,
        "pids": [],
    }

    def answers(**changes) -> None:
        state.update(changes)
        lines = [f"{name} {' '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in state.items()]
        path.write_text("\n".join(lines))

    answers()
    return answers


@pytest.fixture
def gpu(machine, libraries) -> Gpu:
    return Gpu(0, nvml=libraries["whole"], driver=libraries["whole"])


def test_a_gpu_reads_what_the_library_says(gpu, machine):
    machine(pids=[11, 12], reasons=0x4 | 0x40)
    assert (gpu.name, gpu.uuid) == ("Test GPU", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert (gpu.memory(), gpu.sm_mhz(), gpu.max_sm_mhz()) == ((400, 1000), 1980, 1980)
    assert (gpu.temperature_c(), gpu.power_w(), gpu.busy_percent()) == (40, 350.5, 99)
    assert gpu.throttle_reasons() == ("sw_power_cap", "hw_thermal_slowdown")
    assert gpu.processes() == [Process(11, 1 << 20), Process(12, 2 << 20)]
    assert not gpu.missing


def test_more_processes_than_expected_are_all_listed(gpu, machine):
    machine(pids=list(range(100, 300)))
    assert [process.pid for process in gpu.processes()] == list(range(100, 300))


def test_the_device_is_found_by_the_uuid_that_cuda_gives_its_number(machine, libraries):
    second = Gpu(1, nvml=libraries["whole"], driver=libraries["whole"])
    assert second.uuid == "GPU-10010203-0405-0607-0809-0a0b0c0d0e0f"


def test_no_library_no_driver_and_no_such_device_are_errors_that_say_what_to_do(machine, libraries):
    whole = libraries["whole"]
    with pytest.raises(JudgeError, match="install the NVIDIA driver"):
        Gpu(0, nvml="libno-such-nvml.so.1", driver=whole)
    with pytest.raises(JudgeError, match="one of 2 visible GPUs"):
        Gpu(7, nvml=whole, driver=whole)
    machine(no_device=1)
    with pytest.raises(JudgeError, match=r"error 100.*nvidia-smi"):
        Gpu(0, nvml=whole, driver=whole)
    machine(no_device=0, init=9)
    with pytest.raises(JudgeError, match=r"NVML does not start \(error 9\)"):
        Gpu(0, nvml=whole, driver=whole)


def test_a_missing_call_reads_none_is_named_once_and_the_rest_still_works(machine, libraries):
    old = Gpu(0, nvml=libraries["clockless"], driver=libraries["clockless"])
    machine(temperature=-1)
    assert old.sm_mhz() is None and old.temperature_c() is None
    assert old.power_w() == 350.5
    watch = Watch(old)
    assert [watch.round() for _ in range(8)] == [""] * 8
    assert watch.summary()["nvml"] == "lacks nvmlDeviceGetClockInfo, nvmlDeviceGetTemperature"


def test_a_machine_without_nvml_is_watched_blindly_and_says_so_once(caplog):
    watch = Watch.over("cuda:0", nvml="libno-such-nvml.so.1")
    assert [watch.round() for _ in range(3)] == [""] * 3
    assert "cannot be loaded" in str(watch.summary()["nvml"])
    assert len(caplog.records) == 1
    assert Watch.over("cpu").summary() == {}


def test_a_round_at_a_fifth_less_clock_is_dropped_and_the_next_one_kept(gpu, machine):
    watch = Watch(gpu)
    assert {watch.round() for _ in range(6)} == {""}
    machine(clock=1500)
    assert watch.round() == "the SM clock was 1500 MHz, usual are 1980 MHz"
    machine(clock=1900)
    assert watch.round() == ""
    assert watch.summary()["gpu_dropped_slow_clock"] == 1
    assert watch.summary()["gpu_sm_mhz"] == 1980


def test_the_usual_clock_is_the_sessions_even_if_a_whole_series_is_slow(gpu, machine):
    watch = Watch(gpu)
    for _ in range(20):
        watch.round()
    machine(clock=1200)
    watch.begin()
    assert all(watch.round() for _ in range(8))


def test_a_steady_power_cap_of_a_heavy_kernel_drops_nothing_but_is_reported(gpu, machine):
    watch = Watch(gpu)
    for _ in range(20):
        watch.round()
    machine(clock=1400, reasons=0x4)
    watch.begin()
    assert [watch.round() for _ in range(8)] == [""] * 8
    assert watch.summary()["gpu_power_capped_share"] == 1.0
    machine(clock=1000)
    assert "1000 MHz" in watch.round()


@pytest.mark.parametrize("bits", [0x8, 0x20, 0x40, 0x80])
def test_a_real_throttle_drops_the_round(gpu, machine, bits):
    watch = Watch(gpu)
    machine(reasons=bits, temperature=91)
    assert "throttles itself" in watch.round() and "91 C" in watch.round()
    machine(reasons=0)
    assert watch.round() == ""


@pytest.mark.parametrize("bits", [0x1, 0x2, 0x10, 0x100])
def test_harmless_reasons_drop_nothing(gpu, machine, bits):
    watch = Watch(gpu)
    machine(reasons=bits)
    assert watch.round() == ""


def test_an_idle_clock_is_neither_a_reason_nor_the_usual_one(gpu, machine):
    watch = Watch(gpu)
    machine(clock=345, reasons=0x1)
    assert {watch.round() for _ in range(9)} == {""}
    machine(clock=1980, reasons=0)
    for _ in range(6):
        watch.round()
    assert watch.summary()["gpu_sm_mhz"] == 1980


def test_a_foreign_process_drops_the_round_and_is_named(gpu, machine):
    machine(pids=[10, 20])
    watch = Watch(gpu, lambda: {10, 20})
    assert watch.round() == ""
    machine(pids=[10, 20, 77])
    assert watch.round() == "process 77 also uses the GPU (3 MiB)"
    machine(pids=[10, 20])
    assert watch.round() == ""
    assert watch.summary()["gpu_dropped_foreign"] == 1


def test_a_foreign_process_that_was_there_before_us_is_seen_too(gpu, machine):
    machine(pids=[77, 10, 20])
    watch = Watch(gpu, lambda: {10, 20})
    assert "process 77" in watch.round()


def test_a_replaced_runner_of_ours_and_the_old_one_that_is_still_dying_are_not_foreign(gpu, machine):
    ours = {10, 20}
    machine(pids=[10, 20])
    watch = Watch(gpu, lambda: ours)
    ours = {10, 30}
    machine(pids=[10, 20, 30])
    assert watch.round() == ""
    machine(pids=[10, 30, 77])
    assert "process 77" in watch.round()


def test_a_process_of_ours_may_make_its_context_late(gpu, machine):
    for first in ([], [10]):
        machine(pids=first)
        watch = Watch(gpu, lambda: {10, 20})
        machine(pids=[10, 20])
        assert watch.round() == ""


def test_where_pids_are_of_another_namespace_our_own_raise_no_alarm_and_a_new_one_does(gpu, machine):
    ours = {10, 20}
    machine(pids=[5001, 5002])
    watch = Watch(gpu, lambda: ours)
    assert watch.round() == ""
    ours = {10, 30}  # a runner was replaced
    machine(pids=[5001, 5003])
    assert watch.round() == ""
    machine(pids=[5001, 5003, 5004])
    assert "1 contexts too many" in watch.round()


def test_where_all_pids_read_zero_only_their_number_counts(gpu, machine):
    machine(pids=[0, 0])
    watch = Watch(gpu, lambda: {10, 20})
    assert watch.round() == ""
    machine(pids=[0, 0, 0])
    assert "1 contexts too many" in watch.round()
    machine(pids=[0])
    assert watch.round() == ""


def test_where_the_list_stays_empty_nothing_is_foreign(gpu):
    watch = Watch(gpu, lambda: {10, 20})
    assert watch.round() == ""


def real_readings() -> tuple[str, str, bool, float]:
    """UUIDs as NVML and as torch say, whether all readings are there, and seconds per look at the device."""
    import torch

    torch.ones(1, device="cuda:0")
    real = Gpu(0)
    watch = Watch(real)
    started = time.perf_counter()
    for _ in range(200):
        watch.round()
    spent_s = (time.perf_counter() - started) / 200
    is_whole = bool(real.sm_mhz() and real.processes() and not real.missing)
    return real.uuid.removeprefix("GPU-"), str(torch.cuda.get_device_properties(0).uuid), is_whole, spent_s


@pytest.mark.gpu
def test_a_real_gpu_answers_in_microseconds():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:  # ours would disturb judges
        ours, theirs, is_whole, spent_s = apart.submit(real_readings).result()
    assert ours == theirs and is_whole and spent_s < 0.002
