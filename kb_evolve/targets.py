"""Which backend works on which device: defaults, and refusals that say what is here and what to do."""

from __future__ import annotations

import dataclasses
import logging

from fitness.backends.cuda import DEFAULT_ARCH, INSTALL_NVCC
from fitness.evaluation import JudgeError
from kb_evolve import architectures, devices
from kb_evolve.config import Config, ConfigError, RunConfig

log = logging.getLogger(__name__)

BACKENDS = ("cpp", "cuda", "triton")
GPU_BACKENDS = ("cuda", "triton")


def settle(config: Config) -> Config:
    """The configuration with its device filled in: for GPU backends the first GPU that torch can use, else the CPU."""
    if config.run.device:
        return config
    device = "cuda:0" if config.run.backend in GPU_BACKENDS and devices.gpus() and devices.torch_cuda() else "cpu"
    return dataclasses.replace(config, run=dataclasses.replace(config.run, device=device))


def check_target(run: RunConfig) -> None:
    """ConfigError for a combination that cannot work anywhere, JudgeError for one that this machine lacks.

    Warns of a Triton that was never tried.
    """
    if run.backend not in BACKENDS:
        raise ConfigError(f"unknown backend {run.backend!r}; this version knows: {', '.join(BACKENDS)}")
    _check_name(run.device)
    if run.backend not in GPU_BACKENDS:
        _refuse_gpu(run)
        return
    if run.arch and not devices.ARCH.fullmatch(run.arch):
        raise ConfigError(f"unknown architecture {run.arch!r}; expected sm_ and a number, such as sm_90 or sm_90a")
    _check_compiler(run.backend)
    _check_arch(run)
    check_device(run)


def check_device(run: RunConfig) -> None:
    """The same for the device alone, whatever the backend: all that baselines need."""
    _check_name(run.device)
    if run.device != "cpu":
        _check_gpu(run)


def check_searchable(run: RunConfig) -> None:
    """JudgeError when kernels could be checked here and not timed, which is what a search lives on."""
    if run.backend in GPU_BACKENDS and run.device == "cpu":
        raise JudgeError(
            f"a search needs times, and backend {run.backend} gets none on {_here()}: {notice(run)}. Search on a "
            "machine with an NVIDIA GPU, or with --backend cpp; `kb-evolve eval` works here"
        )


def notice(run: RunConfig) -> str:
    """What a GPU backend cannot do without a GPU, in one line; empty where all is possible."""
    if run.device != "cpu" or run.backend not in GPU_BACKENDS:
        return ""
    if run.backend == "triton":
        return "on the CPU Triton kernels are verified by Triton's interpreter, not timed"
    return f"without a GPU CUDA kernels are only built (for {run.arch or DEFAULT_ARCH}), neither verified nor timed"


def _check_name(device: str) -> None:
    if not devices.DEVICE.fullmatch(device):
        raise ConfigError(f"unknown device {device!r}; possible: cpu, cuda (the first GPU), cuda:0, cuda:1, ...")


def _refuse_gpu(run: RunConfig) -> None:
    """Backend cpp with what only GPUs have."""
    if run.device != "cpu":
        raise ConfigError(
            f"backend {run.backend} makes kernels for the CPU, not for {run.device}: give --device cpu, or --backend "
            f"{' or '.join(GPU_BACKENDS)}"
        )
    if run.arch:
        raise ConfigError(f"--arch {run.arch} is for backends {' and '.join(GPU_BACKENDS)}, not for {run.backend}")


def _check_compiler(backend: str) -> None:
    if backend == "triton" and not devices.has_package("triton"):
        raise JudgeError("backend triton needs Triton, which is not installed here: pip install triton")
    if backend == "triton" and (doubt := devices.triton_doubt()):
        log.warning("%s; an error before the kernel's own code is then Triton's", doubt)
    if backend == "cuda" and not devices.has_nvrtc() and devices.nvcc_path() is None:
        raise JudgeError(f"backend cuda needs a compiler; {INSTALL_NVCC}")


def _check_arch(run: RunConfig) -> None:
    """The compiler works and knows `arch`."""
    nvcc = devices.nvcc_path() if run.backend == "cuda" else None
    known = architectures.of_nvcc(nvcc) if nvcc else frozenset()
    if run.arch and run.backend == "triton":
        known = architectures.of_triton()
    if run.arch and known and run.arch.removesuffix("a") not in known:
        compiler = "Triton" if run.backend == "triton" else nvcc
        raise ConfigError(f"{compiler} does not compile for {run.arch}; it knows {architectures.in_words(known)}")


def _check_gpu(run: RunConfig) -> None:
    """The device exists, torch can use it, and it runs what is compiled for `arch`."""
    found = devices.gpus()
    index = int(run.device.removeprefix("cuda:"))
    if index >= len(found):
        raise JudgeError(
            f"{run.device} was asked for, and this machine has {_count_text(found)}: "
            + (f"give --device cuda:0 to cuda:{len(found) - 1}" if found else "see `kb-evolve doctor`, or --device cpu")
        )
    if devices.torch_cuda() is None:
        raise JudgeError(
            f"{run.device} was asked for ({found[index].name}), but the installed torch is built without CUDA: install "
            "a CUDA build of torch, see https://pytorch.org/get-started/locally"
        )
    if run.arch and not runs_on(run.arch, found[index].capability):
        raise ConfigError(
            f"code for {run.arch} does not run on {run.device} ({found[index].name}, {found[index].arch}): "
            f"leave --arch out, or give {found[index].arch}"
        )


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether machine code for `arch` runs on a device: the same major version, a minor one that is not newer.

    `sm_90a` runs on 9.0 alone. CUDA C++ Programming Guide, sections "Binary Compatibility" and
    "Architecture-Specific Features".
    """
    number = int(arch.removeprefix("sm_").removesuffix("a"))
    major, minor = divmod(number, 10)
    if arch.endswith("a"):
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def _here() -> str:
    return "the CPU" if devices.gpus() else "this machine, which has no GPU"


def _count_text(found: tuple[devices.Gpu, ...]) -> str:
    if not found:
        return "no GPU that the NVIDIA driver shows"
    names = ", ".join(f"cuda:{gpu.index} {gpu.name}" for gpu in found)
    return f"{len(found)} GPU{'s' if len(found) > 1 else ''} ({names})"
