"""Which backend works on which device, and what is said where it does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fitness.evaluation import JudgeError
from kb_evolve import devices, doctor
from kb_evolve.config import Config, ConfigError, RunConfig, check_resumable, resolve
from kb_evolve.devices import Gpu
from kb_evolve.targets import check_searchable, check_target, notice, runs_on, settle

H200 = Gpu(0, "NVIDIA H200", 150 << 30, (9, 0))


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one H200 and a torch that can use it."""
    monkeypatch.setattr(devices, "gpus", lambda: (H200,))
    monkeypatch.setattr(devices, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr(devices, "has_package", lambda name: True)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", tuple)
    monkeypatch.setattr(devices, "has_package", lambda name: True)


def configured(**run: str) -> Config:
    return resolve({"run": dict(run)})


def test_cuda_is_the_first_gpu_and_cpp_needs_no_device_to_be_named() -> None:
    assert configured(backend="triton", device="cuda").run.device == "cuda:0"
    assert configured().run.device == "cpu"


def test_a_gpu_backend_goes_to_the_first_gpu_that_torch_can_use(one_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settle(configured(backend="triton")).run.device == "cuda:0"
    assert settle(configured(backend="cuda", device="cpu")).run.device == "cpu"
    monkeypatch.setattr(devices, "torch_cuda", lambda: None)
    assert settle(configured(backend="triton")).run.device == "cpu"


def test_without_a_gpu_triton_is_verified_and_cuda_is_built_and_one_line_says_so(no_gpu: None) -> None:
    triton, cuda = (settle(configured(backend=backend)).run for backend in ("triton", "cuda"))
    assert (triton.device, cuda.device) == ("cpu", "cpu")
    assert "not timed" in notice(triton) and "only built (for sm_90)" in notice(cuda)
    assert "\n" not in notice(triton) + notice(cuda)
    assert notice(configured().run) == "" == notice(dataclasses.replace(triton, device="cuda:0"))


@pytest.mark.parametrize(
    ("run", "parts"),
    [
        ({"backend": "cobol"}, ("cobol", "cpp, cuda, triton")),
        ({"backend": "triton", "device": "tpu"}, ("tpu", "cuda:0")),
        ({"backend": "triton", "device": "cuda:-1"}, ("cuda:-1",)),
        ({"backend": "cpp", "device": "cuda"}, ("cuda:0", "--device cpu", "triton")),
        ({"backend": "cpp", "arch": "sm_90"}, ("--arch sm_90", "cuda and triton")),
        ({"backend": "triton", "arch": "hopper"}, ("hopper", "sm_90")),
        ({"backend": "triton", "arch": "sm_80"}, ("sm_80", "NVIDIA H200", "sm_90")),
        ({"backend": "triton", "arch": "sm_70"}, ("Triton does not compile for sm_70", "sm_80, sm_86", "sm_100")),
        ({"backend": "triton", "arch": "sm_999"}, ("sm_999", "sm_90")),
    ],
)
def test_what_makes_no_sense_is_a_config_error_that_says_what_does(
    one_gpu: None, run: dict[str, str], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_target(settle(configured(**run)).run)
    assert all(part in str(caught.value) for part in parts), caught.value


def test_a_gpu_that_is_not_there_is_this_machines_fault_and_says_what_is(one_gpu: None) -> None:
    with pytest.raises(JudgeError, match=r"cuda:1 was asked for, and this machine has 1 GPU \(cuda:0 NVIDIA H200\)"):
        check_target(configured(backend="triton", device="cuda:1").run)
    check_target(configured(backend="triton", device="cuda:0", arch="sm_90a").run)


def test_a_machine_without_a_gpu_says_so_and_names_the_doctor(no_gpu: None) -> None:
    with pytest.raises(JudgeError, match=r"no GPU.*doctor"):
        check_target(configured(backend="cuda", device="cuda").run)


def test_a_torch_without_cuda_is_told_from_a_machine_without_gpu(
    one_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "torch_cuda", lambda: None)
    with pytest.raises(JudgeError, match=r"NVIDIA H200.*built without CUDA.*pytorch\.org"):
        check_target(configured(backend="triton", device="cuda").run)


def test_missing_compilers_are_named_with_where_they_were_looked_for(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices, "has_package", lambda name: False)
    monkeypatch.setattr(devices, "nvcc_path", lambda: None)
    with pytest.raises(JudgeError, match=r"pip install triton"):
        check_target(settle(configured(backend="triton")).run)
    with pytest.raises(JudgeError, match=r"no nvcc.*CUDA_HOME.*PATH.*pip install"):
        check_target(settle(configured(backend="cuda")).run)


def nvcc(folder: Path, says: str) -> str:
    """An nvcc that answers every question so."""
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return str(path)


def test_an_architecture_that_nvcc_does_not_know_is_refused_with_those_it_does(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = nvcc(tmp_path, "echo sm_80; echo sm_90; echo sm_100")
    monkeypatch.setattr(devices, "nvcc_path", lambda: path)
    check_target(settle(configured(backend="cuda", arch="sm_90a")).run)
    with pytest.raises(ConfigError, match=r"nvcc does not compile for sm_70; it knows sm_80, sm_90, sm_100"):
        check_target(settle(configured(backend="cuda", arch="sm_70")).run)


def test_a_broken_nvcc_is_this_machines_fault(no_gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = nvcc(tmp_path, "exit 1")
    monkeypatch.setattr(devices, "nvcc_path", lambda: path)
    with pytest.raises(JudgeError, match=r"nvcc does not work.*exit status 1.*doctor"):
        check_target(settle(configured(backend="cuda")).run)


@pytest.mark.parametrize(("version", "is_known"), [("3.11.0", False), ("3.5.1", False), ("3.9.2", True)])
def test_a_triton_that_was_never_tried_is_warned_of_and_not_refused(
    no_gpu: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    version: str,
    is_known: bool,
) -> None:
    installed = tmp_path / f"triton-{version}.dist-info" / "METADATA"
    installed.parent.mkdir()
    installed.write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    check_target(settle(configured(backend="triton")).run)
    row = doctor.check_triton()
    doubt = f"Triton {version} was never tried here"
    assert row.is_fine and row.found.startswith(version) and "known to work: 3.6, 3.7, 3.8, 3.9" in row.found
    assert (doubt in row.found, doubt in caplog.text) == (not is_known, not is_known)


def test_a_search_that_would_get_no_times_is_refused(no_gpu: None) -> None:
    with pytest.raises(JudgeError, match=r"a search needs times.*kb-evolve eval"):
        check_searchable(settle(configured(backend="triton")).run)
    check_searchable(RunConfig(backend="triton", device="cuda:0"))
    check_searchable(configured().run)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_90", (9, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 1), False),
        ("sm_100", (10, 0), True),
        ("sm_120", (10, 0), False),
    ],
)
def test_machine_code_runs_within_its_major_version(arch: str, capability: tuple[int, int], runs: bool) -> None:
    assert runs_on(arch, capability) is runs


def test_the_two_names_of_the_first_gpu_resume_the_same_run() -> None:
    stored = resolve({"run": {"backend": "triton", "device": "cuda:0"}}).to_layer()
    check_resumable(stored, {"run": {"device": "cuda"}}, name="night")
    with pytest.raises(ConfigError, match="cuda:1"):
        check_resumable(stored, {"run": {"device": "cuda:1"}}, name="night")
    with pytest.raises(ConfigError, match="arch"):
        check_resumable(stored, {"run": {"arch": "sm_80"}}, name="night")
