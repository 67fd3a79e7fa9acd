"""Profiles: taken in real fenced children, validated as the words of a liar, and the arithmetic of occupancy."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fitness import counters, profile
from fitness.children import Zygote
from fitness.evaluation import Job
from fitness.session import private_policy

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x @ x)
def get_inputs():
    return [torch.rand(64, 64)]
def get_init_inputs():
    return []
"""
CANDIDATE = PROBLEM.replace("class Model(", "class ModelNew(")


def kernel(name: str, start: float, took: float, correlation: int, **args) -> dict:
    """A kernel as torch's profiler writes it into a Chrome trace."""
    shape = {"block": [256, 1, 1], "grid": [100, 1, 1], "registers per thread": 32, "shared memory": 0}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "ts": start,
        "dur": took,
        "args": {**shape, "correlation": correlation, **args},
    }


OWN = kernel("fill", 0.0, 1.0, 0)


@pytest.fixture(scope="module")
def zygote():
    running = Zygote(1)
    yield running
    running.close()


@pytest.fixture
def built(tmp_path: Path):
    """built(text) -> the artifact folder of a candidate that needs no compiler."""

    def written(candidate: str) -> str:
        (tmp_path / "products").mkdir(exist_ok=True)
        (tmp_path / "problem.py").write_text(PROBLEM)
        (tmp_path / "candidate.py").write_text(candidate)
        for path in (tmp_path, *tmp_path.parents[:2]):
            path.chmod(0o755)
        return str(tmp_path)

    return written


JOB = Job("product", PROBLEM, CANDIDATE)


def test_a_candidate_profiled_in_a_fenced_child_names_its_operators(zygote, built):
    found = profile.take(zygote, JOB, built(CANDIDATE), fenced=True)
    assert found["profile_source"] == "torch", found
    assert found["operators_per_call"] == 2
    assert sorted(found["operator_names"]) == ["aten::matmul", "aten::tanh"]
    assert sum(found["operator_us"]) == pytest.approx(found["operator_us_per_call"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [("import os; os.abort()", "killed by signal 6"), ("import time; time.sleep(60)", "no profile within 1.5 s")],
)
def test_a_candidate_that_dies_or_hangs_while_profiled_leaves_the_reason(zygote, built, line, expected):
    source = CANDIDATE.replace("return torch.tanh", f"{line}; return torch.tanh")
    found = profile.take(zygote, JOB, built(source), fenced=True, timeout_s=1.5 if "sleep" in line else 30)
    assert found["profile_source"] == "compiler"
    assert expected in found["profile_note"]


def test_a_candidate_that_takes_too_much_memory_while_profiled_is_stopped(zygote, built):
    source = CANDIDATE.replace(
        "return torch.tanh", "kept = torch.ones(1 << 29); import time; time.sleep(30); return torch.tanh"
    )
    job = dataclasses.replace(JOB, memory_bytes=1 << 30)
    found = profile.take(zygote, job, built(source), fenced=True, timeout_s=25)
    assert found["profile_source"] == "compiler"
    assert "MiB, allowed are 1024 MiB" in found["profile_note"]


def test_a_candidate_that_breaks_the_profiler_leaves_only_the_compilers_report():
    def forward() -> None:
        raise RuntimeError("no more than that\x1b[31m")

    said = profile.profile_in_child(forward, [], "cpu")
    assert profile.read_profile(json.dumps(said)) == {
        "profile_source": "compiler",
        "profile_note": "RuntimeError: no more than that?[31m",
    }


def test_kernels_are_counted_per_call_without_our_own_and_with_what_limits_them():
    events = [OWN]
    for call in range(3):
        start = 10.0 + 100 * call
        events.append(kernel("gemm", start, 40.0, 10 * call + 1, block=[128, 1, 1], **{"shared memory": 100 << 10}))
        events.append(kernel("bias", start + 50, 10.0, 10 * call + 2))
        events.append({"ph": "X", "cat": "gpu_memset", "name": "Memset", "ts": start + 70, "dur": 1.0, "args": {}})
    found = profile.kernel_facts(events, 3, "sm_90")
    assert (found["kernels_per_call"], found["launches_per_call"], found["copies_per_call"]) == (2, 2, 1)
    assert found["device_us_per_call"] == 50
    assert (found["kernel_names"], found["kernel_us"]) == (["gemm", "bias"], [40, 10])
    assert found["kernel_occupancy"] == [2 * 4 / 64, 1.0]
    assert found["occupancy"] == pytest.approx((40 * 0.125 + 10 * 1.0) / 50)
    assert profile.read_profile(json.dumps({"profile_source": "cupti", **found})) == {
        "profile_source": "cupti",
        **found,
    }


def test_a_graph_is_one_launch_of_many_kernels():
    events = [OWN, *(kernel(f"k{i}", 10.0 + i, 1.0, 7) for i in range(8))]
    found = profile.kernel_facts(events, 1, "sm_90")
    assert (found["kernels_per_call"], found["launches_per_call"], len(found["kernel_names"])) == (8, 1, 5)


def test_an_unknown_architecture_gives_no_occupancy_but_the_rest():
    found = profile.kernel_facts([OWN, kernel("k", 10.0, 1.0, 1)], 1, "sm_777")
    assert found["kernels_per_call"] == 1
    assert "occupancy" not in found


def test_a_program_that_launches_nothing_is_told_from_a_blind_profiler():
    assert profile.kernel_facts([OWN], 3, "sm_90")["kernels_per_call"] == 0
    with pytest.raises(ValueError, match="not even a known one"):
        profile.kernel_facts([], 3, "sm_90")


def test_operators_inside_others_are_not_counted():
    nested = [("aten::linear", 0.0, 10.0), ("aten::addmm", 1.0, 8.0), ("aten::relu", 12.0, 3.0)]
    events = [{"ph": "X", "cat": "cpu_op", "name": n, "ts": t, "dur": d, "tid": 1} for n, t, d in nested]
    found = profile.operator_facts(events, 1)
    assert (found["operator_names"], found["operators_per_call"]) == (["aten::linear", "aten::relu"], 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[1, 2]",
        '{"profile_source": "root"}',
        '{"profile_source": ["ncu"]}',
        '{"profile_source": "cupti", "x": "' + "y" * profile.MOST_BYTES + '"}',
    ],
)
def test_what_is_no_profile_reads_as_none(text):
    assert profile.read_profile(text) == {"profile_source": "compiler"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernels_per_call", "NaN"),
        ("kernels_per_call", "Infinity"),
        ("kernels_per_call", "-1"),
        ("kernels_per_call", "1e300"),
        ("kernels_per_call", "true"),
        ("kernels_per_call", '"many"'),
        ("kernel_us", "[1, null]"),
        ("kernel_us", "3"),
        ("kernel_us", str([1] * 1000)),
        ("kernel_names", "[1]"),
        ("kernel_ms", "0.0001"),
        ("speedup", "1000"),
        ("profile_note", "[]"),
    ],
)
def test_a_value_of_the_wrong_kind_or_name_is_dropped(name, value):
    text = f'{{"profile_source": "cupti", "copies_per_call": 1, "{name}": {value}}}'
    assert profile.read_profile(text) == {"profile_source": "cupti", "copies_per_call": 1}


def test_names_are_cut_and_made_printable():
    said = {"profile_source": "cupti", "kernel_names": ["a\x00\x1b[2J\n" + "b" * 10_000]}
    (name,) = profile.read_profile(json.dumps(said))["kernel_names"]
    assert len(name) == 160
    assert name.startswith("a??[2J?b")


def test_a_candidate_cannot_say_that_its_counters_were_read(tmp_path):
    (tmp_path / profile.FILE).write_text('{"profile_source": "ncu", "dram_percent": 99}')
    assert profile.collect(str(tmp_path)) == {"profile_source": "compiler"}


def test_a_link_or_a_pipe_in_place_of_the_profile_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"profile_source": "cupti"}')
    for make in (lambda path: os.symlink(secret, path), os.mkfifo):
        folder = tmp_path / make.__name__.strip("<>")
        folder.mkdir()
        make(folder / profile.FILE)
        assert profile.collect(str(folder)) == {"profile_source": "compiler"}
    assert profile.collect(str(tmp_path / "nowhere")) == {"profile_source": "compiler"}


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_bytes", "expected"),
    [
        ("sm_90", 256, 32, 0, 1.0),  # 8 blocks of 8 warps
        ("sm_90", 1024, 33, 0, 0.5),  # 40 registers a thread after rounding: one block of 32 warps
        ("sm_90a", 128, 168, 0, 12 / 64),  # three warps in each of four partitions
        ("sm_90", 128, 32, 227 << 10, 4 / 64),  # one block's shared memory, with the reserved KiB, fills the SM
        ("sm_80", 32, 16, 0, 32 / 64),  # blocks run out first
        ("sm_86", 1024, 32, 0, 32 / 48),
        ("sm_89", 64, 32, 0, 1.0),
        ("sm_75", 256, 32, 32 << 10, 16 / 32),
        ("sm_100", 512, 128, 0, 0.25),
        ("sm_90", 1024, 128, 0, 0.0),  # cannot be launched
        ("sm_90", 0, 32, 0, None),
        ("sm_35", 256, 32, 0, None),
    ],
)
def test_occupancy_is_what_registers_shared_memory_and_blocks_allow(arch, threads, registers, shared_bytes, expected):
    assert profile.occupancy(arch, threads, registers, shared_bytes) == expected


CHECK = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
    int major, minor, threads, registers, warps, shared_sm, reserved;
    long shared;
    while (scanf("%d %d %d %d %ld %d %d %d", &major, &minor, &threads, &registers, &shared, &warps, &shared_sm,
                 &reserved) == 8) {
        cudaOccDeviceProp p;
        p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024;
        p.maxThreadsPerMultiprocessor = warps * 32; p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32;
        p.sharedMemPerMultiprocessor = shared_sm; p.sharedMemPerBlock = 48 << 10; p.numSms = 1;
        p.sharedMemPerBlockOptin = shared_sm - reserved; p.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes f;
        f.maxThreadsPerBlock = 1024; f.numRegs = registers; f.sharedSizeBytes = 0;
        f.partitionedGCConfig = PARTITIONED_GC_OFF; f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        f.maxDynamicSharedSizeBytes = shared_sm - reserved; f.numBlockBarriers = 1;
        cudaOccDeviceState state;
        cudaOccResult result;
        cudaOccError bad = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &p, &f, &state, threads, shared);
        printf("%d\n", bad ? -1 : result.activeBlocksPerMultiprocessor);
    }
}
"""


def test_occupancy_agrees_with_nvidias_own_header(tmp_path):
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("needs the CUDA toolkit's cuda_occupancy.h; nvcc is not installed")
    dry = subprocess.run([compiler, "--dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True).stderr
    include = next(line.split('"')[1][2:] for line in dry.splitlines() if "INCLUDES=" in line)
    (tmp_path / "check.cpp").write_text(CHECK)
    subprocess.run(["g++", "-I", include, tmp_path / "check.cpp", "-o", tmp_path / "check"], check=True)
    cases = [
        (arch, threads, registers, shared)
        for arch in profile.ARCHITECTURES
        for threads in (1, 32, 33, 64, 96, 128, 160, 256, 384, 512, 768, 1000, 1024)
        for registers in (1, 16, 24, 31, 32, 33, 40, 64, 72, 96, 128, 168, 200, 255)
        for shared in (0, 1, 128, 1000, 5000, 16 << 10, 48 << 10, 63 << 10, 99 << 10)
        if shared + 1024 <= profile.ARCHITECTURES[arch].shared_bytes
    ]
    lines = []
    for arch, *sizes in cases:
        limits, number = profile.ARCHITECTURES[arch], int(arch[3:])
        reserved = 0 if arch == "sm_75" else 1024
        lines.append(f"{number // 10} {number % 10} {' '.join(map(str, sizes))} ")
        lines[-1] += f"{limits.warps} {limits.shared_bytes} {reserved}"
    done = subprocess.run([tmp_path / "check"], input="\n".join(lines), capture_output=True, text=True, check=True)
    blocks = [int(line) for line in done.stdout.split()]
    assert len(blocks) == len(cases) > 5_000
    for case, expected in zip(cases, blocks, strict=True):
        arch, threads, _, _ = case
        limits = profile.ARCHITECTURES[arch]
        assert profile.occupancy(*case) == expected * -(-threads // 32) / limits.warps, (case, expected)


LONG = """==PROF== Connected to process 1 (python)
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","gemm","Command line profiler metrics","gpu__time_duration.sum","ns","30,000"
"0","1","gemm","Command line profiler metrics","dram__bytes_read.sum","byte","2,000,000"
"0","1","gemm","Command line profiler metrics","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","80.5"
"1","1","bias","Command line profiler metrics","gpu__time_duration.sum","ns","10,000"
"1","1","bias","Command line profiler metrics","dram__bytes_read.sum","byte","1000"
"1","1","bias","Command line profiler metrics","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","10.5"
"""
WIDE = """"ID","dram__bytes_read.sum","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","byte","ns","%"
"0","2,000,000","30,000","80.5"
"1","1000","10,000","10.5"
"""


@pytest.mark.parametrize("text", [LONG, WIDE])
def test_counters_are_summed_over_kernels_and_percentages_weighted_by_time(text):
    assert counters.read_counters(text) == {
        "profile_source": "ncu",
        "counted_kernels": 2,
        "counted_us": 40,
        "dram_read_bytes": 2_001_000,
        "sm_percent": pytest.approx(0.75 * 80.5 + 0.25 * 10.5),
    }


def test_a_log_without_kernels_gives_no_counters():
    assert counters.read_counters("==ERROR== nothing\n") == {}
    assert counters.read_counters('"ID","Metric Name","Metric Value"\n"0","gpu__time_duration.sum","n/a"\n') == {}


@pytest.fixture
def tool(tmp_path: Path):
    """tool(script) -> a program that stands where ncu would: it gets ncu's arguments."""

    def written(script: str) -> str:
        path = tmp_path / "tool"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return str(path)

    return written


RUN_TARGET = """
while [ "$1" != "--log-file" ]; do shift; done
log="$2"; shift 2
"$@" || exit 9
"""


def test_counters_are_taken_of_the_candidate_behind_its_fence(built, tool, tmp_path):
    (tmp_path / "counters").write_text(LONG)
    escape = "open('/tmp/kb-escaped', 'w')"
    spec = profile.spec_for(
        JOB, built(CANDIDATE + f"\ntry:\n    {escape}\n    print('escaped')\nexcept OSError:\n    print('held')\n")
    )
    policy = private_policy((str(tmp_path),))
    program = tool(f"{RUN_TARGET}\ncp {tmp_path}/counters $log")
    found = counters.counters(spec, policy, ncu=program)
    shutil.rmtree(policy.private_dir)
    assert found["dram_read_bytes"] == 2_001_000
    assert not os.path.exists("/tmp/kb-escaped")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1",
            "may not read the GPU's counters",
        ),
        ("echo '==ERROR== the driver is too old'; exit 1", "the driver is too old"),
        ("sleep 60", "did not end within 0.5 s"),
        ("exit 3", "said nothing"),
    ],
)
def test_where_counters_cannot_be_had_the_reason_is_stored(built, tool, script, expected):
    policy = private_policy(())
    found = counters.counters(
        profile.spec_for(JOB, built(CANDIDATE)), policy, ncu=tool(script), timeout_s=0.5 if "sleep" in script else 20
    )
    shutil.rmtree(policy.private_dir)
    assert found["profile_source"] == "compiler"
    assert expected in found["profile_note"]


def test_without_ncu_the_reason_is_stored(built):
    found = counters.counters(profile.spec_for(JOB, built(CANDIDATE)), private_policy(()), ncu="no-such-ncu")
    assert "not installed" in found["profile_note"]


@pytest.mark.gpu
def test_a_real_gpu_lists_the_kernels_of_a_call():
    code = (  # a context in this process would be a foreign program to every judge
        "import json, torch; from fitness import profile; x = torch.rand(1024, 1024, device='cuda:0'); "
        "print(json.dumps(profile.profile_in_child(lambda value: torch.tanh(value @ value), [x], 'cuda:0')))"
    )
    found = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    assert found["profile_source"] == "cupti"
    assert found["kernels_per_call"] >= 2
    assert 0 < found["occupancy"] <= 1
    kept = profile.read_profile(json.dumps(found))
    names = kept.pop("kernel_names")
    assert all(full.startswith(name) and name for full, name in zip(found.pop("kernel_names"), names, strict=True))
    assert found == kept
