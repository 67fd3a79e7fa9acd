"""Triton candidates are compiled without a GPU, found again by a runner on one, and verified by the interpreter."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import resource
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fitness.backends import interpreter, triton
from fitness.builder import Builder
from fitness.children import Zygote
from fitness.evaluation import Job, JudgeError, Verdict
from fitness.models import construct, execute

pytest.importorskip("triton")

KERNELS = Path(__file__).parent / "kernels"
BUNDLED = Path(__file__).parents[2] / "problems" / "bundled"
SHRUNK = {"rows = 1024": "rows = 7", "rows = 2048": "rows = 7", "rows = 4096": "rows = 7", "cols = 1024": "cols = 301"}
SHRUNK |= {"features = 2048": "features = 301", "features = 768": "features = 301", "columns = 1024": "columns = 301"}
SHRUNK |= {"cols = 2048": "cols = 90"}

SUM = textwrap.dedent("""
    import torch
    import torch.nn as nn

    class Model(nn.Module):
        def forward(self, x, y):
            return x + y

    def get_inputs():
        return [torch.rand(COUNT), torch.rand(COUNT)]

    def get_init_inputs():
        return []
""")
PRODUCT = SUM.replace("x + y", "x @ y").replace("COUNT", "32, 32")

BODY = textwrap.dedent("""
    import torch
    import torch.nn as nn
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice

    @triton.jit
    def kernel(x_ptr, y_ptr, z_ptr, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count)
        y = tl.load(y_ptr + at, mask=at < count)
        z = x + y
        tl.store(z_ptr + at, z, mask=at < count)

    class ModelNew(nn.Module):
        def forward(self, x, y):
            z = torch.empty_like(x)
            kernel[(triton.cdiv(x.numel(), 128),)](x, y, z, x.numel(), BLOCK=128)
            return z
""")
LINE, TILE = (
    "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    "tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]",
)
DOT = BODY.replace(LINE, TILE).replace("z = x + y", "z = tl.dot(x, y, input_precision=PRECISION)")


def small(name: str) -> str:
    """A bundled problem with few and odd sizes."""
    source = (BUNDLED / f"{name}.py").read_text()
    for long, short in SHRUNK.items():
        source = source.replace(long, short)
    return source


def in_child(folder: Path, work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked process whose working directory is `folder`: its patches stay there."""
    folder.mkdir(exist_ok=True)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            os.chdir(folder)
            os.write(write_end, json.dumps(work()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0, "the child failed, see its output"
    return json.loads(said)


@pytest.fixture
def build(tmp_path):
    """build(candidate, problem, device) -> the spec, after the build child's steps in a process of their own."""

    def run(candidate: str, problem: str, device: str = "cpu") -> dict[str, Any]:
        (tmp_path / "products").mkdir()
        (tmp_path / "candidate.py").write_text(candidate)
        (tmp_path / "problem.py").write_text(problem)
        spec = {"products_dir": str(tmp_path / "products"), "backend": "triton", "arch": "sm_90", "device": device}

        def work() -> int:
            triton.install("build", spec)
            names = execute(str(tmp_path / "problem.py"), "problem")
            model = construct(execute(str(tmp_path / "candidate.py"), "candidate"), "ModelNew", [])
            triton.precompile(model, names["get_inputs"], spec)
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        return {**spec, "peak_kib": in_child(tmp_path / "home", work)}

    return run


def report(spec: dict[str, Any]) -> dict[str, Any]:
    return json.loads(Path(spec["products_dir"], "triton", "build.json").read_text())


def interpret(tmp_path: Path, candidate: str, *inputs: torch.Tensor) -> torch.Tensor:
    """A candidate's result by the interpreter, after Triton was imported for compiling."""
    (tmp_path / "candidate.py").write_text(candidate)

    def work() -> list[float]:
        import triton as compiling  # noqa: F401

        interpreter.enable()
        model = construct(execute(str(tmp_path / "candidate.py"), "candidate"), "ModelNew", [])
        return model(*inputs).double().tolist()

    return torch.tensor(in_child(tmp_path / "home", work), dtype=torch.float64)


HONEST = (
    "level1/softmax",
    "level1/rmsnorm",
    "level1/layernorm",
    "level1/matmul_small_k",
    "level2/mul_sigmoid_gate_sum",
)


@pytest.mark.parametrize("problem", HONEST)
def test_an_honest_kernel_is_verified_and_compiled_ahead(workbench, problem):
    source = (KERNELS / f"triton_{Path(problem).name}.py").read_text()
    found = workbench.evaluate(Job(problem, small(problem), source, backend="triton"))
    assert found.verdict is Verdict.VERIFIED, found.reason
    assert found.kernel_ms is None
    assert found.features["build_routes"] == ["triton"]
    assert found.features["kernels"] == 1
    assert found.features["registers"] >= 8
    assert found.features["profile_source"] == "compiler" and "build_fallbacks" not in found.features


def test_what_was_not_compiled_ahead_is_said_with_the_reason(workbench):
    source = BODY.replace("z = torch.empty_like(x)", "z = torch.empty_like(x); assert float(x.sum()) != 0.5")
    found = workbench.evaluate(Job("sum", SUM.replace("COUNT", "300"), source, backend="triton"))
    assert found.verdict is Verdict.VERIFIED, found.reason
    (why,) = found.features["build_fallbacks"]
    assert why.startswith("triton-jit: ") and "meta" in why
    assert found.features["build_routes"] == ["triton-jit"] and "profile_source" not in found.features


FAULTS = {
    "out_of_bounds": (Verdict.RUNTIME_ERROR, "965 of the kernel's stores fall outside"),
    "wrong_result": (Verdict.WRONG_RESULT, "expected"),
    "compile_error": (Verdict.COMPILE_ERROR, "incompatible dimensions at index 0: 1024 and 2048"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_kernel_gets_its_verdict_and_reason(workbench, name):
    source = (KERNELS / f"triton_{name}.py").read_text()
    found = workbench.evaluate(Job("gelu", small("level1/gelu_tanh"), source, backend="triton"))
    verdict, part = FAULTS[name]
    assert found.verdict is verdict, found.reason
    assert part in found.reason


def test_a_kernel_that_reads_far_outside_crashes_the_runner_only(workbench):
    source = BODY.replace("y_ptr + at, mask=at < count", "y_ptr + at.to(tl.int64) + (1 << 45)")
    found = workbench.evaluate(Job("sum", SUM.replace("COUNT", "300"), source, backend="triton"))
    assert found.verdict is Verdict.RUNTIME_ERROR, found.reason
    assert "SIGSEGV" in found.reason


@pytest.mark.parametrize(("precision", "verdict"), [("'ieee'", Verdict.VERIFIED), ("None", Verdict.WRONG_RESULT)])
def test_a_dot_in_tf32_is_refused_as_on_the_gpu(workbench, precision, verdict):
    source = DOT.replace("PRECISION", precision)
    found = workbench.evaluate(Job("product", PRODUCT, source, backend="triton"))
    assert found.verdict is verdict, found.reason


def test_a_runner_on_a_gpu_finds_all_that_the_build_compiled_and_starts_no_process(build, tmp_path, monkeypatch):
    source = (KERNELS / "triton_matmul_small_k.py").read_text()
    spec = build(source, small("level1/matmul_small_k"), "cuda:0")
    moved = tmp_path / "moved"
    Path(spec["products_dir"]).rename(moved)
    before = sorted(str(path) for path in moved.rglob("*"))
    spec["products_dir"] = str(moved)

    def work() -> list[Any]:
        import subprocess

        triton.install("load", spec)
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
        from triton import knobs
        from triton.backends.nvidia import driver
        from triton.runtime import build as launching
        from triton.runtime.autotuner import Autotuner

        ctypes.CDLL(str(moved / "triton" / "stub" / "libcuda.so.1"), ctypes.RTLD_GLOBAL)
        sys.setdlopenflags(os.RTLD_LAZY)  # the library has none of NVIDIA's functions, and none is called
        load, loaded = launching._load_module_from_path, []

        def note(name: str, path: str) -> Any:
            loaded.append(name)
            return load(name, path)

        monkeypatch.setattr(launching, "_load_module_from_path", note)
        monkeypatch.setattr(Autotuner, "do_bench", staticmethod(lambda call, **_: [call() or 0.0] * 3))
        utils = driver.CudaUtils()
        launchers = []

        def launcher(*what: Any) -> Any:
            launchers.append(driver.CudaLauncher(*what))
            return lambda *_: None

        stand_in = triton._stand_in(90, torch.device("cpu"), launcher)
        vars(utils).update(vars(stand_in.utils))
        stand_in.utils = utils
        triton._set_driver(stand_in)
        hits: list[bool] = []
        knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
        model = construct(execute(str(tmp_path / "candidate.py"), "candidate"), "ModelNew", [])
        model(torch.rand(7, 8), torch.rand(8, 90))
        return [hits, len(launchers), sorted(set(loaded) - {"__triton_launcher"})]

    assert in_child(tmp_path / "runner", work) == [[True, True, True], 3, ["cuda_utils"]]
    assert sorted(str(path) for path in moved.rglob("*")) == before


def test_a_fenced_build_for_a_gpu_needs_none_and_holds_the_launch_code():
    zygote = Zygote(1)
    try:
        job = Job("sum", SUM.replace("COUNT", "36"), BODY, backend="triton", device="cuda:0")
        built = Builder(zygote, fenced=True).build(job)
    finally:
        zygote.close()
    assert built.failure is None, built.failure
    assert built.routes == ("triton",) and built.features["kernels"] == 1
    assert len(list(Path(built.folder).glob("products/triton/cache/*/cuda_utils*.so"))) == 1


def test_a_runner_leaves_out_what_triton_did_not_write_into_the_cache(tmp_path):
    for name, text in (("good", '{"child_paths": {"a.json": "/old/a.json"}}'), ("bad", "[]"), ("worse", "{" * 100_000)):
        place = tmp_path / "products" / "triton" / "cache" / name / "__grp__a.json"
        place.parent.mkdir(parents=True)
        place.write_text(text)
    spec = {"products_dir": str(tmp_path / "products"), "arch": "sm_90", "device": "cuda:0"}
    in_child(tmp_path / "home", lambda: triton.install("load", spec))
    kept = tmp_path / "home" / "triton" / "cache"
    assert [path.parent.name for path in kept.glob("*/*")] == ["good"]
    assert json.loads((kept / "good" / "__grp__a.json").read_text()) == {
        "child_paths": {"a.json": str(tmp_path / "products" / "triton" / "cache" / "good" / "a.json")}
    }


def test_what_fails_before_the_candidates_code_in_a_build_is_this_machines_fault(tmp_path, monkeypatch):
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'a.c:1: fatal error: Python.h: No such file or directory' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    zygote = Zygote(1)
    job = Job("sum", SUM.replace("COUNT", "31"), BODY, backend="triton", device="cuda:0")
    try:
        with pytest.raises(
            JudgeError, match=r"before it came to the candidate's code: a\.c:1: .*Python\.h.*`kb-evolve"
        ):
            Builder(zygote, fenced=False).build(job)
    finally:
        zygote.close()


def test_what_fails_before_the_candidates_code_in_a_runner_is_this_machines_fault(workbench):
    job = Job("sum", SUM.replace("COUNT", "32"), BODY, backend="triton")
    built = workbench.build(job)
    with pytest.raises(JudgeError, match="before it came to the candidate's code: ValueError: arch must be like"):
        workbench.measure(dataclasses.replace(job, arch="hopper"), built)


def test_a_candidate_cannot_pass_its_failure_off_as_this_machines(workbench):
    claim = """
import contextlib, os
from fitness import wire
with contextlib.suppress(OSError):  # the build has no such pipe
    os.write(4, wire.pack_reply(wire.FAILED, 1, text="not mine"))
"""
    found = workbench.evaluate(Job("sum", SUM.replace("COUNT", "33"), claim + BODY, backend="triton"))
    assert (found.verdict, found.reason) == (Verdict.LOAD_ERROR, "loading the module failed: not mine")


def test_a_problem_of_16_gib_is_compiled_without_its_memory(build):
    careful = "assert x.is_cuda and x.device.type == 'cuda' and torch.cuda.is_available()"
    source = BODY.replace("z = torch.empty_like(x)", f"{careful}; z = torch.empty(x.shape, device='cuda')")
    spec = build(source, SUM.replace("COUNT", "1 << 31"))
    assert report(spec)["route"] == "triton", report(spec)
    assert spec["peak_kib"] < 4 << 20
    found = triton.resources(spec["products_dir"])
    assert found["kernels"] == 1
    assert found["registers"] >= 8
    assert found["spill_bytes"] == 0


def test_what_depends_on_values_is_left_to_the_first_call(build):
    source = BODY.replace("z = torch.empty_like(x)", "z = torch.empty_like(x); assert float(x.sum()) != 0.5")
    spec = build(source, SUM.replace("COUNT", "300"))
    assert report(spec)["route"] == "triton-jit"
    assert "meta" in report(spec)["fallback_reason"]
    assert triton.resources(spec["products_dir"]) == {}


def test_of_many_configurations_the_first_are_compiled_ahead(build, monkeypatch):
    monkeypatch.setattr(triton, "MOST_CONFIGS", 2)
    source = (KERNELS / "triton_matmul_small_k.py").read_text()
    spec = build(source, small("level1/matmul_small_k"))
    assert report(spec)["route"] == "triton-jit"
    assert "3 configurations, of which 2" in report(spec)["fallback_reason"]


def test_the_interpreter_adds_bfloat16_as_the_gpu_does(tmp_path):
    x, y = torch.randn(300).bfloat16(), torch.randn(300).bfloat16()
    assert torch.equal(interpret(tmp_path, BODY, x, y), (x + y).double())


@pytest.mark.parametrize("library", ["libdevice", "cuda_libdevice"])
def test_libdevice_has_equivalents_in_the_interpreter(tmp_path, library):
    x, y = torch.randn(300), torch.randn(300)
    source = BODY.replace("z = x + y", f"z = {library}.tanh(x) * {library}.pow({library}.erf(y), 2.0)")
    expected = torch.tanh(x.double()) * torch.erf(y.double()) ** 2
    torch.testing.assert_close(interpret(tmp_path, source, x, y), expected, rtol=1e-5, atol=1e-6)


def test_a_libdevice_function_without_an_equivalent_says_so(workbench):
    source = BODY.replace("z = x + y", "z = libdevice.j0(x) + y")
    found = workbench.evaluate(Job("sum", SUM.replace("COUNT", "300"), source, backend="triton"))
    assert found.verdict is Verdict.RUNTIME_ERROR
    assert "libdevice.j0 has no equivalent in the interpreter" in found.reason


def test_atomics_outside_of_every_tensor_are_found(workbench):
    source = BODY.replace("tl.store(z_ptr + at, z, mask=at < count)", "tl.atomic_add(z_ptr + at + 128, z)")
    found = workbench.evaluate(Job("sum", SUM.replace("COUNT", "300"), source, backend="triton"))
    assert found.verdict is Verdict.RUNTIME_ERROR
    assert "fall outside of its tensors" in found.reason


LARGE = SUM.replace("COUNT", "1 << 22")
ENDLESS = BODY.replace("z = x + y", "z = x + y\n    while tl.load(x_ptr) >= 0.0:\n        z += 1")


@pytest.mark.parametrize(
    ("problem", "source", "elements"), [(LARGE, BODY, "4,194,304"), (SUM.replace("COUNT", "34"), ENDLESS, "34")]
)
def test_a_call_that_does_not_end_in_the_interpreter_gets_no_verdict(workbench, problem, source, elements):
    found = workbench.evaluate(Job("sum", problem, source, backend="triton", timeout_s=8.0))
    assert found.verdict is Verdict.NO_VERDICT, found.reason
    assert (
        f"took longer than 8 s in Triton's interpreter: it is too slow for tensors of {elements} elements"
        in found.reason
    )
    assert "GPU" in found.reason and "smaller" in found.reason


def test_a_module_that_does_not_end_is_a_timeout_without_a_gpu_too(workbench):
    endless = "import os\nwhile not os.path.exists('products'):  # only a build has them where it works\n    pass\n"
    found = workbench.evaluate(Job("sum", SUM.replace("COUNT", "35"), endless + BODY, backend="triton", timeout_s=8.0))
    assert found.verdict is Verdict.TIMEOUT, found.reason


def test_an_arch_of_another_form_is_refused_with_an_example(tmp_path):
    with pytest.raises(ValueError, match="arch must be like 'sm_90', found 'hopper'"):
        triton.install("build", {"products_dir": str(tmp_path), "arch": "hopper", "device": "cpu"})
