"""What a machine has: the driver's GPUs, nvcc, torch's CUDA; found without torch and without a context."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kb_evolve import devices

DRIVER = r"""
#include <stddef.h>
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index + 7; return 0; }
int cuDeviceGetName(char *name, int size, int d) { strncpy(name, d == 8 ? "Second" : "First", size); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)device << 32; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 8 : device - 2; return 0; }
"""


def test_gpus_are_what_the_driver_says(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("g++")
    assert compiler is not None, "the tests need a C compiler, as backend cpp does"
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so"
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    first, second = devices.gpus(str(library))
    assert (first.index, first.name, first.memory_bytes, first.arch) == (0, "First", 7 << 32, "sm_85")
    assert (second.index, second.name, second.arch) == (1, "Second", "sm_86")


def test_no_driver_is_no_gpu(tmp_path: Path) -> None:
    assert devices.gpus(str(tmp_path / "none.so")) == ()


def test_looking_does_not_import_torch() -> None:
    look = (
        "from kb_evolve import devices as d, targets; d.gpus(); d.torch_cuda(); d.nvcc_path(); d.has_package('triton')"
    )
    subprocess.run([sys.executable, "-c", f"{look}; import sys; assert 'torch' not in sys.modules"], check=True)


def test_torchs_cuda_version_is_the_installed_ones() -> None:
    import torch

    assert devices.torch_cuda() == torch.version.cuda


def test_nvcc_is_the_builders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert devices.nvcc_path() == str(nvcc)


def test_the_drivers_own_files_are_read_and_their_absence_is_unknown(tmp_path: Path) -> None:
    version, params = tmp_path / "version", tmp_path / "params"
    assert devices.driver_version(str(version)) == "" and devices.counters_are_permitted(str(params)) is None
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n")
    params.write_text("RmMsg: \nRmProfilingAdminOnly: 0\n")
    assert devices.driver_version(str(version)) == "580.65.06" and devices.counters_are_permitted(str(params)) is True
