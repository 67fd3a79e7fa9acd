"""Each way in which a candidate can be wrong or hostile gets its own verdict and leaves nothing behind."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from fitness.evaluation import Evaluation, Job, Verdict
from problems.problem import ProblemError

SCALED_TANH = textwrap.dedent("""
    import torch
    import torch.nn as nn

    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(width))
            self.bias = nn.Parameter(torch.zeros(width))

        def forward(self, x):
            return torch.tanh(x * self.scale + self.bias)

    def get_inputs():
        return [torch.rand(256, 2048)]

    def get_init_inputs():
        return [2048]
""")
"""An elementwise problem whose weights are constant at first: a dropped bias would not show without variation."""

HONEST = textwrap.dedent("""
    import torch
    import torch.nn as nn

    class ModelNew(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(width))
            self.bias = nn.Parameter(torch.zeros(width))
            self.setup()

        def setup(self):
            pass

        def forward(self, x):
            return torch.tanh(torch.addcmul(self.bias, x, self.scale))
""")


def variant(body: str, head: str = "") -> str:
    """HONEST with other code in forward(self, x), and `head` at the top of the module."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    source = HONEST.replace("        return torch.tanh(torch.addcmul(self.bias, x, self.scale))", lines)
    assert source != HONEST
    return textwrap.dedent(head) + source


@pytest.fixture
def judge(workbench):
    """judge(source) -> Evaluation on the small problem."""

    def evaluate(source: str, **limits) -> Evaluation:
        options = {"timeout_s": 4.0, **limits}
        job = Job("scaled_tanh", SCALED_TANH, source, **options)
        for _ in range(3):  # as the search does: a machine may be busy for a while
            found = workbench.evaluate(job)
            if found.verdict is not Verdict.NO_VERDICT:
                break
        return found

    return evaluate


def test_an_honest_kernel_is_correct_and_timed(judge):
    found = judge(HONEST)
    assert found.verdict is Verdict.CORRECT, found.reason
    assert found.speedup_ci[0] <= found.speedup <= found.speedup_ci[1]
    assert found.draws >= 20
    assert found.sandbox == "S2"
    assert found.features["weights"] == "copied"
    assert found.kernelbench_correct


def test_a_kernel_and_its_reference_compute_on_every_cpu(judge):
    """Importing torch with bound OpenMP threads narrows a process to one CPU; nobody may inherit that."""
    found = judge(HONEST + "\nprint('threads', torch.get_num_threads(), flush=True)\n")
    assert f"threads {len(os.sched_getaffinity(0))}" in found.log


WRONG = {
    "drops the bias": variant("return torch.tanh(x * self.scale)"),
    "returns zeros": variant("return torch.zeros_like(x)"),
    "returns its input": variant("return x.clone()"),
    "computes in half precision": variant("return torch.tanh((x * self.scale + self.bias).bfloat16()).float()"),
    "skips the last column": variant(
        """
        out = torch.empty_like(x).fill_(0.5)
        out[:, :-1] = torch.tanh(torch.addcmul(self.bias, x, self.scale))[:, :-1]
        return out
        """
    ),
    "returns NaN": variant("return torch.full_like(x, float('nan'))"),
    "remembers its first answer": variant(
        """
        if not hasattr(self, "kept"):
            self.kept = torch.tanh(torch.addcmul(self.bias, x, self.scale))
        return self.kept.clone()
        """
    ),
    "remembers answers by address": variant(
        """
        key = (x.data_ptr(), x._version, id(x))
        if key not in self.memo:
            self.memo[key] = torch.tanh(torch.addcmul(self.bias, x, self.scale))
        return self.memo[key]
        """
    ).replace("pass", "self.memo = {}"),
    "is honest ten times, then replays": variant(
        """
        self.calls += 1
        if self.calls <= 10:
            self.kept = torch.tanh(torch.addcmul(self.bias, x, self.scale))
        return self.kept.clone()
        """
    ).replace("pass", "self.calls = 0"),
    "leaves stale memory": variant("return torch.empty_like(x)"),
    "answers before a thread has the result": variant(
        """
        out = torch.empty_like(x)
        def late():
            time.sleep(0.05)
            out.copy_(torch.tanh(torch.addcmul(self.bias, x, self.scale)))
        threading.Thread(target=late).start()
        return out
        """,
        "import threading, time",
    ),
}


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_result_is_found_with_its_place(judge, source):
    found = judge(source)
    assert found.verdict is Verdict.WRONG_RESULT, found.reason
    assert "expected" in found.reason or "elements" in found.reason


OTHER = {
    "raises": (variant("raise ValueError('no such tile')"), Verdict.RUNTIME_ERROR, "no such tile"),
    "hangs": (variant("while True: pass"), Verdict.TIMEOUT, "4 s"),
    "crashes": (variant("ctypes.string_at(8)", "import ctypes"), Verdict.RUNTIME_ERROR, "SIGSEGV"),
    "aborts": (variant("os.abort()", "import os"), Verdict.RUNTIME_ERROR, "SIGABRT"),
    "exits with 0": (variant("os._exit(0)", "import os"), Verdict.RUNTIME_ERROR, "exited with code 0"),
    "forks": (variant("os.fork(); return x", "import os"), Verdict.RUNTIME_ERROR, "not permitted"),
    "starts a program": (
        variant("subprocess.run(['true']); return x", "import subprocess"),
        Verdict.RUNTIME_ERROR,
        "not permitted",
    ),
    "prints without end": (
        variant("while True: print('x' * 65536)"),
        Verdict.RUNTIME_ERROR,
        "File too large",
    ),
    "writes to its input": (variant("return x.mul_(2)"), Verdict.CONTRACT, "wrote to its input 0"),
    "returns another shape": (variant("return torch.tanh(x)[:, :8]"), Verdict.CONTRACT, "(256, 2048)"),
    "returns another dtype": (variant("return torch.tanh(x).double()"), Verdict.CONTRACT, "float64"),
    "returns no tensor": (variant("return 1.0"), Verdict.CONTRACT, "float"),
    "returns two tensors": (variant("return x, x"), Verdict.CONTRACT, "1 tensors, found 2"),
    "returns a lazy subclass": (
        variant("return x.as_subclass(Lazy)", "import torch\nclass Lazy(torch.Tensor): pass"),
        Verdict.CONTRACT,
        "Lazy",
    ),
    "takes all memory": (
        variant("self.hog = [torch.ones(1 << 24) for _ in range(12)]; time.sleep(3); return x", "import time"),
        Verdict.OUT_OF_MEMORY,
        "MiB",
    ),
    "writes rubbish on the judge's pipe": (
        variant(
            "for fd in range(3, 64):\n    try: os.write(fd, b'correct' * 2000)\n    except OSError: pass\nreturn x",
            "import os",
        ),
        Verdict.CONTRACT,
        "",
    ),
    "is not Python": ("def (", Verdict.LOAD_ERROR, "SyntaxError"),
    "lacks ModelNew": ("import torch\nclass Model(torch.nn.Module): pass", Verdict.LOAD_ERROR, "ModelNew"),
    "raises an exception that runs code when unpickled": (
        variant(
            "raise Bomb()",
            "import os\nclass Bomb(Exception):\n    def __reduce__(self): return (os.system, ('touch /tmp/kb-bomb',))",
        ),
        Verdict.RUNTIME_ERROR,
        "Bomb",
    ),
}


@pytest.mark.parametrize("case", OTHER.values(), ids=OTHER.keys())
def test_every_other_failure_has_its_own_verdict_and_reason(judge, case):
    source, verdict, words = case
    found = judge(source, memory_bytes=1 << 29)
    assert found.verdict is verdict, (found.verdict, found.reason, found.log)
    assert words in found.reason
    assert not Path("/tmp/kb-bomb").exists()


def test_outputs_are_overwritten_once_they_were_read_and_may_not_lie_in_new_memory_each_time(judge):
    """Of all that it ever returned no more than one batch still stands as it was: otherwise it raises."""
    source = variant(
        """
        self.kept = getattr(self, "kept", [])
        if sum(not bool(torch.isnan(one).all()) for one in self.kept) > 16:
            raise RuntimeError("earlier outputs are as they were")
        self.kept.append(torch.tanh(torch.addcmul(self.bias, x, self.scale)))
        return self.kept[-1]
        """
    )
    found = judge(source)
    assert found.verdict is Verdict.CONTRACT and "other memory" in found.reason, (found.verdict, found.reason)


def test_nothing_survives_a_hostile_candidate(judge, workbench):
    before = _descendants()
    for name in ("hangs", "forks", "prints without end", "exits with 0"):
        judge(OTHER[name][0])
    time.sleep(0.2)
    assert _descendants() <= before


def _descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_an_honest_kernel_after_hostile_ones_is_still_correct(judge):
    judge(OTHER["crashes"][0])
    assert judge(HONEST).verdict is Verdict.CORRECT


def test_a_failed_evaluation_carries_what_the_candidate_printed_but_never_more_than_the_limit(judge):
    found = judge(variant("print('y' * 100_000); raise ValueError"))
    assert 0 < len(found.log) <= 8_000


COMPILED = """
import ctypes
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]
SOURCE = r'''
#include <cmath>
#include <cstdint>
extern "C" void scaled_tanh(const float* x, const float* scale, const float* bias, float* out,
                            int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < width; ++c)
            out[r * width + c] = std::tanh(x[r * width + c] * scale[c] + bias[c]);
}
'''
library = ctypes.CDLL(load_inline("scaled_tanh", SOURCE, functions=None, no_implicit_headers=True,
                                  is_python_module=False, extra_cflags=CFLAGS, extra_ldflags=CFLAGS))

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        out = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.scale, self.bias, out)]
        library.scaled_tanh(*pointers, ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]))
        return out
"""


def test_a_lean_kernel_is_built_once_and_judged(workbench):
    source = COMPILED.replace('"-O2"', f'"-O2", "-DRUN={time.time_ns()}"')
    first = workbench.build(Job("scaled_tanh", SCALED_TANH, source))
    again = workbench.build(Job("scaled_tanh", SCALED_TANH, source))
    assert first.compile_s > 0 and again.compile_s == 0.0 and again.folder == first.folder
    found = workbench.measure(Job("scaled_tanh", SCALED_TANH, source), first)
    assert found.verdict is Verdict.CORRECT, found.reason
    assert found.features["build_routes"] == ["lean"]


@pytest.mark.parametrize("options", [{"profile": True}, {"fresh": True}])
def test_a_correct_kernel_is_profiled_where_its_job_asks_for_it(judge, options):
    found = judge(HONEST, **options)
    assert found.verdict is Verdict.CORRECT, found.reason
    if "profile" in options:
        assert (found.features["profile_source"], found.features["operators_per_call"]) == ("torch", 2)
    else:
        assert "profile_source" not in found.features


def test_a_compile_error_carries_the_compilers_own_line(judge):
    found = judge(COMPILED.replace("std::tanh(", "std::tamh("))
    assert found.verdict is Verdict.COMPILE_ERROR
    assert "tamh" in found.reason


def test_without_a_gpu_a_cuda_candidate_that_compiles_nothing_is_not_called_built(judge):
    found = judge(f"{SCALED_TANH}class ModelNew(Model): pass\n", backend="cuda")
    assert found.verdict is Verdict.NO_VERDICT, (found.reason, found.log)
    assert found.reason == "nothing was compiled when it was loaded; no GPU is here that could run it"


def test_a_build_that_never_ends_is_stopped(judge):
    found = judge("import time\ntime.sleep(600)", build_timeout_s=2.0)
    assert found.verdict is Verdict.TIMEOUT
    assert "build" in found.reason


def test_a_kernel_far_slower_than_the_incumbent_is_given_up_early(judge):
    slow = variant("time.sleep(0.01); return torch.tanh(torch.addcmul(self.bias, x, self.scale))", "import time")
    found = judge(slow, incumbent_ms=0.5)
    assert found.verdict is Verdict.CORRECT
    assert found.rounds <= 10
    assert found.speedup_ci[1] < 1


def test_a_slower_kernel_reads_slower_by_about_what_it_does_more(judge):
    thrice = variant(
        """
        for _ in range(2):
            torch.tanh(torch.addcmul(self.bias, x, self.scale))
        return torch.tanh(torch.addcmul(self.bias, x, self.scale))
        """
    )
    once, more = judge(HONEST), judge(thrice)
    assert 1.8 < once.speedup / more.speedup < 4.5


def test_the_candidate_sees_no_key_of_the_environment(judge, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    found = judge(variant("raise ValueError(str(dict(os.environ)))", "import os"))
    assert found.verdict is Verdict.RUNTIME_ERROR
    assert "sk-secret" not in found.reason + found.log


def test_a_candidate_cannot_read_what_it_must_not(judge, tmp_path):
    secret = Path.home() / f".kb-secret-{os.getpid()}"
    secret.write_text("hush")
    try:
        found = judge(variant(f"raise ValueError(open({str(secret)!r}).read())"))
    finally:
        secret.unlink()
    assert "hush" not in found.reason + found.log
    assert "ermission" in found.reason


def test_a_problem_with_complex_tensors_is_refused_by_name(workbench):
    source = SCALED_TANH.replace("return torch.tanh(x * self.scale + self.bias)", "return torch.fft.fft(x)")
    with pytest.raises(ProblemError, match=r"loading the problem: TypeError: tensors must be of .*, found complex64"):
        workbench.evaluate(Job("spectrum", source, HONEST))
