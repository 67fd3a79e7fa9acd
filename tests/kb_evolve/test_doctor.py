"""Doctor names what is missing and never shows a key's value."""

from __future__ import annotations

from pathlib import Path

import pytest

from islands.store import open_store
from kb_evolve import devices, doctor
from kb_evolve.config import ConfigError


def test_keys_are_found_by_name_and_their_values_stay_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in doctor.MODEL_KEYS:
        monkeypatch.delenv(name, raising=False)
    assert doctor.check_keys().found.startswith("none")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    check = doctor.check_keys()
    assert "OPENAI_API_KEY" in check.found and "secret" not in repr(check)


def test_a_missing_compiler_is_a_no_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_tool("g++", ["--version"], "install it")
    assert not check.is_fine and check.advice == "install it"
    assert not doctor.check_backends().is_fine


def test_a_compiler_that_fails_is_a_no(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_tool("g++", ["--version"], "install it")
    assert not check.is_fine and "does not work" in check.found


def test_a_database_is_whole_missing_or_corrupt(tmp_path: Path) -> None:
    db = tmp_path / "kb.db"
    assert "does not exist yet" in doctor.check_database(str(db)).found
    assert not db.exists()
    open_store(db).close()
    assert doctor.check_database(str(db)).is_fine
    db.write_bytes(b"garbage" * 999)
    assert not doctor.check_database(str(db)).is_fine


def test_every_gpu_has_a_row_with_what_its_owner_would_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = tuple(devices.Gpu(index, "NVIDIA H200", 140 << 30, (9, 0)) for index in range(2))
    monkeypatch.setattr(devices, "gpus", lambda: pair)
    monkeypatch.setattr(devices, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr(devices, "driver_version", lambda: "580.65.06")
    checks = list(doctor.check_gpus())
    assert [check.name for check in checks] == ["cuda:0", "cuda:1"]
    assert all(part in checks[0].found for part in ("NVIDIA H200", "140 GiB", "9.0 (sm_90)", "driver 580.65.06"))
    monkeypatch.setattr(devices, "torch_cuda", lambda: None)
    assert not next(doctor.check_gpus()).is_fine and "without CUDA" in next(doctor.check_gpus()).advice


def test_a_machine_without_a_gpu_is_fine_and_says_what_each_backend_still_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("g++", "nvcc"):
        (tmp_path / name).write_text("#!/bin/sh\necho Cuda compilation tools, release 13.0, V13.0.88\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(devices, "gpus", tuple)
    monkeypatch.setattr(devices, "has_package", lambda name: True)
    (row,) = doctor.check_gpus()
    backends = doctor.check_backends()
    assert row.is_fine and backends.is_fine
    assert "cuda: builds only" in backends.found and "triton: builds and verifies" in backends.found
    assert "CUDA 13.0" in doctor.check_nvcc().found and str(tmp_path) in doctor.check_nvcc().found


def test_an_nvcc_that_does_not_run_builds_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvcc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setattr(devices, "nvcc_path", lambda: str(tmp_path / "nvcc"))
    assert "cuda: no nvcc that works" in doctor.check_backends().found
    assert "does not work" in doctor.check_nvcc().found


def test_cuda_core_without_its_bindings_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_package", lambda name: name == "cuda.core")
    found = doctor.check_nvrtc().found
    assert "of no use without cuda-bindings" in found and "cuda-core[cu13]" in found


def test_what_only_gpu_backends_need_is_no_fault_of_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(devices, "nvcc_path", lambda: None)
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    monkeypatch.setattr(devices, "has_package", lambda name: False)
    checks = (doctor.check_nvcc(), doctor.check_package("triton", "triton", "pip install triton"), doctor.check_ncu())
    assert all(check.is_fine for check in checks)
    assert "CUDA_HOME is /nowhere" in checks[0].found and "pip install" in checks[0].found
    assert checks[1].found.startswith("not installed")
    assert "sqlite-utils" in doctor.check_database("none.db").found


def test_a_device_that_was_put_aside_is_released_by_the_command():
    from click.testing import CliRunner

    from fitness import health
    from kb_evolve.commands.doctor import doctor as command

    health.put_aside("cuda:7", "the known kernel gave another answer")
    assert "another answer" in health.quarantined("cuda:7")
    answer = CliRunner().invoke(command, ["--release", "cuda:7"])
    assert answer.exit_code == 0 and "used again" in answer.output
    assert health.quarantined("cuda:7") == ""
    assert "was not put aside" in CliRunner().invoke(command, ["--release", "cuda:7"]).output
    with pytest.raises(ConfigError, match=r"unknown device 'banana'.*cuda:0"):
        CliRunner().invoke(command, ["--release", "banana"], catch_exceptions=False)
